//! Export to OpenTelemetry: what a collector is sent by a server that runs, in the form that the
//! protocol wants.
//!
//! The collector here takes whatever is posted to it and keeps it; the test waits until it has seen
//! a log record and a trace with its parts.
#![cfg(feature = "otel")]

use plinth::Database;
use plinth_env::{Env, Stream, block_on};
use serde_json::Value;
use std::future::poll_fn;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::task::ready;

type Posted = Arc<Mutex<Vec<(String, Value)>>>;

/// One request: its path and its document.
async fn take(mut stream: Stream) -> Option<(String, Value)> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
            if body.len() >= length.parse().ok()? {
                let path = head.split(' ').nth(1)?.to_owned();
                let document = serde_json::from_str(body).ok()?;
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                let mut sent = 0;
                poll_fn(|context| {
                    while sent < answer.len() {
                        match ready!(stream.poll_send(context, &answer[sent..])) {
                            Ok(more @ 1..) => sent += more,
                            _ => break,
                        }
                    }
                    stream.poll_finish(context).map(drop)
                })
                .await;
                return Some((path, document));
            }
        }
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
            Ok(more @ 1..) => bytes.extend_from_slice(&buffer[..more]),
            _ => return None,
        }
    }
}

/// A collector: its address, and what it was sent.
fn collect(env: &Env) -> (SocketAddr, Posted) {
    let listener =
        block_on(env.sockets().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))).unwrap();
    let (address, posted) = (listener.local_address(), Posted::default());
    let kept = posted.clone();
    drop(env.spawn_network("collector", async move {
        loop {
            if let Ok(stream) = listener.accept().await
                && let Some(post) = take(stream).await
            {
                kept.lock().unwrap().push(post);
            }
        }
    }));
    (address, posted)
}

/// All records of a kind that were sent.
fn records(posted: &Posted, path: &str, pointer: &str) -> Vec<Value> {
    let posted = posted.lock().unwrap();
    let of_kind = posted.iter().filter(|(to, _)| to == path);
    of_kind
        .filter_map(|(_, document)| document.pointer(pointer)?.as_array().cloned())
        .flatten()
        .collect()
}

#[test]
fn a_collector_is_sent_events_and_traces() {
    let env = Env::real();
    let (address, posted) = collect(&env);
    let place = block_on(env.files().temporary_dir("plinth-otel")).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_plinth"))
        .args(["server", "--listen", "127.0.0.1:0", "--dir"])
        .arg(place.path().join("data"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .env("OTEL_SERVICE_NAME", "shop")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let file = PathBuf::from(ready.trim_end().splitn(3, ' ').nth(2).unwrap());
    let db = Database::connect(&file).unwrap();
    for number in 0..20_u32 {
        db.transact_blocking(|tr| {
            tr.set(number.to_be_bytes(), "v");
            Ok(())
        })
        .unwrap();
    }
    // What waits is sent at the end, too.
    let id = server.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let logs = records(&posted, "/v1/logs", "/resourceLogs/0/scopeLogs/0/logRecords");
    let said: Vec<_> =
        logs.iter().filter_map(|log| log.pointer("/body/stringValue")?.as_str()).collect();
    assert!(said.contains(&"database opened") && said.contains(&"database closed"), "{said:?}");
    let service = "/resourceLogs/0/resource/attributes/0/value/stringValue";
    assert_eq!(
        posted
            .lock()
            .unwrap()
            .iter()
            .find_map(|(_, sent)| sent.pointer(service)?.as_str().map(ToOwned::to_owned))
            .as_deref(),
        Some("shop")
    );

    let spans = records(&posted, "/v1/traces", "/resourceSpans/0/scopeSpans/0/spans");
    let named = |name: &'static str| spans.iter().filter(move |span| span["name"] == name);
    assert!(named("commit_batch").count() >= 20, "{} of 20 batches", named("commit_batch").count());
    for batch in named("commit_batch") {
        let parts: Vec<_> =
            spans.iter().filter(|span| span["parentSpanId"] == batch["spanId"]).collect();
        let names: Vec<_> = parts.iter().filter_map(|part| part["name"].as_str()).collect();
        assert_eq!(names, ["log_sync", "apply"], "{batch}");
        assert!(parts.iter().all(|part| part["traceId"] == batch["traceId"]), "{parts:?}");
        let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        for part in parts {
            assert!(
                time(batch, "startTimeUnixNano") <= time(part, "startTimeUnixNano"),
                "{part} in {batch}"
            );
            assert!(
                time(part, "endTimeUnixNano") <= time(batch, "endTimeUnixNano"),
                "{part} in {batch}"
            );
        }
    }
}

#[test]
fn a_collector_that_makes_no_sense_is_refused_and_one_that_is_away_disturbs_nobody() {
    let run = |endpoint: &str| {
        Command::new(env!("CARGO_BIN_EXE_plinth"))
            .arg("version")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            .output()
            .unwrap()
    };
    let refused = run("https://collector");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && told.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{told}"
    );
    assert!(run("http://127.0.0.1:1").status.success());
}
