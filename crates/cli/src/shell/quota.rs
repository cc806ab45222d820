//! `quota`: how much somebody may, as rows that servers read.
//!
//! Always: what is said of somebody changes that and leaves the rest of what he is bound to; and
//! none is set where nobody would keep it. Whoever may change these rows is decided by rights.

use super::operator::manage;
use super::rights::told_by_server;
use super::session::{Refusal, Session};
use plinth::{RangeOptions, Transaction, TransactionOption, block_on};
use plinth_bench::Value;
use plinth_types::quotas::{Bounds, Quota, Whom};
use plinth_types::{printable, system};
use std::io::Write;

/// `quota set WHO NAME=AMOUNT...`, `quota get [WHO]`, `quota clear WHO`
pub fn quota<Out: Write>(session: &mut Session<Out>, arguments: &[Vec<u8>]) -> Result<(), Refusal> {
    let (verb, words) = arguments.split_first().map_or((&[][..], &[][..]), |(v, w)| (&v[..], w));
    match (verb, words) {
        (b"set", words) => set(session, &parse(words)?),
        (b"get", []) => get(session, None),
        (b"get", words) => get(session, Some(&alone(words)?)),
        (b"clear", words) => clear(session, &alone(words)?),
        _ => Err(Refusal::Usage(
            "set WHO NAME=AMOUNT..., get [WHO], or clear WHO; quotas of tags are set by throttle"
                .to_owned(),
        )),
    }
}

fn parse(words: &[Vec<u8>]) -> Result<Quota, Refusal> {
    let quota = Quota::parse(words).map_err(|error| {
        Refusal::Usage(error.detail().map_or_else(|| error.to_string(), str::to_owned))
    })?;
    if let Whom::User(subject) = &quota.whom {
        super::rights::check_rule(subject)?;
    }
    Ok(quota)
}

/// Whom words name that say nothing else.
fn alone(words: &[Vec<u8>]) -> Result<Whom, Refusal> {
    let Quota { whom, changes } = parse(words)?;
    if changes.is_empty() {
        return Ok(whom);
    }
    let text = format!("only whose quota it is about is said here: {whom}; to bound somebody: set");
    Err(Refusal::Usage(text))
}

/// Whether whoever answers keeps quotas, and can tell who is meant; why not.
fn check_can_keep<Out: Write>(session: &Session<Out>) -> Result<(), Refusal> {
    let Some(status) = told_by_server(session)? else { return Ok(()) };
    match status.pointer("/cluster/plinth/server/quotas/kept").and_then(Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(Refusal::Usage(
            "the server keeps no quotas: its program is older than this one, or its database is a FoundationDB's"
                .to_owned(),
        )),
    }
}

fn may_read(transaction: &Transaction) -> plinth::Result<()> {
    transaction.set_option(TransactionOption::AccessSystemKeys)
}

fn set<Out: Write>(session: &mut Session<Out>, quota: &Quota) -> Result<(), Refusal> {
    if quota.changes.is_empty() {
        let text = format!("how much may {} be? NAME=AMOUNT, as read=10MB/s", quota.whom);
        return Err(Refusal::Usage(text));
    }
    check_can_keep(session)?;
    let now = session.database.endpoint().env().wall_clock().as_secs();
    let key = quota.whom.key();
    let bounds = manage(session, |transaction| {
        may_read(transaction)?;
        let before = transaction.get(&key).wait()?;
        let bounds = quota.change(before.as_deref().and_then(Bounds::decode).unwrap_or_default());
        match bounds.is_empty() {
            true => transaction.clear(&key),
            false => transaction.set(&key, bounds.value(now)),
        }
        Ok(bounds)
    })?;
    match bounds.is_empty() {
        true => writeln!(session.out, "{} has no quota", quota.whom)?,
        false => {
            writeln!(session.out, "{} has {bounds}, at each server, within a second", quota.whom)?;
        }
    }
    Ok(())
}

fn clear<Out: Write>(session: &mut Session<Out>, whom: &Whom) -> Result<(), Refusal> {
    let key = whom.key();
    let was_there = manage(session, |transaction| {
        may_read(transaction)?;
        let was_there = transaction.get(&key).wait()?.is_some();
        transaction.clear(&key);
        Ok(was_there)
    })?;
    if !was_there {
        let text = format!("{whom} has no quota; quota get shows those that there are");
        return Err(Refusal::Usage(text));
    }
    Ok(writeln!(session.out, "{whom} has no quota any more")?)
}

fn get<Out: Write>(session: &mut Session<Out>, whom: Option<&Whom>) -> Result<(), Refusal> {
    let rows = manage(session, |transaction| {
        may_read(transaction)?;
        let range = RangeOptions::from(system::QUOTAS.0..system::QUOTAS.1);
        block_on(transaction.range(range).collect())
    })?;
    let rows = rows.into_iter().filter(|row| whom.is_none_or(|whom| *row.key == whom.key()[..]));
    let mut is_any = false;
    for row in rows {
        is_any = true;
        match (Whom::decode(&row.key), Bounds::decode(&row.value)) {
            (Some(whom), Some(bounds)) => writeln!(session.out, "  {whom} {bounds}")?,
            _ => writeln!(
                session.out,
                "  a row that can't be read, and bounds nobody: {}",
                printable(&row.key)
            )?,
        }
    }
    match whom {
        _ if is_any => {}
        Some(whom) => writeln!(session.out, "{whom} has no quota")?,
        None => writeln!(session.out, "There are no quotas")?,
    }
    Ok(())
}
