//! Scraping: what targets say is there with their labels, ends when they don't say it any more, and
//! how it went is told. Targets are listeners of the test's own, which answer whatever it says; all
//! that is waited for is a state, which comes however slow the machine is.

mod common;

use common::loopback;
use common::taking::Taking;
use flate2::Compression;
use flate2::write::GzEncoder;
use plinth_env::{Env, TemporaryDir, block_on};
use plinth_server::{RulesConfig, SeriesConfig};
use std::future::poll_fn;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TEXT: &str = "text/plain; version=0.0.4";
const MESSAGES: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// What a target answers: its status, or 0 for nothing at all, its content type, how it is encoded,
/// and its body.
type Answer = (u16, &'static str, &'static str, Vec<u8>);

/// Somebody who is scraped: what it answers, and the head of the last request.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    answer: Arc<Mutex<Answer>>,
    asked: Arc<Mutex<String>>,
}

impl Target {
    fn start(text: &str) -> Self {
        let env = Env::real();
        let listener = block_on(env.sockets().listen(loopback())).unwrap();
        let target = Self {
            address: listener.local_address(),
            answer: Arc::new(Mutex::new((200, TEXT, "identity", text.into()))),
            asked: Arc::default(),
        };
        let theirs = target.clone();
        drop(env.spawn("a target", async move {
            loop {
                let mut stream = listener.accept().await.unwrap();
                let (mut head, mut buffer) = (String::new(), [0; 4096]);
                while !head.ends_with("\r\n\r\n") {
                    match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
                        Ok(len @ 1..) => head += &String::from_utf8_lossy(&buffer[..len]),
                        _ => break,
                    }
                }
                *theirs.asked.lock().unwrap() = head;
                let (status, kind, encoding, body) = theirs.answer.lock().unwrap().clone();
                if status == 0 {
                    // Until whoever asks has gone.
                    let _ = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await;
                    continue;
                }
                let len = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Encoding: {encoding}\r\nContent-Length: {len}\r\n\r\n"
                );
                let answer = [head.into_bytes(), body].concat();
                let mut rest = &answer[..];
                while !rest.is_empty() {
                    match poll_fn(|context| stream.poll_send(context, rest)).await {
                        Ok(sent) => rest = &rest[sent..],
                        Err(_) => break,
                    }
                }
                let _ = poll_fn(|context| stream.poll_flush(context)).await;
            }
        }));
        target
    }

    fn answers(&self, status: u16, kind: &'static str, body: impl Into<Vec<u8>>) {
        *self.answer.lock().unwrap() = (status, kind, "identity", body.into());
    }

    /// One that answers this, which is encoded so.
    fn encoded(encoding: &'static str, body: Vec<u8>) -> Self {
        let target = Self::start("");
        *target.answer.lock().unwrap() = (200, TEXT, encoding, body);
        target
    }
}

struct Place {
    dir: TemporaryDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: block_on(Env::real().files().temporary_dir("scrape")).unwrap() }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        block_on(Env::real().files().replace(&path, text.as_bytes())).unwrap();
        path
    }
}

fn serve(file: PathBuf) -> Taking {
    Taking::with(SeriesConfig { scrape: Some(file), ..SeriesConfig::default() })
}

/// The series of an expression and their values, as text.
fn values(server: &Taking, expression: &str) -> String {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let heard = server.get(&format!("/api/v1/query?query={encoded}"));
    let json: serde_json::Value = serde_json::from_slice(&heard.body).unwrap();
    let series = json["data"]["result"].as_array().cloned().unwrap_or_default();
    let one = |series: &serde_json::Value| {
        let labels = series["metric"].as_object().unwrap().iter();
        let labels = labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap()));
        let labels: Vec<String> = labels.filter(|label| !label.starts_with("instance=")).collect();
        format!("{} {}", labels.join(" "), series["value"][1].as_str().unwrap())
    };
    let mut all: Vec<String> = series.iter().map(one).collect();
    all.sort();
    all.join("; ")
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Waits until this is said of targets; all that is.
fn until_told(server: &Taking, words: &str) -> String {
    let mut told = String::new();
    for _ in 0..1200 {
        told = server.get("/api/v1/targets").text();
        if told.contains(words) {
            return told;
        }
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    panic!("{words} is not told: {told}");
}

/// Waits until an expression has these values.
fn until(server: &Taking, expression: &str, expected: &str) {
    let mut found = String::new();
    for _ in 0..1200 {
        found = values(server, expression);
        if found == expected {
            return;
        }
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    panic!("{expression} is {found}, and not {expected}");
}

#[test]
fn what_targets_say_is_there_with_their_labels() {
    let place = Place::new();
    let target = Target::start(
        "# TYPE m counter\n# HELP m of m\nm{job=\"theirs\",dc=\"x y\"} 1.5\nn 7\ndropped 1\n",
    );
    let address = target.address;
    place.write("secret", "sesame\n");
    place.write(
        "targets.json",
        &format!(r#"[{{"targets": ["{address}"], "labels": {{"dc": "b", "of": "file"}}}}]"#),
    );
    let file = place.write(
        "scrape.yml",
        &format!(
            r#"
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1m}}
scrape_configs:
- job_name: one
  metrics_path: /of/one
  params: {{a: ["b c"]}}
  basic_auth: {{username: ali, password_file: secret}}
  static_configs:
  - targets: ["{address}", "nowhere:1"]
    labels: {{dc: a, __meta: z}}
  relabel_configs:
  - {{source_labels: [__address__], regex: "nowhere.*", action: drop}}
  - {{source_labels: [__meta], target_label: zone}}
  metric_relabel_configs:
  - {{source_labels: [__name__], regex: dropped, action: drop}}
- job_name: two
  honor_labels: true
  file_sd_configs: [{{files: ["targ*.json", none.yml]}}]
"#
        ),
    );
    let server = serve(file);
    until(&server, "up", "__name__=up dc=a job=one zone=z 1; __name__=up dc=b job=two of=file 1");
    let m = "__name__=m dc=a exported_dc=x y exported_job=theirs job=one zone=z 1.5; __name__=m dc=x y job=theirs of=file 1.5";
    until(&server, "m", m);
    until(&server, "count(dropped) by (job)", "job=two 1");
    until(
        &server,
        "scrape_samples_scraped",
        "__name__=scrape_samples_scraped dc=a job=one zone=z 3; __name__=scrape_samples_scraped dc=b job=two of=file 3",
    );
    until(
        &server,
        "scrape_samples_post_metric_relabeling{job='one'}",
        "__name__=scrape_samples_post_metric_relabeling dc=a job=one zone=z 2",
    );
    asked_as_said(&target);
    assert!(server.get("/api/v1/metadata?metric=m").text().contains(r#""type":"counter""#));
    targets_are_told(&server, address);
}

/// What the request says, once the first job's was the last one.
fn asked_as_said(target: &Target) {
    let of_one = || target.asked.lock().unwrap().clone();
    let mut asked = of_one();
    while !asked.starts_with("GET /of/one?a=b%20c HTTP/1.1\r\n") {
        block_on(Env::real().sleep(Duration::from_millis(5)));
        asked = of_one();
    }
    assert!(asked.to_ascii_lowercase().contains("authorization: basic ywxpon"), "{asked}");
    assert!(asked.contains("version=0.0.4"), "{asked}");
    assert!(asked.contains("accept-encoding: gzip\r\n"), "{asked}");
    assert!(asked.contains("x-prometheus-scrape-timeout-seconds: 1\r\n"), "{asked}");
}

fn targets_are_told(server: &Taking, address: SocketAddr) {
    let told = server.get("/api/v1/targets").text();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let active = told["data"]["activeTargets"].as_array().unwrap();
    assert_eq!((active.len(), &told["data"]["droppedTargetCounts"]["one"]), (2, &1.into()));
    let one = active.iter().find(|it| it["scrapePool"] == "one").unwrap();
    assert_eq!(one["scrapeUrl"], format!("http://{address}/of/one?a=b%20c"));
    assert!(one["health"] == "up" || one["lastError"] != "", "{one}");
    assert_eq!(one["labels"]["instance"], address.to_string());
    assert_eq!(one["discoveredLabels"]["__meta"], "z");
    assert_eq!(one["scrapeInterval"], "1s");
}

/// What is shown of the files of the test below.
fn shown(rules: &str) -> String {
    format!(
        r#"global:
  scrape_interval: 15s
  external_labels:
    region: eu
alerting:
  alertmanagers:
  - scheme: http
    path_prefix: /am
    api_version: v2
    static_configs:
    - targets:
      - 127.0.0.1:9
rule_files:
- {rules}
scrape_configs:
- job_name: first
  basic_auth:
    username: ali
    password: <secret>
  static_configs:
  - targets:
    - 127.0.0.1:1
    labels:
      dc: "a: b"
- job_name: other
  authorization:
    credentials: <secret>
"#
    )
}

/// It was said to be empty, so nobody could see from outside what a server scrapes.
#[test]
fn the_configuration_in_force_is_told_without_its_secrets() {
    let place = Place::new();
    let config = |job: &str| {
        format!(
            r#"
global: {{scrape_interval: 15s, external_labels: {{not: "of scraping"}}}}
remote_write: [{{url: "http://elsewhere"}}]
scrape_configs:
- job_name: {job}
  basic_auth: {{username: ali, password: sesame}}
  static_configs: [{{targets: ["127.0.0.1:1"], labels: {{dc: "a: b"}}}}]
- job_name: other
  authorization: {{credentials: sesame}}
"#
        )
    };
    let file = place.write("scrape.yml", &config("first"));
    let rules = place.write("rules.yml", "groups:\n- name: g\n  rules: []\n");
    let rules = RulesConfig {
        files: vec![rules.clone()],
        alertmanagers: vec!["http://127.0.0.1:9/am".to_owned()],
        external_labels: [("region".to_owned(), "eu".to_owned())].into(),
        ..RulesConfig::default()
    };
    let named = rules.files[0].display().to_string();
    let server =
        Taking::with(SeriesConfig { scrape: Some(file), rules, ..SeriesConfig::default() });
    let told = || {
        let told: serde_json::Value =
            serde_json::from_str(&server.get("/api/v1/status/config").text()).unwrap();
        told["data"]["yaml"].as_str().unwrap().to_owned()
    };
    let expected = shown(&named);
    assert_eq!(told(), expected);
    // A changed file is in force once it is read again.
    place.write("scrape.yml", &config("second"));
    let second = expected.replace("first", "second");
    for _ in 0..1200 {
        if told() == second {
            break;
        }
        block_on(Env::real().sleep(Duration::from_millis(50)));
    }
    assert_eq!(told(), second);
    let without = Taking::with(SeriesConfig::default());
    let nothing = r#"{"data":{"yaml":""},"status":"success"}"#;
    assert_eq!(without.get("/api/v1/status/config").text(), nothing);
}

#[test]
fn what_is_no_longer_said_ends() {
    let place = Place::new();
    let target = Target::start("m 1\nn 2\nold 3 1000\n");
    let config = |targets: &str| {
        format!(
            "scrape_configs:\n- {{job_name: j, scrape_interval: 1s, sample_limit: 3, static_configs: [{{targets: [{targets}]}}]}}\n"
        )
    };
    let file = place.write("scrape.yml", &config(&format!("'{}'", target.address)));
    let server = serve(file);
    until(&server, "m", "__name__=m job=j 1");
    target.answers(200, "application/openmetrics-text; version=1.0.0", "n 4\n# EOF\n");
    until(&server, "m", "");
    until(&server, "n", "__name__=n job=j 4");
    // What can't be read counts for nothing, and so does one that is cut off.
    for (status, kind, text, why) in [
        (500, TEXT, "n 5", "HTTP status 500"),
        (200, TEXT, "n 5\n<html>\n", "line 2: the value is no number"),
        (200, "application/openmetrics-text", "n 5\n", "# EOF"),
        (200, TEXT, "a 1\nb 1\nc 1\nd 1\n", "4 samples, more than 3"),
    ] {
        target.answers(status, kind, text);
        until(&server, "up", "__name__=up job=j 0");
        until(&server, "n", "");
        let told = until_told(&server, why);
        assert!(told.contains(r#""health":"down""#), "{told}");
        target.answers(200, TEXT, "n 6\n");
        until(&server, "n", "__name__=n job=j 6");
    }
    assert_eq!(values(&server, "d"), "");
    // A target that is no longer named ends, with what was said of it.
    place.write("scrape.yml", &config(""));
    until(&server, "n", "");
    until(&server, "up", "");
    assert!(server.get("/api/v1/targets").text().contains(r#""activeTargets":[]"#));
    block_on(server.server.stop());
}

/// Each job's target has more of something than the job allows, and says why it is down.
#[test]
fn what_is_too_much_is_refused_and_told() {
    let place = Place::new();
    let silent = Target::start("");
    silent.answers(0, TEXT, "");
    let long = "x".repeat(40);
    let jobs = [
        ("body_size_limit: 9B", Target::start("aa 1\nbb 2\n"), "9 bytes (body_size_limit)"),
        ("sample_limit: 2", Target::start("a 1\nb 1\nc 1\nd 1\n"), "4 samples, more than 2"),
        (
            "label_limit: 3",
            Target::start("a{b='c'} 1\n".replace('\'', "\"").as_str()),
            "label_limit",
        ),
        (
            "label_name_length_limit: 8",
            Target::start("a{bbbbccccd=\"x\"} 1\n"),
            "bbbbccccd is longer than 8 (label_name_length_limit)",
        ),
        (
            "label_value_length_limit: 30",
            Target::start(&format!("a{{b=\"{long}\"}} 1\n")),
            "label b has more than 30 bytes (label_value_length_limit)",
        ),
        ("target_limit: 1", Target::start("a 1\n"), "2 targets, and 1 are allowed"),
        ("scrape_timeout: 200ms", silent, "no answer within 200ms"),
        ("scrape_timeout: 2s", Target::encoded("br", b"a 1\n".to_vec()), "encoded as \\\"br\\\""),
        ("scrape_timeout: 2s", Target::encoded("gzip", b"a 1\n".to_vec()), "no gzip"),
        (
            "scrape_timeout: 2s",
            Target::encoded("gzip", gzip(&vec![b'\n'; 8 << 20])),
            "bytes for each",
        ),
        (
            "body_size_limit: 1KB",
            Target::encoded("gzip", gzip(&b"a 1\n".repeat(1000))),
            "answer has more than 1024 bytes",
        ),
    ];
    let mut config = "global: {scrape_interval: 2s}\nscrape_configs:\n".to_owned();
    for (number, (limit, target, _)) in jobs.iter().enumerate() {
        let more = if limit.starts_with("target") { ", 'nowhere:1'" } else { "" };
        let address = target.address;
        config += &format!(
            "- {{job_name: j{number}, {limit}, static_configs: [{{targets: ['{address}'{more}]}}]}}\n"
        );
    }
    let good = Target::encoded("gzip", gzip(&b"good 1\n".repeat(100)));
    config +=
        &format!("- {{job_name: good, static_configs: [{{targets: ['{}']}}]}}\n", good.address);
    let server = serve(place.write("scrape.yml", &config));
    until(&server, "count(up)", " 13");
    until(&server, "up == 1", "__name__=up job=good 1");
    until(&server, "good", "__name__=good job=good 1");
    let told = server.get("/api/v1/targets").text();
    for (limit, _, words) in &jobs {
        assert!(told.contains(words), "{limit}: {words}: {told}");
    }
    for (what, count) in [("scraped", 4), ("post_metric_relabeling", 4)] {
        let metric = format!("scrape_samples_{what}");
        let expected = format!("__name__={metric} job=j1 {count}");
        until(&server, &format!("{metric}{{job='j1'}}"), &expected);
    }
    assert_eq!(values(&server, "{__name__=~'[abcd]+'}"), "", "an answer that fails has no points");
    // Whatever was held of answers is given back.
    while !server.get("/api/stats").text().contains(r#""body_bytes":"0""#) {
        block_on(Env::real().sleep(Duration::from_millis(20)));
    }
    block_on(server.server.stop());
}

#[test]
fn labels_and_times_are_honoured_as_asked() {
    let place = Place::new();
    // Pushgateway says of each series that it is of no instance.
    let pushed = Target::start("pushed{instance=\"\",job=\"theirs\"} 1\n");
    let timed = Target::start("timed 1\nold 3 1000\n");
    let file = place.write(
        "scrape.yml",
        &format!(
            r#"
global: {{scrape_interval: 500ms}}
scrape_configs:
- {{job_name: push, honor_labels: true, static_configs: [{{targets: ["{}"]}}]}}
- {{job_name: time, honor_timestamps: false, static_configs: [{{targets: ["{}"]}}]}}
"#,
            pushed.address, timed.address
        ),
    );
    let server = serve(file);
    until(&server, "count by (instance, job) (pushed)", "job=theirs 1");
    until(&server, "old", "__name__=old job=time 3");
    until(&server, "scrape_series_added{job='time'}", "__name__=scrape_series_added job=time 0");
    // Series that come back are not new, others are.
    timed.answers(503, TEXT, "");
    until(&server, "old", "");
    timed.answers(200, TEXT, "timed 1\nother 4\n");
    until(&server, "other", "__name__=other job=time 4");
    until(&server, "max_over_time(scrape_series_added{job='time'}[1h])", "job=time 2");
    until(&server, "sum_over_time(scrape_series_added{job='time'}[1h])", "job=time 3");
    // A time that is far ahead is none of a sample that was just measured.
    let ahead = "pushed 2 9000000000000\n";
    pushed.answers(200, TEXT, ahead);
    until_told(&server, "ten minutes ahead");
    until(&server, "up{job='push'}", "__name__=up job=push 1");
    block_on(server.server.stop());
}

/// A field of a message, whose length is told by a byte.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

fn float(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// A histogram with two observations up to 1, which a trace left as an exemplar at a time, and one
/// up to 2: with classic buckets and native ones.
fn messages(seconds: u64) -> Vec<u8> {
    let label = |name: &str, value: &str| {
        field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let mut time = vec![8];
    let mut rest = seconds;
    while rest >= 0x80 {
        time.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    time.push(rest as u8);
    let exemplar = [label("trace_id", "0af7"), float(2, 0.75), field(3, &time)].concat();
    let classic = field(3, &[&[8, 2][..], &float(2, 1.0), &field(3, &exemplar)].concat());
    // A schema of 0, two buckets from the first on, and counts of 2 and 1 as differences.
    let native = [field(12, &[8, 0, 16, 2]), field(13, &[4, 1])].concat();
    let said = [vec![8, 3], float(2, 3.5), classic, native].concat();
    let metric = [label("path", "/"), field(7, &said)].concat();
    let family = [field(1, b"took"), field(2, b"of took"), vec![3 << 3, 4], field(4, &metric)];
    // A length stands before it, and no number of a field.
    field(0, &family.concat())[1..].to_vec()
}

/// The exemplars of an expression.
fn exemplars(server: &Taking, expression: &str) -> String {
    let asked = format!("/api/v1/query_exemplars?query={expression}&start=0&end=9000000000");
    server.get(&asked).text()
}

#[test]
fn native_histograms_and_exemplars_are_taken() {
    let place = Place::new();
    let now = Env::real().wall_clock().as_secs();
    let target = Target::start("");
    target.answers(200, MESSAGES, messages(now));
    let text = Target::start("");
    let open = format!(
        "seen_total 3 # {{trace_id=\"1bc8\"}} 1.5 {now}\nleft_total 1 # {{a=b}} 1\n# EOF\n"
    );
    text.answers(200, "application/openmetrics-text; version=1.0.0", open.as_str());
    let file = place.write(
        "scrape.yml",
        &format!(
            r#"
global: {{scrape_interval: 500ms, scrape_protocols: [PrometheusProto, PrometheusText0.0.4]}}
scrape_configs:
- {{job_name: native, scrape_native_histograms: true, static_configs: [{{targets: ["{0}"]}}]}}
- job_name: both
  always_scrape_classic_histograms: true
  static_configs: [{{targets: ["{0}"]}}]
  metric_relabel_configs: [{{target_label: by, replacement: rule}}]
- {{job_name: classic, scrape_native_histograms: false, static_configs: [{{targets: ["{0}"]}}]}}
- {{job_name: text, static_configs: [{{targets: ["{1}"]}}]}}
"#,
            target.address, text.address
        ),
    );
    let server = serve(file);
    let count = "histogram_count(took)";
    until(&server, count, "by=rule job=both path=/ 3; job=native path=/ 3");
    until(
        &server,
        "histogram_quantile(0.5, took{job='native'})",
        "job=native path=/ 0.8408964152537145",
    );
    classic_series_are_taken_as_asked(&server);
    // Each target is asked in its own time.
    until(&server, "sum by (job) (seen_total)", "job=text 3");
    let asked = text.asked.lock().unwrap().clone();
    let first = "accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited;q=0.8,application/openmetrics-text;";
    assert!(asked.contains(first), "{asked}");
    assert!(server.get("/api/v1/query?query=took").text().contains(r#""count":"3","sum":"3.5""#));
    assert!(server.get("/api/v1/metadata?metric=took").text().contains(r#""type":"histogram""#));
    exemplars_are_there_once(&server, now);
    // What is no longer said ends, and so does all of a target whose answer makes no sense.
    target.answers(200, MESSAGES, "");
    until(&server, count, "");
    target.answers(200, MESSAGES, messages(now));
    until(&server, count, "by=rule job=both path=/ 3; job=native path=/ 3");
    target.answers(200, MESSAGES, &messages(now)[..40]);
    until(&server, count, "");
    until_told(&server, "metric 0 (): a family of metrics is cut off");
    block_on(server.server.stop());
}

fn classic_series_are_taken_as_asked(server: &Taking) {
    until(
        server,
        "took_bucket",
        "__name__=took_bucket by=rule job=both le=+Inf path=/ 3; \
         __name__=took_bucket by=rule job=both le=1.0 path=/ 2; \
         __name__=took_bucket job=classic le=+Inf path=/ 3; \
         __name__=took_bucket job=classic le=1.0 path=/ 2",
    );
    until(
        server,
        "took_count",
        "__name__=took_count by=rule job=both path=/ 3; __name__=took_count job=classic path=/ 3",
    );
    until(
        server,
        "scrape_samples_scraped{job='native'}",
        "__name__=scrape_samples_scraped job=native 1",
    );
}

/// However often targets tell them.
fn exemplars_are_there_once(server: &Taking, now: u64) {
    let often = |job: &str| format!("count_over_time(up{{job='{job}'}}[1h]) > bool 2");
    until(server, &often("native"), "job=native 1");
    until(server, &often("text"), "job=text 1");
    let exemplar = |trace: &str, value: &str| {
        format!(
            r#""exemplars":[{{"labels":{{"trace_id":"{trace}"}},"timestamp":{now},"value":"{value}"}}]"#
        )
    };
    let told = exemplars(server, "took");
    assert_eq!(told.matches(&exemplar("0af7", "0.75")).count(), 2, "{told}");
    let told = exemplars(server, "took_bucket");
    assert_eq!(told.matches(&exemplar("0af7", "0.75")).count(), 2, "{told}");
    assert!(told.contains(r#""by":"rule""#) && told.contains(r#""le":"1.0""#), "{told}");
    let told = exemplars(server, "seen_total");
    assert!(told.contains(&exemplar("1bc8", "1.5")), "{told}");
    until(server, "left_total", "__name__=left_total job=text 1");
    assert!(!exemplars(server, "left_total").contains("labels"));
}

/// Of which a server would have to be told first: nobody knows what it would have meant.
#[test]
fn a_file_that_makes_no_sense_is_told_by_its_lines() {
    let place = Place::new();
    let file = place.write(
        "scrape.yml",
        r#"
global: {scrape_interval: 1s, scrape_timeout: 2s, nothing: 1}
scrape_configs:
- job_name: a
  scrap: 1
  scrape_protocols: [PrometheusText0.0.4]
  scrape_native_histograms: maybe
  static_configs: [{target: [x]}, {targets: ["http://x/"], labels: {"a b": c}}]
  file_sd_configs:
  - files: [targets/*/a*.json]
    refresh: 5m
  relabel_configs:
  - {action: hash}
  - {action: hashmod, target_label: a}
  - {regex: "("}
  - {source_labels: [a], target_label: "a b"}
  tls_config: {insecure_skip_verify: true}
- job_name: a
  kubernetes_sd_configs: []
"#,
    );
    let why = block_on(plinth_server::check_scraping(&Env::real(), &file)).unwrap_err();
    let told = why.lines().map(|line| line.split_once("scrape.yml:").unwrap().1);
    let expected = [
        "2:51: field \"nothing\" is not known in global",
        "2:9: scrape_timeout is longer than scrape_interval",
        "5:3: field \"scrap\" is not known in a job",
        "6:21: scrape_protocols is known with PrometheusProto alone",
        "7:29: scrape_native_histograms is true or false, not \"maybe\"",
        "8:21: field \"target\" is not known in static_configs",
        "8:46: a target is HOST:PORT, not \"http://x/\"",
        "8:69: \"a b\" is no name of a label",
        "10:13: a file has one * at most",
        "11:5: field \"refresh\" is not known in file_sd_configs",
        "13:14: there is no action \"hash\"",
        "13:5: this action needs a target_label",
        "14:5: hashmod needs a modulus above 0",
        "15:13: regex: ",
        "15:5: this action needs a target_label",
        "16:5: \"a b\" is no name of a label",
        "17:16: field \"insecure_skip_verify\" is not known in tls_config",
        "19:3: field \"kubernetes_sd_configs\" is not known in a job",
        "18:3: there are two jobs \"a\"",
    ];
    let mut told: Vec<&str> = told.collect();
    told.retain(|line| !expected.iter().any(|words| line.starts_with(words)));
    assert!(told.is_empty(), "{told:#?}\n{why}");
    for words in expected {
        assert!(why.contains(words), "{words}\n{why}");
    }
}
