//! `grant`, `revoke` and `roles`: who may do what, as rows that servers read.
//!
//! Always: the first grant is an operator's and the last operator stays, so that somebody can
//! change rights for as long as there are any; both are judged in the transaction that changes
//! them. And none is given where nobody would keep it: by a server, or a member of a cluster, whose
//! program knows no rights.

use super::operator::manage;
use super::session::{Refusal, Session};
use plinth::{RangeOptions, Transaction, TransactionOption, block_on};
use plinth_bench::Value;
use plinth_types::places::members_protocol;
use plinth_types::rights::{Grant, Subject};
use plinth_types::{Bytes, printable, system};
use std::io::Write;

/// The version of their protocol from which on members of a cluster keep rights.
const PROTOCOL: u16 = 4;
/// The first byte of a row's value.
const FORMAT: u8 = 1;

/// What is to be said about rows that aren't as they must be.
type Judged<T> = Result<T, String>;

/// The keys of all rows.
fn rows(transaction: &Transaction) -> plinth::Result<Vec<Bytes>> {
    transaction.set_option(TransactionOption::AccessSystemKeys)?;
    let range = RangeOptions::from(system::RIGHTS.0..system::RIGHTS.1);
    let rows = block_on(transaction.range(range).collect())?;
    Ok(rows.into_iter().map(|row| row.key).collect())
}

fn is_operator(key: &Bytes) -> bool {
    Grant::decode(key).is_some_and(|grant| grant.is_operator())
}

/// What a server says of itself; `None` where this process has the files: what is written to them
/// is kept by a later server.
pub(super) fn told_by_server<Out: Write>(session: &Session<Out>) -> Result<Option<Value>, Refusal> {
    if session.database.endpoint().newest_here().is_ok() {
        return Ok(None);
    }
    let status = session.answer(session.shown().status_json())?.parse();
    let status = status
        .map_err(|error| Refusal::Usage(format!("the status document is not JSON: {error}")))?;
    Ok(Some(status))
}

/// Whether whoever answers keeps rights, and can tell who the operator is whom a grant makes; why
/// not.
fn check_can_hold<Out: Write>(session: &Session<Out>, grant: &Grant) -> Result<(), Refusal> {
    // Whoever has the files may everything anyway.
    let Some(status) = told_by_server(session)? else { return Ok(()) };
    let says = |what: &str| {
        let told = status.pointer(&format!("/cluster/plinth/server/rights/{what}"));
        told.and_then(Value::as_bool)
    };
    if says("kept") == Some(true) {
        if matches!(grant.subject, Subject::User(_)) && says("users") != Some(true) {
            let text = "the server can't tell which user of its machine connects: its program is older than this one, or its system isn't Linux";
            return Err(Refusal::Usage(text.to_owned()));
        }
        let text = match grant.is_operator().then_some(&grant.subject) {
            Some(Subject::Certificate(_)) if says("certificates") == Some(false) => {
                "nobody can show a certificate here: the server asks for none (--tls-ca), so this would be an operator whom nobody is"
            }
            Some(Subject::Token(_)) if says("tokens") == Some(false) => {
                "nobody can show a token here: the server has no keys for them (--authorization-public-key-file), so this would be an operator whom nobody is"
            }
            _ => return Ok(()),
        };
        return Err(Refusal::Usage(text.to_owned()));
    }
    let text = "the server keeps no rights: its program is older than this one, or its database is a FoundationDB's";
    Err(Refusal::Usage(text.to_owned()))
}

/// Whether all members of a cluster keep rights; a database of one server has none.
fn check_members(transaction: &Transaction) -> plinth::Result<Judged<()>> {
    let Some(row) = transaction.get(system::MEMBERS).wait()? else { return Ok(Ok(())) };
    let protocol = members_protocol(&row)?;
    Ok(if protocol >= PROTOCOL {
        Ok(())
    } else {
        Err(format!(
            "the servers' protocol is version {protocol}, and rights take {PROTOCOL}: start all servers of the cluster with this program \
             first (status tells which of them hold it back)"
        ))
    })
}

fn parse(words: &[Vec<u8>]) -> Result<Grant, Refusal> {
    let grant = Grant::parse(words).map_err(|error| {
        Refusal::Usage(error.detail().map_or_else(|| error.to_string(), str::to_owned))
    })?;
    check_rule(&grant.subject)?;
    Ok(grant)
}

/// Whether a certificate can be compared with what somebody is to be known by, if that is one.
pub fn check_rule(subject: &Subject) -> Result<(), Refusal> {
    let Subject::Certificate(rule) = subject else { return Ok(()) };
    let wrong = |why: String| Refusal::Usage(why);
    let parsed = plinth_tls::Rule::parse(std::slice::from_ref(rule))
        .map_err(|error| wrong(error.detail().map_or_else(|| error.to_string(), str::to_owned)))?;
    if parsed.is_unchecked() {
        return Err(wrong(format!("{rule:?} checks nothing: whom is it to be for?")));
    }
    Ok(())
}

/// `grant ROLE SUBJECT [SCOPE]`
pub fn grant<Out: Write>(session: &mut Session<Out>, arguments: &[Vec<u8>]) -> Result<(), Refusal> {
    let grant = parse(arguments)?;
    check_can_hold(session, &grant)?;
    let now = session.database.endpoint().env().wall_clock().as_secs();
    let is_first = manage(session, |transaction| {
        let rows = rows(transaction)?;
        if let Err(why) = check_members(transaction)? {
            return Ok(Err(why));
        }
        if !grant.is_operator() && !rows.iter().any(is_operator) {
            return Ok(Err("the first grant has to be an operator's, or nobody could give another: grant operator ...".to_owned()));
        }
        transaction.set(grant.key(), [&[FORMAT][..], &now.to_le_bytes()].concat());
        Ok(Ok(rows.is_empty()))
    })?;
    let is_first = is_first.map_err(Refusal::Usage)?;
    writeln!(session.out, "Granted: {grant}")?;
    if is_first {
        writeln!(
            session.out,
            "It is the first one: from now on nobody may anything but by a grant, within a second.\n\
             HTTP and time series ask for their tokens (--http-token, --series-token) from now on."
        )?;
    }
    Ok(())
}

/// `revoke ROLE SUBJECT [SCOPE]`, `revoke everything`
pub fn revoke<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    if arguments == [b"everything"] {
        let count = manage(session, |transaction| {
            let rows = rows(transaction)?;
            transaction.clear_range(system::RIGHTS.0, system::RIGHTS.1);
            Ok(rows.len())
        })?;
        return Ok(writeln!(
            session.out,
            "Revoked everything ({count} rows): whoever connects may everything"
        )?);
    }
    let grant = parse(arguments)?;
    let key = grant.key();
    let revoked = manage(session, |transaction| {
        let rows = rows(transaction)?;
        if !rows.iter().any(|row| *row == key) {
            return Ok(Err("there is no such grant; roles shows those that there are".to_owned()));
        }
        let other_operators = rows.iter().filter(|row| **row != key && is_operator(row)).count();
        if grant.is_operator() && other_operators == 0 {
            return Ok(Err(
                "the last operator stays: grant another one first, or take all rights back: revoke everything"
                    .to_owned(),
            ));
        }
        transaction.clear(&key);
        Ok(Ok(()))
    })?;
    revoked.map_err(Refusal::Usage)?;
    Ok(writeln!(session.out, "Revoked: {grant}")?)
}

/// `roles`
pub fn roles<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let rows = manage(session, rows)?;
    if rows.is_empty() {
        return Ok(writeln!(session.out, "There are no rights: whoever connects may everything")?);
    }
    for row in rows {
        match Grant::decode(&row) {
            Some(grant) => writeln!(session.out, "  {grant}")?,
            None => writeln!(
                session.out,
                "  a row that can't be read, and gives nothing: {}",
                printable(&row)
            )?,
        }
    }
    Ok(())
}
