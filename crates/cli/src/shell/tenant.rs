//! Tenants: `tenant create|delete|list|get|rename|configure`, `usetenant`, `defaulttenant`, in the
//! words of FoundationDB's shell 7.3.
//!
//! A tenant is a part of the keys with a name, and whoever works in it sees nothing else. They are
//! made and removed through the special keys that all of FoundationDB's tools use.

use super::data::number;
use super::operator::manage;
use super::session::{Refusal, Session};
use super::words::quoted;
use plinth::{Bytes, Error, RangeOptions, printable, strinc};
use plinth_bench::Value;
use std::io::Write;

const MAP: &[u8] = b"\xff\xff/management/tenant/map/";
const RENAME: &[u8] = b"\xff\xff/management/tenant/rename/";
/// Tenants that `tenant list` shows unless told otherwise.
const LIMIT: i32 = 100;
const USAGE: &str = "usage: tenant create|delete|get NAME, tenant rename OLD NEW, tenant list [BEGIN] [END] [LIMIT]";

/// `tenant ...`
pub fn tenant<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    match words[..] {
        [b"create", name] => create(session, name),
        [b"delete", name] => delete(session, name),
        [b"get", name] => get(session, name, false),
        [b"get", name, b"JSON" | b"json"] => get(session, name, true),
        [b"rename", old, new] => rename(session, old, new),
        [b"list"] => list(session, b"", b"\xff", LIMIT),
        [b"list", begin] => list(session, begin, b"\xff", LIMIT),
        [b"list", begin, end] => list(session, begin, end, LIMIT),
        [b"list", begin, end, limit] => list(session, begin, end, number(limit, "LIMIT")?),
        [b"configure", ..] | [b"create", _, ..] => {
            let text = "tenants have no groups here, and so nothing to configure: each is a part of one database";
            Err(Refusal::Usage(text.to_owned()))
        }
        _ => Err(Refusal::Usage(USAGE.to_owned())),
    }
}

fn create<Out: Write>(session: &mut Session<Out>, name: &[u8]) -> Result<(), Refusal> {
    let existed = manage(session, |transaction| {
        let key = [MAP, name].concat();
        let existed = transaction.get(&key).wait()?.is_some();
        if !existed {
            transaction.set(key, "");
        }
        Ok(existed)
    })?;
    if existed {
        return Err(Error::tenant_already_exists().into());
    }
    Ok(writeln!(session.out, "The tenant `{}' has been created", printable(name))?)
}

fn delete<Out: Write>(session: &mut Session<Out>, name: &[u8]) -> Result<(), Refusal> {
    if session.tenant.as_deref() == Some(name) {
        return Err(Refusal::Usage(
            "this tenant is in use here; leave it first: defaulttenant".to_owned(),
        ));
    }
    let existed = manage(session, |transaction| {
        let key = [MAP, name].concat();
        let existed = transaction.get(&key).wait()?.is_some();
        transaction.clear(key);
        Ok(existed)
    })?;
    if !existed {
        return Err(Error::tenant_not_found().into());
    }
    Ok(writeln!(session.out, "The tenant `{}' has been deleted", printable(name))?)
}

fn rename<Out: Write>(session: &mut Session<Out>, old: &[u8], new: &[u8]) -> Result<(), Refusal> {
    if session.tenant.as_deref() == Some(old) {
        return Err(Refusal::Usage(
            "this tenant is in use here; leave it first: defaulttenant".to_owned(),
        ));
    }
    manage(session, |transaction| {
        transaction.set([RENAME, old].concat(), new);
        Ok(())
    })?;
    let (old, new) = (printable(old), printable(new));
    Ok(writeln!(session.out, "The tenant `{old}' has been renamed to `{new}'")?)
}

fn list<Out: Write>(
    session: &mut Session<Out>,
    begin: &[u8],
    end: &[u8],
    limit: i32,
) -> Result<(), Refusal> {
    if limit < 1 {
        return Err(Refusal::Usage("LIMIT is how many, from 1 on".to_owned()));
    }
    let last = strinc(MAP).unwrap_or_default();
    let end = if end == b"\xff" { last } else { Bytes::from([MAP, end].concat()) };
    let range = RangeOptions::from([MAP, begin].concat()..end.to_vec()).limit(limit as usize);
    let found = manage(session, |transaction| transaction.get_range(range.clone()).wait())?;
    if found.rows.is_empty() {
        return Ok(writeln!(session.out, "The cluster has no tenants in the specified range")?);
    }
    for (at, (key, _)) in found.rows.iter().enumerate() {
        let name = key.strip_prefix(MAP).unwrap_or(key);
        writeln!(session.out, "  {}. {}", at + 1, printable(name))?;
    }
    Ok(())
}

fn get<Out: Write>(session: &mut Session<Out>, name: &[u8], json: bool) -> Result<(), Refusal> {
    let found = manage(session, |transaction| transaction.get([MAP, name].concat()).wait())?;
    let Some(found) = found else { return Err(Error::tenant_not_found().into()) };
    let text = String::from_utf8_lossy(&found);
    let document: Value = text
        .parse()
        .map_err(|error| Refusal::Usage(format!("what is told of it is not JSON: {error}")))?;
    if json {
        return Ok(writeln!(session.out, "{document:#}")?);
    }
    for (name, path) in
        [("id", "/id"), ("prefix", "/prefix/printable"), ("tenant state", "/tenant_state")]
    {
        let value = document
            .pointer(path)
            .map(|value| value.as_str().map_or(value.to_string(), str::to_owned));
        writeln!(session.out, "  {name}: {}", value.unwrap_or_default())?;
    }
    Ok(())
}

/// `usetenant [NAME]`
pub fn use_tenant<Out: Write>(
    session: &mut Session<Out>,
    name: Option<&Vec<u8>>,
) -> Result<(), Refusal> {
    let Some(name) = name else {
        let told = match &session.tenant {
            Some(name) => format!("Using tenant `{}'", printable(name)),
            None => "Using the default tenant".to_owned(),
        };
        return Ok(writeln!(session.out, "{told}")?);
    };
    outside_of_transactions(session)?;
    if let Err(error) = session.answer(session.shown().open_tenant(name)) {
        let near = format!("{error}; `tenant create {}` makes it", quoted(name));
        return Err(if error == Error::tenant_not_found() {
            Refusal::Usage(near)
        } else {
            error.into()
        });
    }
    session.tenant = Some(name.clone());
    Ok(writeln!(session.out, "Using tenant `{}'", printable(name))?)
}

/// `defaulttenant`
pub fn default_tenant<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    outside_of_transactions(session)?;
    session.tenant = None;
    Ok(writeln!(session.out, "Using the default tenant")?)
}

fn outside_of_transactions<Out: Write>(session: &Session<Out>) -> Result<(), Refusal> {
    match session.transaction {
        None => Ok(()),
        Some(_) => {
            Err(Refusal::Usage("a transaction has been begun, and stays in its tenant".to_owned()))
        }
    }
}
