//! Rights to the series of some metrics, by the doors through which points come that
//! `metrics.rs` doesn't try, by who may what changes while they come, and by turns; and what the
//! server does beside that is about all metrics.

use super::common::peer::{Peer, ask_at};
use super::common::*;
use super::metrics::{ask, ask_bytes, at, block, field};
use super::tokens::Issuer;
use super::{HOST, Place, wait_until, with_series};
use plinth_env::{Env, block_on};
use plinth_server::{RulesConfig, SeriesConfig, ServerConfig};

/// The metrics that there are, for whoever may read all of them.
fn names(place: &Place) -> String {
    ask(place, "GET", "/api/v1/label/__name__/values", "").1
}

/// A place whose user may read all series, and write these.
fn writing(series: SeriesConfig, metrics: &str) -> Place {
    let place = Place::new(ServerConfig { series, ..with_series() });
    place.grant("operator address ::1");
    place.grant("reader address 127.0.0.1 series");
    place.grant(&format!("writer address 127.0.0.1 metric {metrics}"));
    place.until_heeded();
    place
}

#[test]
fn doors_that_answer_nothing_take_what_is_covered() {
    let series = with_series().series;
    let place = writing(SeriesConfig { graphite: series.http, udp: series.http, ..series }, "cpu*");
    let addresses = place.server.series_addresses();
    let mut graphite = Peer::to(addresses.graphite.unwrap());
    graphite.send("mem.g 1 1\ncpu.g 1 1\nmem.g 1 2\ncpu.h 1 2\n");
    wait_until(|| names(&place).contains("cpu.h"));
    let mut datagrams = Env::real().sockets().datagrams(loopback()).unwrap();
    let datagram = b"+mem.d host=a\n:1\n:1\n+cpu.d host=a\n:1\n:1\n";
    for _ in 0..2 {
        block_on(datagrams.send(addresses.udp.unwrap(), datagram)).unwrap();
    }
    wait_until(|| names(&place).contains("cpu.d"));
    // What was known of the names before holds no longer than the right.
    place.grant("writer address 127.0.0.1 metric mem*");
    place.until_heeded();
    place.revoke("writer address 127.0.0.1 metric cpu*");
    place.until_heeded();
    let before = count(&place, "cpu.d");
    block_on(
        datagrams.send(addresses.udp.unwrap(), b"+cpu.d host=a\n:2\n:2\n+mem.e host=a\n:1\n:1\n"),
    )
    .unwrap();
    wait_until(|| names(&place).contains("mem.e"));
    graphite.send("cpu.g 1 3\nmem.h 1 1\n");
    wait_until(|| names(&place).contains("mem.h"));
    assert_eq!((count(&place, "cpu.d"), count(&place, "cpu.g")), (before, 1));
    assert_eq!(
        names(&place),
        r#"{"data":["cpu.d","cpu.g","cpu.h","mem.e","mem.h"],"status":"success"}"#
    );
}

/// How many points there are of a metric.
fn count(place: &Place, metric: &str) -> usize {
    let query =
        format!(r#"{{"aggregate":{{"{metric}":"count"}},"range":{{"from":0,"to":100000000000}}}}"#);
    let told = ask(place, "POST", "/api/query", &query).1;
    told.lines().last().and_then(|line| line.trim_start_matches([':', '+']).parse().ok()).unwrap()
}

/// A message of remote write, version 2: a sample and an exemplar of each metric, and what it is.
fn second(metrics: [&str; 2]) -> Vec<u8> {
    let symbols = ["", "__name__", metrics[0], metrics[1], "trace", "t", "what it is"];
    let symbols = symbols.iter().flat_map(|text| field(4, text.as_bytes()));
    let value = [&[1 << 3 | 1][..], &1.0_f64.to_le_bytes()].concat();
    let exemplar_value = [&[2 << 3 | 1][..], &1.0_f64.to_le_bytes()].concat();
    let series = [2, 3].into_iter().flat_map(|metric| {
        let sample = field(2, &[&value[..], &[2 << 3, 7]].concat());
        let exemplar = [field(1, &[4, 5]), exemplar_value.clone(), vec![3 << 3, 7]].concat();
        let metadata = field(5, &[1 << 3, 2, 3 << 3, 6]);
        field(5, &[field(1, &[1, metric]), sample, field(4, &exemplar), metadata].concat())
    });
    block(&symbols.chain(series).collect::<Vec<_>>())
}

#[test]
fn what_comes_with_points_is_judged_with_them() {
    let place = writing(with_series().series, "cpu*");
    let headers = "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
                   Content-Encoding: snappy\r\n";
    let told = ask_bytes(&place, "/api/v1/write", headers, &second(["cpu_e", "mem_e"]));
    assert!(told.starts_with("HTTP/1.1 403 ") && told.contains("\"mem_e\""), "{told}");
    for written in ["samples-written: 1\r\n", "exemplars-written: 1\r\n"] {
        assert!(told.contains(written), "{told}");
    }
    let metadata = ask(&place, "GET", "/api/v1/metadata", "").1;
    assert!(metadata.contains("cpu_e") && !metadata.contains("mem_e"), "{metadata}");
    let exemplars = "/api/v1/query_exemplars?start=0&end=9&query={__name__=~\"....e\"}";
    let exemplars = ask(&place, "GET", exemplars, "").1;
    assert!(exemplars.contains("cpu_e") && !exemplars.contains("mem_e"), "{exemplars}");
    // OpenTelemetry's own encoding: a gauge of each metric.
    let gauge = |metric: &str| {
        let time = [&[3 << 3 | 1][..], &7_u64.to_le_bytes()].concat();
        let point = [time, vec![4 << 3 | 1], 1.0_f64.to_le_bytes().to_vec()].concat();
        field(2, &[field(1, metric.as_bytes()), field(5, &field(1, &point))].concat())
    };
    let otlp = |metrics: &[&str]| {
        let metrics: Vec<u8> = metrics.iter().flat_map(|metric| gauge(metric)).collect();
        let body = field(1, &field(2, &metrics));
        ask_bytes(&place, "/v1/metrics", "Content-Type: application/x-protobuf\r\n", &body)
    };
    let told = otlp(&["cpu_p", "mem_p"]);
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("6000"), "{told}");
    assert!(otlp(&["mem_p"]).starts_with("HTTP/1.1 403 "));
    assert_eq!(names(&place), r#"{"data":["cpu_e","cpu_p"],"status":"success"}"#);
}

/// A histogram is several metrics, and its own name is none of them.
#[test]
fn a_histogram_needs_the_beginning_of_its_names() {
    let text = "# HELP took How long it took\n# TYPE took histogram\n\
                took_bucket{le=\"1\"} 1 1\ntook_bucket{le=\"+Inf\"} 1 1\ntook_sum 1 1\ntook_count 1 1\n";
    let import = |place: &Place| ask(place, "POST", "/api/v1/import/prometheus", text);
    let place = writing(with_series().series, "took");
    let told = import(&place);
    assert!(told.0 == 403 && !told.1.contains("partial"), "{}", told.1);
    assert_eq!(names(&place), r#"{"data":[],"status":"success"}"#);
    place.grant("writer address 127.0.0.1 metric took_*");
    place.until_heeded();
    assert_eq!(import(&place).0, 204);
    assert!(names(&place).contains(r#"["took_bucket","took_count","took_sum"]"#));
}

/// A body that has come in part.
fn half_sent(place: &Place, body: &str, all: usize) -> Peer {
    let mut peer = Peer::to(at(place));
    peer.send(&format!(
        "POST /write HTTP/1.1\r\n{HOST}Connection: close\r\nContent-Length: {all}\r\n\r\n{body}"
    ));
    peer
}

/// It was refused whole, with a status after which senders don't send again.
#[test]
fn points_that_come_while_a_right_goes_are_judged_by_what_is_left() {
    let place = writing(with_series().series, "cpu*");
    place.grant("writer address 127.0.0.1 metric mem*");
    place.until_heeded();
    let (first, rest) = ("mem value=1 1\ncpu val", "ue=1 1\n");
    let mut peers = [0; 2].map(|_| half_sent(&place, first, first.len() + rest.len()));
    // As soon as it has been let in.
    block_on(Env::real().sleep(std::time::Duration::from_millis(100)));
    place.revoke("writer address 127.0.0.1 metric mem*");
    place.until_heeded();
    peers[0].send(rest);
    let told = peers[0].until("}");
    assert!(told.starts_with("HTTP/1.1 403 "), "{told}");
    assert!(told.contains("partial write: 1 ") && told.contains("mem"), "{told}");
    assert_eq!(names(&place), r#"{"data":["cpu.value"],"status":"success"}"#);
    place.revoke("writer address 127.0.0.1 metric cpu*");
    place.until_heeded();
    peers[1].send(rest);
    let told = peers[1].until("\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 401 "), "{told}");
    assert_eq!(count(&place, "cpu.value"), 1);
}

/// Sessions, and what they know of names, are handed from one sender to the next.
#[test]
fn senders_and_readers_by_turns_have_no_more_than_their_own() {
    let issuer = Issuer::new();
    let place = Place::new(ServerConfig { rights: issuer.config().rights, ..with_series() });
    place.grant("operator address ::1");
    for metric in ["cpu", "mem"] {
        place.grant(&format!("writer token sub={metric} metric {metric}*"));
    }
    place.until_heeded();
    let tokens = ["cpu", "mem"].map(|metric| issuer.token_of(metric));
    let asked = |who: usize, method: &str, path: &str, body: &str| {
        let headers = format!("{HOST}Authorization: Bearer {}\r\n", tokens[who]);
        ask_at(at(&place), method, path, &headers, body)
    };
    let both = "cpu value=1\nmem value=1\n";
    for round in 0..3 {
        // What one of them has sent is nothing of which the next one hears.
        for (who, own) in [(0, "cpu_own"), (1, "mem_own")] {
            let body = format!("{own},round={round} value=1\n");
            assert_eq!(asked(who, "POST", "/write", &body), (204, String::new()), "{round}");
            let put = format!(
                r#"[{{"metric":"{own}","timestamp":1,"value":1,"tags":{{"round":"{round}"}}}}]"#
            );
            let put = asked(who, "POST", "/api/put", &put);
            assert_eq!(put, (204, String::new()), "{round}");
        }
        for (who, other) in [(0, "mem"), (1, "cpu")] {
            for body in [both.to_owned(), both.replace(" value", ".x value")] {
                let (status, told) = asked(who, "POST", "/write", &body);
                assert_eq!(status, 403, "{round}: {told}");
                let denied = told.matches("no grant covers").count();
                assert!(denied == 1 + 1 && told.contains(other), "{round}: {told}");
                assert!(!told.contains("own"), "{round}: {told}");
            }
            let put = r#"[{"metric":"cpu","timestamp":1,"value":1,"tags":{"a":"b"}},{"metric":"mem","timestamp":1,"value":1,"tags":{"a":"b"}}]"#;
            assert_eq!(asked(who, "POST", "/api/put", put).0, 403, "{round}");
        }
        for (who, own, other) in [(0, "cpu", "mem"), (1, "mem", "cpu")] {
            for path in [
                "/api/v1/label/__name__/values",
                "/api/v1/series?match[]=%7b__name__=~%22.%2b%22%7d",
            ] {
                let told = asked(who, "GET", path, "").1;
                assert!(told.contains(own) && !told.contains(other), "{round}: {told}");
            }
        }
    }
    // Who shows nothing is nobody.
    assert_eq!(ask(&place, "POST", "/write", both).0, 401);
    assert_eq!(ask(&place, "GET", "/api/v1/labels", "").0, 401);
}

/// Rules and alerts name metrics, and who is scraped is told of all of them.
#[test]
fn what_the_server_does_beside_is_told_to_whoever_may_read_all() {
    let files = block_on(Env::real().files().temporary_dir("metrics")).unwrap();
    let write = |name: &str, text: &str| {
        let path = files.path().join(name);
        block_on(Env::real().files().replace(&path, text.as_bytes())).unwrap();
        path
    };
    let rules = "groups:\n- name: memory\n  interval: 1s\n  rules:\n  - alert: Full\n    expr: vector(1)\n\
                 \x20\x20- record: mem_derived\n    expr: vector(2)\n";
    let scrape =
        "scrape_configs:\n- job_name: hidden\n  static_configs:\n  - targets: ['127.0.0.1:1']\n";
    let rules = RulesConfig { files: vec![write("rules.yml", rules)], ..RulesConfig::default() };
    let scrape = Some(write("scrape.yml", scrape));
    let place = Place::new(ServerConfig {
        series: SeriesConfig { rules, scrape, ..with_series().series },
        ..with_series()
    });
    let without = Place::new(with_series());
    let paths = ["rules", "alerts", "alertmanagers", "targets", "targets/metadata"];
    let told = |place, path: &str| ask(place, "GET", &format!("/api/v1/{path}"), "");
    for (path, what) in [("rules", "mem_derived"), ("alerts", "Full"), ("targets", "hidden")] {
        wait_until(|| told(&place, path).1.contains(what));
    }
    for place in [&place, &without] {
        place.grant("operator address ::1");
        place.grant("reader address 127.0.0.1 metric cpu*");
        place.until_heeded();
    }
    for path in paths {
        assert_eq!(told(&place, path), told(&without, path), "{path}");
    }
    // A series that a rule makes is one of its own.
    place.grant("reader address 127.0.0.1 metric mem_derived");
    place.until_heeded();
    assert_eq!(names(&place), r#"{"data":["mem_derived"],"status":"success"}"#);
}
