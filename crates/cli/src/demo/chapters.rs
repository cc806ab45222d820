//! The first chapters: transactions, a conflict and its retry, a watch.
//!
//! Each step is done first and told afterwards, with what came back; what a step is meant to show
//! is claimed, and the claim checked. They share one database: a small shop with a shelf and some
//! baskets.

use super::story::Story;
use crate::failure::Failure;
use plinth::{Bytes, Database, Error, RangeOptions, Transaction, printable};
use plinth_bench::words;
use plinth_env::reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tasks that add to one counter, and how often each does.
const ADDERS: u64 = 4;
const ADDITIONS: u64 = 50;

/// All or nothing, reading one's own writes, ordered keys.
pub fn transactions(story: &Story, database: &Database) -> Result<(), Failure> {
    story.chapter("Transactions")?;
    story.say("What a transaction does happens as a whole or not at all. Keys and values are bytes; keys are sorted.")?;
    let transaction = database.create_transaction();
    story.code("let tr = db.create_transaction();", "")?;
    for (key, value) in [("shelf/pear", "5"), ("shelf/apple", "1"), ("shelf/plum", "12")] {
        transaction.set(key, value);
        story.code(&format!("tr.set({key:?}, {value:?});"), "")?;
    }
    let pears = transaction.get("shelf/pear").wait().map_err(failed("read"))?;
    story.code("tr.get(\"shelf/pear\")", format!("{}, its own write", show(pears.as_deref())))?;
    let other = read(database, "shelf/pear")?;
    story.code(
        "other.get(\"shelf/pear\")",
        format!("{}: nobody else sees it yet", show(other.as_deref())),
    )?;
    transaction.commit().wait().map_err(failed("commit"))?;
    let version = transaction.committed_version().unwrap_or_default();
    story.code("tr.commit()", format!("on disk, as version {version}"))?;
    let shelf = shelf(database)?;
    story.code("db.get_range(RangeOptions::prefix(\"shelf/\"))", &shelf)?;
    story.claim("three rows, in order", shelf == "apple = 1, pear = 5, plum = 12")?;
    story.say("A transaction that fails halfway leaves no trace:")?;
    let result = database.transact_blocking(|transaction| {
        transaction.clear("shelf/plum");
        Err::<(), _>(Error::operation_failed())
    });
    story.code("db.transact(|tr| { tr.clear(\"shelf/plum\"); Err(..) })", "the closure gave up")?;
    let plums = read(database, "shelf/plum")?;
    story.code("db.get(\"shelf/plum\")", show(plums.as_deref()))?;
    story.claim("the plums are still there", result.is_err() && plums.as_deref() == Some(b"12"))
}

/// Two want the last apple; then many count in one place.
pub fn conflict(story: &Story, database: &Database) -> Result<(), Failure> {
    story.chapter("A conflict, and its retry")?;
    story
        .say("Ann and Bob both want the last apple. Nothing is locked: both read, and both try.")?;
    let (ann, bob) = (database.create_transaction(), database.create_transaction());
    for (name, transaction) in [("ann", &ann), ("bob", &bob)] {
        let apples = transaction.get("shelf/apple").wait().map_err(failed("read"))?;
        story.code(&format!("{name}.get(\"shelf/apple\")"), show(apples.as_deref()))?;
        transaction.clear("shelf/apple");
        transaction.set(format!("basket/{name}"), "apple");
        story.code(
            &format!("{name}.clear(\"shelf/apple\"); {name}.set(\"basket/{name}\", \"apple\");"),
            "",
        )?;
    }
    ann.commit().wait().map_err(failed("commit"))?;
    story.code("ann.commit()", "committed")?;
    let Err(error) = bob.commit().wait() else {
        return story.claim("Bob's commit is refused", false);
    };
    story.code(
        "bob.commit()",
        format!("{} ({}): what he read has changed", error.name(), error.code()),
    )?;
    bob.on_error(error.clone()).wait().map_err(failed("retry"))?;
    story.code("bob.on_error(error)", "reset, try again")?;
    let apples = bob.get("shelf/apple").wait().map_err(failed("read"))?;
    story.code(
        "bob.get(\"shelf/apple\")",
        format!("{}: sold out, he goes home", show(apples.as_deref())),
    )?;
    story.claim("one apple, one buyer", error == Error::not_committed() && apples.is_none())?;

    story.say(
        "`db.transact` is that loop. So this is safe, whoever else does the same at the same time:",
    )?;
    story
        .code("db.transact(|tr| { let n = tr.get(\"visits\"); tr.set(\"visits\", n + 1) })", "")?;
    let attempts = count_together(story, database)?;
    let visits = read(database, "visits")?.and_then(|bytes| number(&bytes));
    let total = ADDERS * ADDITIONS;
    story.claim(
        &format!(
            "{ADDERS} threads, {ADDITIONS} times each: visits = {}, after {} conflicts",
            visits.unwrap_or_default(),
            attempts - total
        ),
        visits == Some(total),
    )
}

/// Some threads that each add one to the same key, again and again; gives the number of attempts.
fn count_together(story: &Story, database: &Database) -> Result<u64, Failure> {
    let attempts = Arc::new(AtomicU64::new(0));
    let replies: Vec<_> = (0..ADDERS)
        .map(|_| {
            let (promise, reply) = reply::promise();
            let (database, attempts) = (database.clone(), attempts.clone());
            story.env.spawn("demo-adder", async move {
                let add = |transaction: &Transaction| {
                    attempts.fetch_add(1, Ordering::Relaxed);
                    let visits = transaction.get("visits").wait()?;
                    let visits = visits.and_then(|bytes| number(&bytes)).unwrap_or_default();
                    transaction.set("visits", (visits + 1).to_string());
                    Ok(())
                };
                promise.send((0..ADDITIONS).try_for_each(|_| database.transact_blocking(add)));
            });
            reply
        })
        .collect();
    for reply in replies {
        reply.wait().map_err(failed("count"))?;
    }
    Ok(attempts.load(Ordering::Relaxed))
}

/// Waiting for a change without asking again and again.
pub fn watch(story: &Story, database: &Database) -> Result<(), Failure> {
    story.chapter("A watch")?;
    story.say("A watch waits until a key's value changes. Nobody asks again and again.")?;
    let transaction = database.create_transaction();
    let watch = transaction.watch("shelf/apple");
    transaction.commit().wait().map_err(failed("commit"))?;
    story.code("let watch = tr.watch(\"shelf/apple\"); tr.commit();", "set")?;
    story.pause(Duration::from_millis(300));
    story.claim("a moment later it is still quiet", !watch.is_ready())?;
    let (promise, rung) = reply::promise();
    let clock = story.env.clone();
    story.env.spawn("demo-watcher", async move {
        let result = watch.await;
        promise.send(result.map(|()| clock.now()));
    });
    database
        .transact_blocking(|transaction| {
            transaction.set("shelf/apple", "40");
            Ok(())
        })
        .map_err(failed("commit"))?;
    let committed = story.env.now();
    story.code("db.transact(|tr| tr.set(\"shelf/apple\", \"40\"))", "somebody brings apples")?;
    let rung = rung.wait().map_err(failed("wait for the watch"))?;
    let after = words::duration(rung.saturating_sub(committed));
    story.code("watch.await", format!("rings, {after} after the commit"))
}

fn shelf(database: &Database) -> Result<String, Failure> {
    let shelf = database.transact_blocking(|transaction| {
        let rows = transaction.get_range(RangeOptions::prefix("shelf/")).wait()?.rows;
        let row = |(key, value): (&[u8], &[u8])| {
            format!("{} = {}", printable(&key[6..]), printable(value))
        };
        Ok(rows.iter().map(row).collect::<Vec<_>>().join(", "))
    });
    shelf.map_err(failed("read the shelf"))
}

fn read(database: &Database, key: &str) -> Result<Option<Bytes>, Failure> {
    database.transact_blocking(|transaction| transaction.get(key).wait()).map_err(failed("read"))
}

fn show(value: Option<&[u8]>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| format!("\"{}\"", printable(value)))
}

fn number(bytes: &[u8]) -> Option<u64> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn failed(work: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::of(format!("the tour could not {work}"), error)
}
