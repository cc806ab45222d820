//! Rights to the series of some metrics where servers share the series: one that doesn't own them
//! passes on for whom it asks, and where each owns a part all of them are seen alike.
//!
//! A place with a server of its own, which has nothing but what is shown, says what every answer
//! has to be.

use super::common::peer::ask_at;
use super::common::*;
use super::metrics::{self, HIDDEN, QUESTIONS, SHOWN, at};
use super::{HOST, Place, other_loopback, wait_until, with_series};
use plinth_client::Database;
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_server::{Among, SeriesConfig, Server, ServerConfig};
use std::sync::Arc;

/// A server of those that share a node's series.
fn member(node: &Arc<Node>, name: &str, parts: usize) -> Server {
    let among = Among {
        database: Database::new(Arc::new(node.endpoint())),
        name: name.to_owned(),
        machine: None,
        #[cfg(feature = "tls")]
        tls: None,
    };
    let config = with_series();
    let series = SeriesConfig { parts: Some(parts), ..config.series.clone() };
    let listen = vec![loopback(), other_loopback()];
    let config = ServerConfig { listen, among: Some(among), series, ..config };
    block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap()
}

/// Two servers of series in so many parts.
fn shared(parts: usize) -> [Place; 2] {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let place = |name: &str| Place {
        inside: Database::new(Arc::new(node.endpoint())),
        server: member(&node, name, parts),
        node: node.clone(),
    };
    let places = ["one", "two"].map(place);
    for place in &places {
        wait_until(|| metrics::ask(place, "GET", "/api/v1/labels", "").0 == 200);
    }
    let ours = |place: &Place| {
        let status = ask_at(place.server.http_address().unwrap(), "GET", "/status", HOST, "").1;
        status.replace(' ', "").matches(r#""ours":true"#).count()
    };
    // Each has some of them.
    wait_until(|| parts == 1 || places.iter().all(|place| ours(place) > 0));
    places
}

/// The lines of an answer: rows of one time come in the order of the numbers of series, which parts
/// give out apart.
fn rows(text: &str) -> Vec<&str> {
    let mut rows: Vec<&str> = text.split(['\r', '\n', ',', '[', ']']).collect();
    rows.sort_unstable();
    rows
}

fn metrics_are_alike(parts: usize) {
    let alone = Place::new(with_series());
    let places = shared(parts);
    let import = |place, text: &str| {
        wait_until(|| metrics::ask(place, "POST", "/api/v1/import/prometheus", text).0 == 204);
    };
    import(&alone, SHOWN);
    import(&places[0], HIDDEN);
    import(&places[1], SHOWN);
    // What is posted to others comes to them in a while.
    let all = r#"{"select":"meta:names"}"#;
    for place in &places {
        wait_until(|| metrics::ask(place, "POST", "/api/query", all).1.lines().count() == 7);
    }
    for place in [&alone, &places[0]] {
        place.grant("operator address ::1");
        place.grant("reader address 127.0.0.1 metric cpu_*");
    }
    [&alone, &places[0], &places[1]].into_iter().for_each(Place::until_heeded);
    for (method, path, body) in QUESTIONS {
        // What is said of metrics each server knows that it was told to.
        if path.starts_with("/api/v1/metadata") {
            continue;
        }
        let expected = metrics::ask(&alone, method, path, body);
        for place in &places {
            let told = metrics::ask(place, method, path, body);
            assert_eq!((told.0, rows(&told.1)), (expected.0, rows(&expected.1)), "{path} {body}");
        }
    }
    for metric in ["mem_free", "cpu_busy"] {
        for place in &places {
            let told = metrics::remote_read(place, metric);
            assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
            assert_eq!(told.contains("host"), metric == "cpu_busy", "{told}");
        }
    }
    for place in &places {
        let metadata = metrics::ask(place, "GET", "/api/v1/metadata", "").1;
        assert!(!metadata.contains("mem_free"), "{metadata}");
    }
    written_and_deleted(&places);
}

/// Of what is sent to any of them, and deleted by any, so much is done as is granted.
fn written_and_deleted(places: &[Place; 2]) {
    places[0].grant("reader address 127.0.0.1 series");
    places[0].grant("writer address 127.0.0.1 metric cpu_*");
    places.iter().for_each(Place::until_heeded);
    let names = || {
        let path = "/api/v1/label/__name__/values";
        places.each_ref().map(|place| metrics::ask(place, "GET", path, "").1)
    };
    for (number, place) in places.iter().enumerate() {
        let text = format!("mem_{number} 1 1\ncpu_{number} 1 1\n");
        let told = metrics::ask(place, "POST", "/api/v1/import/prometheus", &text);
        assert_eq!(told.0, 403, "{}", told.1);
        assert!(told.1.contains("6000") && told.1.contains("partial write: 1 "), "{}", told.1);
        wait_until(|| names().iter().all(|names| names.contains(&format!("\"cpu_{number}\""))));
    }
    let delete = "/api/v1/admin/tsdb/delete_series?match[]={__name__=~\".%2b\"}";
    assert_eq!(metrics::ask(&places[1], "POST", delete, "").0, 204);
    let left = r#"["a","cpu","mem_free","xcpu_busy"]"#;
    names().iter().for_each(|names| assert!(names.contains(left), "{names}"));
}

#[test]
fn whoever_passes_questions_on_says_for_which_metrics() {
    metrics_are_alike(1);
}

#[test]
fn servers_that_have_a_part_each_show_some_metrics_as_one_does() {
    metrics_are_alike(4);
}

/// The way by which servers ask each other is nobody else's.
#[test]
fn nobody_else_says_for_which_metrics_he_asks() {
    let places = shared(1);
    places[0].grant("operator address ::1");
    places[0].grant("reader address 127.0.0.1 metric cpu_*");
    places.iter().for_each(Place::until_heeded);
    for place in &places {
        for lease in ["", "X-Plinth-Lease: 00\r\n"] {
            for path in ["/api/within/api/v1/labels", "/api/within", "/api/v1/labels"] {
                let headers = format!("{HOST}{lease}X-Plinth-Metrics: 2a\r\n");
                let told = ask_at(at(place), "GET", path, &headers, "");
                let is_refused = matches!(told.0, 404 | 421);
                assert!(is_refused || lease.is_empty() && told.0 == 200, "{path}: {told:?}");
            }
        }
    }
}
