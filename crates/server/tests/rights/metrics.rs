//! Rights to the series of some metrics: others don't exist for whoever has no more, by whatever
//! door he asks, and aren't written by any; and an answer that has begun ends with the right to it.
//!
//! Whether something shows is told by two places that differ in it alone: every answer has to be
//! the same, byte for byte.

use super::common::peer::{Peer, ask_at};
use super::common::*;
use super::{DENIED, HOST, Place, code, get, put, wait_until, with_series};
use plinth_env::{Env, block_on};
use plinth_server::ServerConfig;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

/// Where a place's series are asked for.
pub(super) fn at(place: &Place) -> SocketAddr {
    place.server.series_addresses().http.unwrap()
}

/// Asks over HTTP of series: the status and the answer, which comes in no chunks.
pub(super) fn ask(place: &Place, method: &str, path: &str, body: &str) -> (u32, String) {
    let path = path.replace('"', "%22").replace('{', "%7b").replace('}', "%7d");
    let mut peer = Peer::to(at(place));
    let len = body.len();
    peer.send(&format!("{method} {path} HTTP/1.0\r\n{HOST}Content-Length: {len}\r\n\r\n{body}"));
    let answer = peer.all();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), without_timings(body))
}

/// An answer without how long it took, which no two have alike.
fn without_timings(answer: &str) -> String {
    let Some((before, from)) = answer.split_once(r#""timings":{"#) else {
        return answer.to_owned();
    };
    let (timings, after) = from.split_once('}').unwrap();
    assert!(timings.contains("evalTotalTime"), "{timings}");
    [before, after].concat()
}

/// The same with bytes, and lines of a head; the answer with its head, as far as it is text.
pub(super) fn ask_bytes(place: &Place, path: &str, headers: &str, body: &[u8]) -> String {
    let mut peer = Peer::to(at(place));
    let len = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\n{HOST}{headers}Connection: close\r\nContent-Length: {len}\r\n\r\n"
    );
    let (bytes, mut sent) = ([head.as_bytes(), body].concat(), 0);
    block_on(poll_fn(|context| {
        while sent < bytes.len() {
            sent += std::task::ready!(peer.0.poll_send(context, &bytes[sent..])).unwrap();
        }
        std::task::Poll::Ready(())
    }));
    peer.all()
}

pub(super) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A block of snappy that is literals alone.
pub(super) fn block(message: &[u8]) -> Vec<u8> {
    let mut block = vec![message.len() as u8 & 0x7f | 0x80, (message.len() >> 7) as u8];
    for part in message.chunks(60) {
        block.push((part.len() as u8 - 1) << 2);
        block.extend_from_slice(part);
    }
    block
}

/// Reads series of a metric by Prometheus' remote read.
pub(super) fn remote_read(place: &Place, metric: &str) -> String {
    let condition = [field(2, b"__name__"), field(3, metric.as_bytes())].concat();
    let query = [vec![1 << 3, 0, 2 << 3, 99], field(3, &condition)].concat();
    let message = block(&field(1, &query));
    ask_bytes(place, "/api/v1/read", "Content-Encoding: snappy\r\n", &message)
}

/// Writes a point of a metric by Prometheus' remote write.
fn remote_write(place: &Place, metrics: &[&str]) -> String {
    let label = |name: &str, value: &str| {
        field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let sample = field(2, &[&[9][..], &1.0_f64.to_le_bytes(), &[16, 7]].concat());
    let series = metrics.iter().flat_map(|metric| {
        field(1, &[label("__name__", metric), label("host", "rw"), sample.clone()].concat())
    });
    ask_bytes(place, "/api/v1/write", "", &block(&series.collect::<Vec<_>>()))
}

pub(super) const SHOWN: &str = "# HELP cpu_busy How busy it is\n# TYPE cpu_busy gauge\ncpu_busy{host=\"a\"} 1 0.01\n\
    cpu_busy{host=\"b\"} 2 0.02\ncpu_idle{host=\"a\"} 3 0.03\n";
pub(super) const HIDDEN: &str = "# HELP mem_free What is left\n# TYPE mem_free gauge\nmem_free{host=\"h\",zone=\"z\"} 4 0.01\n\
    a{zone=\"y\"} 1 0.01\ncpu{zone=\"x\"} 5 0.01\nxcpu_busy{zone=\"w\"} 6 0.01\n";

/// What may be asked, by its method, path and body.
pub(super) const QUESTIONS: [(&str, &str, &str); 56] = [
    ("GET", "/api/v1/labels", ""),
    ("GET", "/api/v1/label/__name__/values", ""),
    ("GET", "/api/v1/label/zone/values", ""),
    ("GET", "/api/v1/label/host/values?match[]={__name__=~\".%2b\"}", ""),
    ("GET", "/api/v1/series?match[]={__name__=~\".%2b\"}", ""),
    ("GET", "/api/v1/series?match[]=mem_free", ""),
    ("GET", "/api/v1/query?time=1&query=count({__name__=~\".%2b\"})", ""),
    ("GET", "/api/v1/query?time=1&query=mem_free", ""),
    ("GET", "/api/v1/query?time=1&query=absent(mem_free)", ""),
    ("GET", "/api/v1/query?time=1&query=cpu_busy", ""),
    ("GET", "/api/v1/query?time=1&query=topk(1,{__name__=~\".%2b\"})", ""),
    ("GET", "/api/v1/query?time=1&query=max_over_time(mem_free[5s:1s])", ""),
    (
        "GET",
        "/api/v1/query?time=1&query=label_replace(cpu_busy,\"__name__\",\"mem_free\",\"\",\"\")",
        "",
    ),
    ("GET", "/api/v1/query?time=1&stats=all&query={__name__=~\".%2b\"}", ""),
    ("POST", "/api/v1/query?time=1&query=mem_free%20or%20cpu_busy", ""),
    ("GET", "/api/v1/format_query?query=mem_free", ""),
    ("GET", "/api/v1/parse_query?query=mem_free", ""),
    ("GET", "/api/v1/label/__name__/values?limit=1", ""),
    ("GET", "/api/v1/labels?match[]={zone=~\".%2b\"}", ""),
    ("GET", "/api/v1/labels?limit=1", ""),
    ("GET", "/api/v1/status/tsdb?limit=1", ""),
    ("GET", "/api/v1/status/config", ""),
    ("GET", "/api/v1/alertmanagers", ""),
    ("GET", "/api/v1/targets/metadata", ""),
    ("GET", "/api/v1/metadata?limit=1", ""),
    ("GET", "/api/v1/export?match[]={zone=~\".%2b\"}", ""),
    ("GET", "/api/v1/query_range?start=0&end=1&step=1&query={host=~\".%2b\"}", ""),
    ("GET", "/api/v1/query_exemplars?start=0&end=1&query=mem_free", ""),
    ("GET", "/api/v1/status/tsdb", ""),
    ("GET", "/api/v1/metadata", ""),
    ("GET", "/api/v1/metadata?metric=mem_free", ""),
    ("GET", "/api/v1/rules", ""),
    ("GET", "/api/v1/alerts", ""),
    ("GET", "/api/v1/targets", ""),
    ("GET", "/api/v1/export?match[]={__name__=~\".%2b\"}", ""),
    ("GET", "/api/v1/export?match[]=mem_free", ""),
    ("GET", "/api/suggest?type=metrics", ""),
    ("GET", "/api/suggest?type=metrics&max=1", ""),
    ("GET", "/api/suggest?type=tagk", ""),
    ("GET", "/api/suggest?type=tagv", ""),
    ("GET", "/api/suggest?type=metrics&q=mem", ""),
    ("GET", "/api/suggest?type=tagv&q=z", ""),
    ("GET", "/api/query?start=1&end=100&m=sum:1s-sum:mem_free", ""),
    ("POST", "/api/query", r#"{"select":"meta:names"}"#),
    ("POST", "/api/query", r#"{"select":"meta:names:mem_free"}"#),
    ("POST", "/api/query", r#"{"select":"mem_free","range":{"from":0,"to":1000000000}}"#),
    ("POST", "/api/query", r#"{"select":"cpu_busy","range":{"from":0,"to":1000000000}}"#),
    (
        "POST",
        "/api/query",
        r#"{"aggregate":{"mem_free":"count"},"range":{"from":0,"to":1000000000}}"#,
    ),
    (
        "POST",
        "/api/query",
        r#"{"join":["cpu_busy","mem_free"],"range":{"from":0,"to":1000000000}}"#,
    ),
    (
        "POST",
        "/api/query",
        r#"{"group-aggregate":{"metric":"mem_free","step":"1s","func":["max"]},"range":{"from":0,"to":1000000000}}"#,
    ),
    (
        "POST",
        "/api/query",
        r#"{"select":"mem_free","where":[{"host":"h","zone":"z"}],"range":{"from":0,"to":1000000000}}"#,
    ),
    (
        "POST",
        "/api/query",
        r#"{"start":1,"end":100,"queries":[{"metric":"mem_free","aggregator":"sum","downsample":"1s-sum"}]}"#,
    ),
    ("POST", "/api/search", r#"{"select":"mem_free"}"#),
    ("POST", "/api/search", r#"{"select":"meta:names"}"#),
    ("POST", "/api/suggest", r#"{"select":"metric-names","starts-with":""}"#),
    ("POST", "/api/suggest", r#"{"select":"tag-values","metric":"mem_free","tag":"zone"}"#),
];

#[test]
fn metrics_that_no_grant_covers_do_not_exist_by_any_door() {
    let places = [Place::new(with_series()), Place::new(with_series())];
    for (place, has_hidden) in places.iter().zip([false, true]) {
        // Series that come first, and between, have numbers before those that are shown.
        let text = if has_hidden { [HIDDEN, SHOWN].concat() } else { SHOWN.to_owned() };
        assert_eq!(ask(place, "POST", "/api/v1/import/prometheus", &text).0, 204);
        place.grant("operator address ::1");
        place.grant("reader address 127.0.0.1 metric cpu_*");
        place.until_heeded();
    }
    for (method, path, body) in QUESTIONS {
        let told = places.each_ref().map(|place| ask(place, method, path, body));
        assert_eq!(told[0], told[1], "{method} {path} {body}");
        let hidden = ["mem_free\"", "zone", "xcpu"].iter().any(|name| told[1].1.contains(name));
        let names_it = path.contains("mem_free") || body.contains("mem_free");
        assert!(!hidden || names_it, "{path}: {}", told[1].1);
        // OpenTSDB knows no answer about a metric that isn't there but that.
        assert!(
            told[0].0 == 200 || told[0].1.contains("no series"),
            "{path} {body}: {:?}",
            told[0]
        );
    }
    for metric in ["mem_free", "cpu_busy"] {
        let told = places.each_ref().map(|place| remote_read(place, metric));
        assert_eq!(told[0], told[1], "{metric}");
        assert_eq!(told[0].contains("host"), metric == "cpu_busy", "{}", told[0]);
    }
    let place = &places[1];
    for path in [
        "/api/v1/labels",
        "/api/v1/label/__name__/values",
        "/api/v1/metadata",
        "/api/suggest?type=metrics",
    ] {
        assert!(
            ask(place, "GET", path, "").1.contains(if path.ends_with("labels") {
                "host"
            } else {
                "cpu_busy"
            }),
            "{path}"
        );
    }
    assert_eq!(ask(place, "GET", "/api/stats", "").0, 403);
    // Such a grant is for no keys, for no points, and for no deletion.
    assert_eq!(code(get(&place.user(0), "k")), DENIED);
    assert_eq!(code(put(&place.user(0), "k")), DENIED);
    assert_eq!(ask(place, "POST", "/write", "cpu_busy,host=a value=1 1").0, 401);
    let delete = "/api/v1/admin/tsdb/delete_series?match[]={__name__=~\".%2b\"}";
    assert_eq!(ask(place, "POST", delete, "").0, 401);
    // With another grant more of them are there, within a second.
    place.grant("reader address 127.0.0.1 metric mem_free");
    place.until_heeded();
    let names = ask(place, "GET", "/api/v1/label/__name__/values", "").1;
    assert_eq!(names, r#"{"data":["cpu_busy","cpu_idle","mem_free"],"status":"success"}"#);
    // Whoever may write some deletes no others.
    place.grant("writer address 127.0.0.1 metric cpu_busy");
    place.until_heeded();
    assert_eq!(ask(place, "POST", delete, "").0, 204);
    let names = ask(place, "GET", "/api/v1/label/__name__/values", "").1;
    assert_eq!(names, r#"{"data":["cpu_idle","mem_free"],"status":"success"}"#);
    place.grant("reader address 127.0.0.1 series");
    place.until_heeded();
    let names = ask(place, "GET", "/api/v1/label/__name__/values", "").1;
    assert!(names.contains(r#"["a","cpu","cpu_idle","mem_free","xcpu_busy"]"#), "{names}");
}

/// The names of all series, as whoever may read all of them sees them.
fn all_names(place: &Place) -> String {
    ask(place, "POST", "/api/query", r#"{"select":"meta:names"}"#).1.replace("\r\n", " ")
}

fn lines(place: &Place, to: Option<SocketAddr>, text: &str, until: &str) -> String {
    let mut peer = Peer::to(to.unwrap_or(place.server.series_addresses().resp.unwrap()));
    peer.send(text);
    peer.until(until)
}

/// Of points in text, and of remote write, those of `cpu` are taken.
fn sends_text(place: &Place) {
    // InfluxDB's lines.
    let (status, told) = ask(
        place,
        "POST",
        "/write",
        "cpu,host=i value=1 1\nmem,host=i value=1 1\nmem,host=old value=2 2\n",
    );
    assert!(
        status == 403
            && told.contains("permission_denied (6000)")
            && told.contains(r#"metric \"mem"#)
            && told.contains(r#""code":"forbidden""#),
        "{status} {told}"
    );
    assert!(told.contains("partial write: 1 points were taken"), "{told}");
    // Remote write.
    let told = remote_write(place, &["cpu", "mem"]);
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains(r#"the metric "mem""#), "{told}");
    assert!(remote_write(place, &["cpu"]).starts_with("HTTP/1.1 204 "));
    // Prometheus' text, with what it says of metrics, and lines of JSON.
    let text = "# HELP mem Not his\nmem{host=\"p\"} 1 1\n# HELP cpu His\ncpu{host=\"p\"} 1 1\n";
    assert_eq!(ask(place, "POST", "/api/v1/import/prometheus", text).0, 403);
    let described = ask(place, "GET", "/api/v1/metadata", "").1;
    assert!(described.contains("His") && !described.contains("Not his"), "{described}");
    let text = "{\"metric\":{\"__name__\":\"mem\",\"host\":\"v\"},\"values\":[1],\"timestamps\":[1]}\n\
                {\"metric\":{\"__name__\":\"cpu\",\"host\":\"v\"},\"values\":[1],\"timestamps\":[1]}\n";
    assert_eq!(ask(place, "POST", "/api/v1/import", text).0, 403);
}

/// The same of points in JSON.
fn sends_json(place: &Place) {
    // OpenTSDB's points.
    let put = |metrics: &[&str]| {
        let points = metrics.iter().map(|metric| {
            format!(r#"{{"metric":"{metric}","timestamp":1,"value":1,"tags":{{"host":"o"}}}}"#)
        });
        format!("[{}]", points.collect::<Vec<_>>().join(","))
    };
    let (status, told) = ask(place, "POST", "/api/put", &put(&["cpu", "mem"]));
    assert!(
        status == 403 && told.contains("1 of 2 points were refused (permission_denied (6000)"),
        "{status} {told}"
    );
    let (status, told) = ask(place, "POST", "/api/put?details", &put(&["cpu", "mem"]));
    assert!(status == 403 && told.contains(r#""success":1"#), "{told}");
    // OpenTelemetry says of some that they are rejected, and fails where all are.
    let otlp = |metrics: &[&str]| {
        let gauge = metrics.iter().map(|metric| {
            format!(r#"{{"name":"{metric}","gauge":{{"dataPoints":[{{"timeUnixNano":"7","asInt":"1"}}]}}}}"#)
        });
        let metrics = gauge.collect::<Vec<_>>().join(",");
        let body =
            format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metrics}]}}]}}]}}"#);
        ask_bytes(place, "/v1/metrics", "Content-Type: application/json\r\n", body.as_bytes())
    };
    let told = otlp(&["cpu_t", "mem_t"]);
    assert!(
        told.starts_with("HTTP/1.1 200 ")
            && told.contains(r#""rejectedDataPoints":"1""#)
            && told.contains("mem_t"),
        "{told}"
    );
    let told = otlp(&["mem_t"]);
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains(r#""code":7"#), "{told}");
}

#[test]
fn points_of_metrics_that_no_grant_covers_are_refused_by_every_door_and_the_others_are_taken() {
    let place = Place::new(with_series());
    // Sessions that are kept remember what others might write.
    for door in ["/write", "/api/v1/import/prometheus"] {
        let text =
            if door == "/write" { "mem,host=old value=1 1\n" } else { "mem{host=\"old\"} 1 1\n" };
        assert_eq!(ask(&place, "POST", door, text).0, 204);
    }
    let mut open = Peer::to(place.server.series_addresses().resp.unwrap());
    open.send("+mem host=open\r\n:1\r\n:1\r\n+SYNC\r\n");
    assert!(open.until("\r\n").starts_with("+OK"));
    place.grant("operator address ::1");
    place.grant("reader address 127.0.0.1 series");
    place.grant("writer address 127.0.0.1 metric cpu*");
    place.until_heeded();
    let before = all_names(&place);
    sends_text(&place);
    sends_json(&place);
    // Lines, of a connection that was there before, too.
    for peer in [None, Some(&mut open)] {
        let text = "+mem host=r\r\n:2\r\n:1\r\n+mem host=open\r\n:2\r\n:1\r\n+cpu host=r\r\n:2\r\n:1\r\n+SYNC\r\n";
        let told = match peer {
            None => lines(&place, None, text, "+OK"),
            Some(peer) => {
                peer.send(text);
                peer.until("+OK")
            }
        };
        assert!(told.contains("-DB permission_denied (6000)") && told.contains("mem"), "{told}");
    }
    let opentsdb = place.server.series_addresses().opentsdb;
    let told = lines(&place, opentsdb, "put mem 1 1 host=l\nput cpu 1 1 host=l\n\n", "\n");
    assert!(told.contains("permission_denied (6000)"), "{told}");
    wait_until(|| all_names(&place).contains("cpu host=l"));
    // Nothing of it was done by halves.
    let names = all_names(&place);
    let mem = |names: &str| names.split(' ').filter(|word| word.contains("mem")).count();
    assert_eq!(mem(&names), mem(&before), "{names}");
    for host in ["i", "rw", "p", "v", "o", "r", "l"] {
        assert!(names.contains(&format!("host={host}")), "{host}: {names}");
    }
    let points = r#"{"select":"mem.value","range":{"from":0,"to":10},"output":{"format":"csv"}}"#;
    let told = ask(&place, "POST", "/api/query", points).1;
    assert!(!told.contains(" 2"), "a point behind the one that was there before: {told}");
}

/// A series of as many points as no system has room for on their way.
fn fill(place: &Place) {
    for part in 0..8_u64 {
        let mut text = String::new();
        for point in 0..50_000_u64 {
            text += &format!("cpu value={point}.5 {}\n", (part * 50_000 + point) * 1_000_000);
        }
        assert_eq!(ask(place, "POST", "/write", &text).0, 204);
    }
}

/// Begins to ask for all of that, and reads its first piece.
fn begin(place: &Place) -> Peer {
    let question =
        r#"{"select":"cpu.value","range":{"from":0,"to":1000000000000},"output":{"format":"csv"}}"#;
    let mut peer = Peer::to(at(place));
    let len = question.len();
    peer.send(&format!("POST /api/query HTTP/1.1\r\n{HOST}Content-Length: {len}\r\nConnection: close\r\n\r\n{question}"));
    assert!(peer.until("cpu.value").starts_with("HTTP/1.1 200 "));
    peer
}

/// How many bytes come of an answer that has begun, and whether its end does.
fn rest(mut peer: Peer) -> (usize, bool) {
    let (mut len, mut buffer, mut tail) = (0, vec![0; 1 << 16], Vec::new());
    loop {
        let received = poll_fn(|context| peer.0.poll_receive(context, &mut buffer));
        match block_on(received) {
            Ok(0) | Err(_) => return (len, tail.ends_with(b"0\r\n\r\n")),
            Ok(more) => {
                len += more;
                tail = buffer[..more].to_vec();
            }
        }
    }
}

#[test]
fn an_answer_that_has_begun_ends_with_the_right_to_it() {
    let place = Place::new(with_series());
    fill(&place);
    place.grant("operator address ::1");
    place.grant("reader address 127.0.0.1 metric mem*");
    place.grant("reader address 127.0.0.1 metric cpu*");
    place.until_heeded();
    let (all, is_whole) = rest(begin(&place));
    assert!(is_whole, "{all} bytes");
    // More than that ends nothing, and of the other metrics nobody has been told.
    let slow = begin(&place);
    place.grant("reader address 127.0.0.1 metric disk*");
    place.until_heeded();
    assert!(rest(slow).1);
    // What is taken back does: he has no right to what he is told of, or it isn't known any more.
    let slow = begin(&place);
    place.revoke("reader address 127.0.0.1 metric cpu*");
    place.until_heeded();
    let (heard, is_whole) = rest(slow);
    assert!(heard < all && !is_whole, "{heard} of {all}");
    place.grant("reader address 127.0.0.1 series");
    place.until_heeded();
    let slow = begin(&place);
    place.revoke("reader address 127.0.0.1 series");
    place.until_heeded();
    let (heard, is_whole) = rest(slow);
    assert!(heard < all && !is_whole, "{heard} of {all}");
}

#[test]
fn a_question_that_takes_long_ends_with_the_right_to_it() {
    let place = Place::new(with_series());
    fill(&place);
    place.grant("operator address ::1");
    place.grant("reader address 127.0.0.1 metric cpu*");
    place.until_heeded();
    let told = std::thread::scope(|scope| {
        let query = "/api/v1/query_range?start=0&end=400&step=0.1&query=quantile_over_time(0.5,cpu.value[60s])";
        let query = query.replace("cpu.value", "{__name__=\"cpu.value\"}");
        let asking = scope.spawn({
            let place = &place;
            move || ask(place, "GET", &query, "")
        });
        block_on(Env::real().sleep(Duration::from_millis(300)));
        place.revoke("reader address 127.0.0.1 metric cpu*");
        asking.join().unwrap()
    });
    assert_eq!(told.0, 401, "{}", &told.1[..told.1.len().min(300)]);
}

/// The rows as they are read when there are no series at all.
#[test]
fn a_grant_of_metrics_lets_nobody_in_elsewhere() {
    let config = ServerConfig { http: Some(loopback()), ..ServerConfig::default() };
    let place = Place::new(config);
    place.grant("operator address ::1");
    place.grant("writer address 127.0.0.1 metric *");
    place.until_heeded();
    let http = place.server.http_address().unwrap();
    for path in ["/metrics", "/status", "/api/overview", "/api/range", "/api/series?q=c"] {
        assert_eq!(ask_at(http, "GET", path, HOST, "").0, 401, "{path}");
    }
    assert_eq!(code(get(&place.user(0), "k")), DENIED);
}
