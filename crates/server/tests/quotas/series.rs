//! Quotas at the doors of time series: what is sent is written, what is answered is read.

use super::common::loopback;
use super::common::peer::{Peer, ask_at};
use super::counted::Place;
use plinth_client::TransactionOption;
use plinth_server::{SeriesConfig, ServerConfig};
use plinth_types::{Error, system};
use serde_json::Value;

const WHO: &str = "address 127.0.0.1";

fn place() -> Place {
    let series =
        SeriesConfig { http: Some(loopback()), resp: Some(loopback()), ..SeriesConfig::default() };
    Place::of(ServerConfig { series, ..ServerConfig::default() })
}

fn of_who(status: &Value, of: &str, what: &str) -> u64 {
    let budgets = status["budgets"].as_array().unwrap();
    let mine = budgets.iter().find(|budget| budget["whose"] == WHO);
    mine.and_then(|budget| budget[of][what].as_u64()).unwrap_or_default()
}

/// Whoever would wait for long is told so over HTTP; his questions are answered, and are paid for
/// apart.
#[test]
fn over_http_bodies_are_written_and_answers_are_read() {
    let place = place();
    let http = place.server.series_addresses().http.unwrap();
    let points = |from: u64| {
        let line = |n| format!("m,host=a v={n} {}\n", (from + n) * 1_000_000_000);
        (0..2_000).map(line).collect::<String>()
    };
    let write = |from| ask_at(http, "POST", "/write", "", &points(from)).0;
    let ask = || ask_at(http, "GET", "/api/v1/label/host/values", "", "");
    assert_eq!(write(1), 204);
    place.set("address 127.0.0.1 write=1kB/s read=1kB/s");
    assert_eq!(write(3_000), 204, "it has a second's worth to begin with");
    assert_eq!(write(6_000), 503);
    let (status, told) = ask_at(http, "POST", "/write", "", &points(9_000));
    assert_eq!(status, 503);
    assert!(told.contains("quota"), "{told}");
    let (status, told) = ask();
    assert!(status == 200 && told.contains(r#"["a"]"#), "{told}");
    place.wait_until(|status| {
        let body = points(3_000).len() as u64;
        of_who(status, "write", "bytes") == body
            && of_who(status, "read", "bytes") == told.len() as u64
    });
    place.wait_until(|status| status["commits_delayed"].as_u64() >= Some(2));
}

#[test]
fn lines_are_received_no_faster_than_may_be_written_and_go_on_when_that_ends() {
    let place = place();
    place.set("address 127.0.0.1 write=1kB/s");
    let mut sender = Peer::to(place.server.series_addresses().resp.unwrap());
    let points = |from: u64, count: u64| {
        let points = (from..from + count).map(|time| format!("+cpu host=a\r\n:{time}\r\n+1\r\n"));
        points.collect::<String>() + "+SYNC\r\n"
    };
    sender.send(&points(1_000, 10));
    assert!(sender.until("\r\n").starts_with("+OK"));
    sender.send(&points(5_000, 20_000));
    place.wait_until(|status| of_who(status, "write", "waiting") == 1);
    place
        .inside
        .transact_blocking(|tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.clear_range(system::QUOTAS.0, system::QUOTAS.1);
            Ok::<_, Error>(())
        })
        .unwrap();
    assert!(sender.until("\r\n").starts_with("+OK"));
}
