//! What an operator does to a database as a whole: `lock`, `unlock`, `configure`; and to those who
//! use it: `kill`.
//!
//! A lock is FoundationDB's, a row that its tools read and write, so either side can undo what the
//! other did. What can't be configured here is named, with what to do instead, rather than taken
//! and ignored.

use super::session::{Refusal, Session, again, restoring};
use super::words::quoted;
use plinth::{Transaction, TransactionOption};
use plinth_bench::Value;
use std::collections::BTreeMap;
use std::io::Write;

/// Where the lock's id stands, as a special key: 32 hexadecimal digits.
const LOCK: &[u8] = b"\xff\xff/management/db_locked";
/// Clients that `status details` lists.
const LISTED: usize = 20;

/// `lock`
pub fn lock<Out: Write>(session: &mut Session<Out>) -> Result<(), Refusal> {
    let env = session.database.endpoint().env();
    let id = format!("{:016x}{:016x}", env.random_u64(), env.random_u64());
    let held = manage(session, |transaction| {
        // A lock of somebody else's is looked for first: its id is what can be said about it.
        let held = transaction.get(LOCK).wait()?;
        if held.is_none() {
            transaction.set(LOCK, &id);
        }
        Ok(held)
    })?;
    // An attempt whose answer was lost may have been this one.
    match held {
        Some(held) if *held != *id.as_bytes() => Err(Refusal::Usage(format!(
            "the database is locked already; whoever did it has the id that unlock asks for, {}",
            plinth::printable(&held)
        ))),
        _ => Ok(writeln!(
            session.out,
            "Locking database with lockUID: {id}\nDatabase locked.\nOnly lock-aware transactions run until: unlock {id}"
        )?),
    }
}

/// What follows the UID where a lock of which nobody can tell whose it is shall go all the same.
const FORCE: &[u8] = b"force";

/// `unlock UID [force]`
pub fn unlock<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let (id, rest) = arguments.split_first().map_or((&[][..], &[][..]), |(id, rest)| (id, rest));
    let insists = rest.iter().any(|word| word.eq_ignore_ascii_case(FORCE));
    if let Some(other) = rest.iter().find(|word| !word.eq_ignore_ascii_case(FORCE)) {
        return Err(Refusal::Usage(format!(
            "only force goes behind the UID, not {}",
            quoted(other)
        )));
    }
    let wanted = id.to_ascii_lowercase();
    if wanted.len() != 32 || !wanted.iter().all(u8::is_ascii_hexdigit) {
        return Err(Refusal::Usage(format!(
            "UID has 32 hexadecimal digits, as lock told, not {}",
            quoted(id)
        )));
    }
    let hex = String::from_utf8_lossy(&wanted).into_owned();
    match restoring(&session.shown()) {
        Ok(None) => {}
        Ok(Some(words)) => {
            return Err(Refusal::Usage(format!("the lock ends with what has made it: {words}")));
        }
        Err(_) if insists => {}
        Err(why) => {
            return Err(Refusal::Usage(format!(
                "it can't be told whether a restore holds the lock, and a part of its rows would show: \
                 {why}; if you know that none does: unlock {hex} force"
            )));
        }
    }
    let held = manage(session, |transaction| {
        let held = transaction.get(LOCK).wait()?;
        if held.as_deref() == Some(&wanted) {
            transaction.clear(LOCK);
        }
        Ok(held)
    })?;
    match held {
        Some(held) if *held == *wanted => Ok(writeln!(session.out, "Database unlocked.")?),
        Some(_) => {
            let text = "the database is locked with another UID; it stays locked";
            Err(Refusal::Usage(text.to_owned()))
        }
        None => Ok(writeln!(session.out, "The database is not locked.")?),
    }
}

/// Runs a body that may change management keys in a transaction of its own, which a lock doesn't
/// keep out; gives what the body gave in the attempt that was committed.
pub fn manage<Out: Write, T>(
    session: &Session<Out>,
    body: impl Fn(&Transaction) -> plinth::Result<T>,
) -> Result<T, Refusal> {
    if session.transaction.is_some() {
        let text = "a transaction has been begun; commit it or roll it back first";
        return Err(Refusal::Usage(text.to_owned()));
    }
    let transaction = session.create_outside()?;
    loop {
        let attempt = || {
            transaction.set_option(TransactionOption::SpecialKeySpaceEnableWrites)?;
            transaction.set_option(TransactionOption::LockAware)?;
            let found = body(&transaction)?;
            transaction.commit().wait()?;
            Ok(found)
        };
        match attempt() {
            Ok(found) => return Ok(found),
            Err(error) => again(&transaction, error)?,
        }
    }
}

/// The clients in lines for `status details`: whence, how many connections, what they say they are.
/// Nothing where there is no server.
pub fn clients<Out: Write>(session: &Session<Out>) -> Vec<String> {
    let Ok(clients) = session.answer(session.shown().endpoint().clients()) else {
        return Vec::new();
    };
    let mut counts = BTreeMap::<(String, String), u64>::new();
    for client in clients {
        let (address, name) = client.split_once(' ').unwrap_or((&client, ""));
        let ip = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
        *counts.entry((ip.to_owned(), name.to_owned())).or_default() += 1;
    }
    let mut lines: Vec<_> = counts.into_iter().collect();
    lines.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    let line = |((ip, name), count): ((String, String), u64)| format!("{count} from {ip} ({name})");
    let mut lines: Vec<String> = lines.into_iter().map(line).collect();
    if more > 0 {
        lines.push(format!("and {more} more; kill lists each connection"));
    }
    lines
}

/// `configure WORD...`
pub fn configure<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let text = session.answer(session.shown().status_json())?;
    let document: Value = text
        .parse()
        .map_err(|error| Refusal::Usage(format!("the status document is not JSON: {error}")))?;
    let Some(configuration) = document.pointer("/cluster/configuration") else {
        return Err(Refusal::Usage("the database doesn't say how it is configured".to_owned()));
    };
    if arguments.is_empty() {
        return show(session, configuration);
    }
    for word in arguments {
        compare(configuration, &String::from_utf8_lossy(word)).map_err(Refusal::Usage)?;
    }
    writeln!(session.out, "The database is configured so: nothing to change")?;
    Ok(())
}

/// How the database is configured, a line each.
fn show<Out: Write>(session: &mut Session<Out>, configuration: &Value) -> Result<(), Refusal> {
    for (name, value) in configuration.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            // Lists and what has parts of its own stand in the status document.
            _ => continue,
        };
        writeln!(session.out, "{name} = {value}")?;
    }
    Ok(())
}

/// Words of FoundationDB's `configure` by what they set.
const REDUNDANCY: [&str; 6] = [
    "single",
    "double",
    "triple",
    "three_datacenter",
    "three_datacenter_fallback",
    "three_data_hall",
];
const ENGINES: [&str; 8] =
    ["ssd", "ssd-1", "ssd-2", "memory", "memory-1", "memory-2", "ssd-redwood-1", "ssd-rocksdb-v1"];
const ROLES: [&str; 6] =
    ["commit_proxies", "grv_proxies", "proxies", "resolvers", "logs", "usable_regions"];

/// Whether the configuration is what a word asks for; why it can't become so.
fn compare(configuration: &Value, word: &str) -> Result<(), String> {
    let is = |name: &str| {
        configuration.get(name).and_then(Value::as_str).unwrap_or("not told").to_owned()
    };
    if REDUNDANCY.contains(&word) {
        let mode = is("redundancy_mode");
        return match word {
            _ if mode == word => Ok(()),
            "single" | "double" | "triple" => Err(format!(
                "the redundancy mode is {mode}: this database is one server's, and stays so; a cluster of three or five is \
                 started as one (plinth server --help; docs/operations.md, \"A cluster\"), and plinth migrate brings the rows over"
            )),
            _ => Err(format!(
                "the redundancy mode is {mode}, and there is no {word}: there are single, double and triple"
            )),
        };
    }
    if ENGINES.contains(&word) {
        let engine = is("storage_engine");
        return if engine == word {
            Ok(())
        } else {
            Err(format!(
                "the storage engine is {engine}, and a database keeps the one it was made with; copy it into a new one \
                 (plinth server --engine {}, then plinth migrate)",
                if word.starts_with("ssd") { "ssd" } else { "memory" }
            ))
        };
    }
    if word == "new" {
        return Err(
            "the database is there already; a new one is made by starting a server on a new directory"
                .to_owned(),
        );
    }
    let Some((name, value)) = word.split_once('=') else {
        return Err(format!(
            "there is nothing that is configured by {}; see help configure",
            quoted(word.as_bytes())
        ));
    };
    let found = match configuration.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => {
            return Err(format!(
                "there is nothing called {} to configure",
                quoted(name.as_bytes())
            ));
        }
    };
    if found == value {
        Ok(())
    } else if ROLES.contains(&name) {
        Err(format!(
            "{name} is {found} and stays so: one process has all roles and spreads over its cores by itself"
        ))
    } else {
        Err(format!("{name} is {found}, and can't be changed"))
    }
}
