//! What the node says of itself: the status document that FoundationDB's tools read, and the text
//! that Prometheus reads.
//!
//! Fields are those that exporters, operators and `fdbcli` look at; that a figure is true is tested
//! where a test knows the truth.

mod common;
#[path = "common/tools.rs"]
mod tools;

use common::provided;
use plinth_client::{Database, RangeOptions, ReadVersionRequest, Transaction, TransactionOption};
use plinth_env::{Env, Reply, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Error, KeyRange};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tools::{assert_complete, status, stop_tag, waiting_to_begin};

fn open() -> (Arc<Node>, Database) {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let db = Database::new(provided(Arc::new(node.endpoint())));
    (node, db)
}

#[test]
fn every_field_that_tools_read_is_there() {
    let (_node, db) = open();
    assert_complete(&status(&db));
}

fn count(status: &Value, pointer: &str) -> u64 {
    status.pointer(pointer).and_then(|value| value["counter"].as_u64()).unwrap()
}

#[test]
fn counts_are_those_of_what_was_done() {
    let (_node, db) = open();
    let before = status(&db);
    for n in 0..10 {
        let tr = db.create_transaction();
        tr.get(format!("key{n}")).wait().unwrap();
        tr.set(format!("key{n}"), "x".repeat(100));
        tr.commit().wait().unwrap();
    }
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::PriorityBatch).unwrap();
    assert_eq!(tr.range(RangeOptions::from("key".."kez")).collect_blocking().unwrap().len(), 10);
    let after = status(&db);
    let grew = |pointer: &str| count(&after, pointer) - count(&before, pointer);
    assert_eq!(grew("/cluster/workload/transactions/committed"), 10);
    assert_eq!(grew("/cluster/workload/transactions/started_default_priority"), 10);
    assert_eq!(grew("/cluster/workload/transactions/started_batch_priority"), 1);
    assert_eq!(grew("/cluster/workload/operations/writes"), 10);
    assert_eq!(grew("/cluster/workload/keys/read"), 20);
    assert!(grew("/cluster/workload/bytes/read") >= 1000);
    assert_eq!(after["cluster"]["qos"]["performance_limited_by"]["name"], "workload");
}

#[test]
fn prometheus_can_read_the_text() {
    let (node, db) = open();
    for n in 0..500 {
        let tr = db.create_transaction();
        tr.get(format!("key{n}")).wait().unwrap();
        tr.set(format!("key{n}"), "value");
        tr.commit().wait().unwrap();
    }
    let (all, name) = ([KeyRange::new("a", "z")], "\"orders\"\\");
    db.register_changes(name, all, None).wait().unwrap();
    let text = node.metrics_text();
    assert!(text.contains("plinth_changes_lost{stream=\"\\\"orders\\\"\\\\\\\\\"} 0"), "{text}");
    let mut family = String::new();
    let mut values = std::collections::BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kind != "counter" || name.ends_with("_total"), "{line}");
            family = name.to_owned();
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(series.starts_with(&family), "{series} in {family}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(values.insert(series.to_owned(), value).is_none(), "{series} twice");
        }
    }
    assert!(values["plinth_commits_total{outcome=\"committed\"}"] >= 500.0);
    assert!(values["plinth_transactions_started_total{priority=\"default\"}"] >= 500.0);
    assert!(
        values["plinth_commit_seconds_count"] > 0.0 && values["plinth_read_seconds_count"] > 0.0,
        "sampled"
    );
    assert_eq!(values["plinth_limited_by{cause=\"workload\"}"], 1.0);
}

/// A transaction with a tag.
fn tagged(db: &Database, tag: &str) -> Transaction {
    let tr = db.create_transaction();
    tr.set_option(TransactionOption::Tag(tag.to_owned())).unwrap();
    tr
}

/// Returns once so many wait to begin, which takes a moment over a socket, or `reply` is there and
/// none ever will.
fn until_so_many_wait<T>(db: &Database, count: u64, reply: &Reply<T>) {
    while waiting_to_begin(db) != count && !reply.is_ready() {
        block_on(db.endpoint().env().sleep(Duration::from_millis(5)));
    }
}

#[test]
fn a_tag_is_throttled_by_its_row_and_others_are_not() {
    let (_node, db) = open();
    let tagged = |tag: &str| tagged(&db, tag);
    tagged("slow").get_read_version().wait().unwrap();
    stop_tag(&db, "slow");
    let waiting = tagged("slow");
    let reply = waiting.get_read_version();
    until_so_many_wait(&db, 1, &reply);
    tagged("other").get_read_version().wait().unwrap();
    db.create_transaction().get_read_version().wait().unwrap();
    assert!(!reply.is_ready());
    let waited = Duration::from_millis(20);
    block_on(db.endpoint().env().sleep(waited));
    // The row goes, and with it the rule: whoever waited goes on.
    db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::AccessSystemKeys)?;
        tr.clear_prefix(b"\xff\x02/throttledTags/tag/");
        Ok(())
    })
    .unwrap();
    match reply.wait() {
        Ok(version) => {
            assert!(version > 0);
            // Lower bounds hold on any machine.
            assert!(waiting.tag_throttled_duration().wait().unwrap() >= waited.as_secs_f64());
        }
        // On a very slow machine it had waited for five seconds before.
        Err(error) => assert_eq!(error, Error::tag_throttled()),
    }
}

#[test]
fn transactions_that_begin_together_count_each_where_they_are_looked_at_too() {
    let (_node, db) = open();
    stop_tag(&db, "slow");
    // A server that was asked often shows what it was a second before.
    let started = || {
        block_on(db.endpoint().env().sleep(Duration::from_millis(1100)));
        count(&status(&db), "/cluster/workload/transactions/started")
    };
    let before = started();
    let together = ReadVersionRequest { others: 49, ..ReadVersionRequest::default() };
    db.endpoint().read_version(together.clone()).wait().unwrap();
    assert_eq!(started() - before, 50);
    let tags = vec![plinth_types::Bytes::from_static(b"slow")];
    let reply = db.endpoint().read_version(ReadVersionRequest { tags, ..together });
    until_so_many_wait(&db, 50, &reply);
    assert!(!reply.is_ready());
    assert_eq!(waiting_to_begin(&db), 50);
    assert_eq!(started() - before, 50);
}

/// Who came when the others had been told once waited for good.
#[test]
fn whoever_waits_when_the_node_closes_or_would_have_to_later_is_told() {
    let (node, db) = open();
    stop_tag(&db, "slow");
    let early = tagged(&db, "slow");
    let reply = early.get_read_version();
    until_so_many_wait(&db, 1, &reply);
    block_on(node.close()).unwrap();
    assert_eq!(reply.wait(), Err(Error::shutdown_in_progress()));
    assert_eq!(tagged(&db, "slow").get_read_version().wait(), Err(Error::shutdown_in_progress()));
}

#[test]
fn what_is_hot_is_found_by_sampling_and_what_was_slow_is_kept() {
    let (_node, db) = open();
    for n in 0..4000 {
        db.transact_blocking(|tr| {
            tr.get("config/limit").wait()?;
            tr.set(format!("user/{:03}", n % 500), "x");
            Ok(())
        })
        .unwrap();
    }
    for _ in 0..20 {
        let tr = db.create_transaction();
        tr.get("counter").wait().unwrap();
        tr.set("other", "");
        db.transact_blocking(|tr| {
            tr.set("counter", "1");
            Ok(())
        })
        .unwrap();
        assert_eq!(tr.commit().wait(), Err(Error::not_committed()));
    }
    let slow = db.create_transaction();
    slow.get("config/limit").wait().unwrap();
    block_on(db.endpoint().env().sleep(Duration::from_millis(1300)));
    slow.set("late", "1");
    slow.commit().wait().unwrap();
    let plinth = status(&db)["cluster"]["plinth"].clone();
    let hottest = |kind: &str| plinth["hot"][kind][0]["prefix"].as_str().unwrap().to_owned();
    assert_eq!(hottest("reads"), "config/limit");
    assert!(hottest("writes").starts_with("user/"), "{}", hottest("writes"));
    assert_eq!(hottest("conflicts"), "counter");
    let last = plinth["slow_transactions"].as_array().unwrap().last().unwrap();
    assert_eq!(last["first_key"], "late", "{plinth}");
    assert!(last["age_seconds"].as_f64().unwrap() > 1.0);
}
