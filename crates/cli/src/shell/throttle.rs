//! `throttle`: how many transactions with a tag may begin in a second, by hand.
//!
//! The rules are rows of the database, in the form that FoundationDB's tools write and the server
//! reads once a second:
//!
//! ```text
//!   \xff\x02/throttledTags/tag/ | 0: by hand | priority | length | tag
//!   protocol version (8) | a second (f64) | until, in seconds since 1970 (f64) | for how long (f64) | reason (1)
//! ```

use super::data::number;
use super::session::{Refusal, Session, again};
use super::words::quoted;
use plinth::{RangeOptions, Transaction, TransactionOption, block_on};
use std::io::Write;

const BEGIN: &[u8] = b"\xff\x02/throttledTags/tag/";
const END: &[u8] = b"\xff\x02/throttledTags/tag0";
const PROTOCOL: u64 = 0x0fdb_00b0_7300_0000;
/// Longest tag.
const TAG_BYTES: usize = 16;
/// How long a rule holds unless it is said, in seconds.
const USUAL: f64 = 3600.0;
/// Rules that are listed.
const LISTED: usize = 1000;
/// The priorities that a rule may hold for, with those below, by their number in its key.
const PRIORITIES: [&str; 2] = ["batch", "default"];

/// `throttle on tag TAG RATE [SECONDS] [PRIORITY]`, `throttle off tag TAG`, `throttle list`
pub fn throttle<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    match words[..] {
        [b"list"] => list(session),
        [b"off", b"tag", tag] => off(session, tag),
        [b"on", b"tag", tag, rate] => on(session, tag, rate, USUAL, 1),
        [b"on", b"tag", tag, rate, seconds] => {
            on(session, tag, rate, number(seconds, "SECONDS")?, 1)
        }
        [b"on", b"tag", tag, rate, seconds, priority] => {
            let known = PRIORITIES.iter().position(|name| name.as_bytes() == priority);
            let known = known.ok_or_else(|| {
                Refusal::Usage(format!("batch or default, not {}", quoted(priority)))
            })?;
            on(session, tag, rate, number(seconds, "SECONDS")?, known as u8)
        }
        _ => Err(Refusal::Usage(
            "on tag TAG RATE [SECONDS] [PRIORITY], off tag TAG, or list".to_owned(),
        )),
    }
}

fn key(tag: &[u8], priority: u8) -> Result<Vec<u8>, Refusal> {
    if tag.is_empty() || tag.len() > TAG_BYTES {
        return Err(Refusal::Usage(format!("a tag has 1 to {TAG_BYTES} bytes, not {}", tag.len())));
    }
    Ok([BEGIN, &[0, priority, tag.len() as u8], tag].concat())
}

fn on<Out: Write>(
    session: &mut Session<Out>,
    tag: &[u8],
    rate: &[u8],
    seconds: f64,
    priority: u8,
) -> Result<(), Refusal> {
    let rate: f64 = number(rate, "RATE")?;
    if !(rate.is_finite() && rate >= 0.0 && seconds.is_finite() && seconds > 0.0) {
        return Err(Refusal::Usage("RATE is a number from 0 on, SECONDS one above 0".to_owned()));
    }
    let key = key(tag, priority)?;
    change(session, |transaction| {
        let until = transaction.env().wall_clock().as_secs_f64() + seconds;
        let mut value = PROTOCOL.to_le_bytes().to_vec();
        [rate, until, seconds].iter().for_each(|number| value.extend(number.to_le_bytes()));
        value.push(0);
        transaction.set(&key, value);
    })?;
    let (tag, priority) = (quoted(tag), PRIORITIES[usize::from(priority)]);
    writeln!(
        session.out,
        "Tag {tag} has {rate} transactions a second for {seconds} seconds, priority {priority} and below"
    )?;
    Ok(())
}

fn off<Out: Write>(session: &mut Session<Out>, tag: &[u8]) -> Result<(), Refusal> {
    let keys = [key(tag, 0)?, key(tag, 1)?, key(tag, 2)?];
    change(session, |transaction| keys.iter().for_each(|key| transaction.clear(key)))?;
    writeln!(session.out, "Tag {} is not throttled by hand", quoted(tag))?;
    Ok(())
}

fn list<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let (rows, now) = session.read(|transaction| {
        may_touch_system_keys(transaction)?;
        let range = RangeOptions::from(BEGIN..END).limit(LISTED);
        Ok((
            block_on(transaction.range(range).collect())?,
            transaction.env().wall_clock().as_secs_f64(),
        ))
    })?;
    let mut shown = 0;
    for row in rows {
        let at = |at: usize| row.value.get(at..at + 8)?.try_into().ok().map(f64::from_le_bytes);
        let [_, priority, _, tag @ ..] = &row.key[BEGIN.len()..] else { continue };
        let (Some(rate), Some(until)) = (at(8), at(16)) else { continue };
        if until > now {
            let priority = PRIORITIES[usize::from(*priority).min(1)];
            let left = (until - now).ceil();
            writeln!(
                session.out,
                "{:18} {rate} a second, {left} seconds to go, priority {priority} and below",
                quoted(tag)
            )?;
            shown += 1;
        }
    }
    if shown == 0 {
        writeln!(session.out, "No tag is throttled by hand")?;
    }
    Ok(())
}

/// Changes rules in a transaction of their own, also while the database is locked.
fn change<Out: Write>(session: &Session<Out>, body: impl Fn(&Transaction)) -> Result<(), Refusal> {
    let transaction = session.create_outside()?;
    loop {
        let attempt = may_touch_system_keys(&transaction).and_then(|()| {
            body(&transaction);
            transaction.commit().wait()
        });
        match attempt {
            Ok(()) => return Ok(()),
            Err(error) => again(&transaction, error)?,
        }
    }
}

fn may_touch_system_keys(transaction: &Transaction) -> plinth::Result<()> {
    transaction.set_option(TransactionOption::AccessSystemKeys)?;
    transaction.set_option(TransactionOption::LockAware)
}
