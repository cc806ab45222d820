//! Who keeps a cluster: `coordinators`, `exclude`, `include`, `configure single|double|triple`.
//!
//! What is wanted is written in a transaction, through the same special keys that FoundationDB's
//! bindings use; the cluster comes to be so step by step. The commands wait for that, up to a
//! bound, and say what it waits for when that is over: nothing is lost by leaving before.

use super::operator::manage;
use super::session::{Refusal, Session};
use plinth::{RangeOptions, TransactionOption};
use plinth_types::places::{MemberPlace, member_places};
use plinth_types::system;
use serde_json::Value;
use std::io::Write;
use std::time::Duration;

const PROCESSES: &[u8] = b"\xff\xff/configuration/coordinators/processes";
const EXCLUDED: &str = "management/excluded/";
/// How long a command waits, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(60);
/// After which somebody is told that it is waited.
const QUIET: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(200);

/// How many servers vote in a mode.
fn voters_of(mode: &str) -> Option<usize> {
    match mode {
        "single" => Some(1),
        "double" => Some(3),
        "triple" => Some(5),
        _ => None,
    }
}

fn special(prefix: &str, rest: &[u8]) -> Vec<u8> {
    [b"\xff\xff/", prefix.as_bytes(), rest].concat()
}

/// The members as the rows have them; none in a database of one server.
fn members<Out: Write>(session: &Session<Out>) -> Result<Vec<MemberPlace>, Refusal> {
    let row = manage(session, |transaction| {
        transaction.set_option(TransactionOption::ReadSystemKeys)?;
        transaction.get(system::MEMBERS).wait()
    })?;
    Ok(row.map_or_else(|| Ok(Vec::new()), |row| member_places(&row))?)
}

/// Waits until the members are as they should be; says so, or who there is instead.
fn until<Out: Write>(
    session: &mut Session<Out>,
    done: &str,
    is_so: impl Fn(&[MemberPlace]) -> bool,
) -> Result<(), Refusal> {
    let env = session.database.endpoint().env().clone();
    let (begun, mut is_told) = (env.now(), false);
    loop {
        let found = members(session)?;
        if is_so(&found) {
            return Ok(writeln!(session.out, "{done}")?);
        }
        let waited = env.now().saturating_sub(begun);
        if waited > QUIET && !is_told {
            is_told = true;
            writeln!(
                session.out,
                "Noted; waiting for the servers (Ctrl-C ends the waiting alone)"
            )?;
            session.out.flush()?;
        }
        if waited > PATIENCE {
            let list = |votes: bool| {
                let those = found.iter().filter(|member| member.votes == votes);
                those.map(|member| &*member.address).collect::<Vec<_>>().join(", ")
            };
            let (voters, learners) = (list(true), list(false));
            return Ok(writeln!(
                session.out,
                "It comes to be when the servers can: one that gets a vote has to be there and to have everything,\n\
                 and one that `coordinators` has named keeps its vote until others are named.\n\
                 Now {voters} vote; the others: {learners}"
            )?);
        }
        plinth_env::block_on(env.sleep(LOOK));
    }
}

/// `coordinators [auto|ADDRESS...]`
pub fn coordinators<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let words: Vec<String> =
        arguments.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if words.is_empty() {
        let found = manage(session, |transaction| transaction.get(PROCESSES).wait())?;
        let list =
            found.map(|found| String::from_utf8_lossy(&found).into_owned()).unwrap_or_default();
        let count = list.split(',').count();
        return Ok(writeln!(session.out, "Cluster coordinators ({count}): {list}")?);
    }
    if words == ["auto"] {
        manage(session, |transaction| {
            transaction.clear(PROCESSES);
            Ok(())
        })?;
        return Ok(writeln!(
            session.out,
            "Whoever can votes, as many as the redundancy mode takes."
        )?);
    }
    let list = words.join(",");
    manage(session, |transaction| {
        transaction.set(PROCESSES, &list);
        Ok(())
    })?;
    let mut wanted: Vec<String> =
        words.iter().map(|word| word.trim_end_matches(":tls").to_owned()).collect();
    wanted.sort();
    until(session, "Coordination state changed", |members| {
        let mut voters: Vec<_> = members
            .iter()
            .filter(|member| member.votes)
            .map(|member| member.address.clone())
            .collect();
        voters.sort();
        voters == wanted
    })
}

/// The servers at these places that vote, and go on: `coordinators` has named them.
fn kept<Out: Write>(session: &Session<Out>, places: &[String]) -> Result<Vec<String>, Refusal> {
    let row = manage(session, |transaction| {
        transaction.set_option(TransactionOption::ReadSystemKeys)?;
        transaction.get(system::COORDINATORS_WANTED).wait()
    })?;
    let named = row.map(|row| String::from_utf8_lossy(&row).into_owned()).unwrap_or_default();
    let is_named = |address: &str| named.split(',').any(|one| one == address);
    let voters = members(session)?.into_iter().filter(|member| member.votes);
    let addresses = voters.map(|member| member.address);
    Ok(addresses.filter(|address| is_named(address) && names(places, address)).collect())
}

/// Whether one of these places, addresses or hosts, is that of a member.
fn names(places: &[String], address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    places.iter().any(|place| place == address || place == host)
}

/// Which places are excluded, or given up.
fn gone<Out: Write>(session: &Session<Out>) -> Result<Vec<String>, Refusal> {
    let mut gone = Vec::new();
    for prefix in [EXCLUDED, "management/failed/"] {
        let (begin, end) = (special(prefix, b""), special(prefix, b"\xff"));
        let rows = manage(session, |transaction| {
            let range = RangeOptions::from(&begin[..]..&end[..]);
            plinth_env::block_on(transaction.range(range).collect())
        })?;
        let place =
            |row: &plinth::KeyValue| String::from_utf8_lossy(&row.key[begin.len()..]).into_owned();
        gone.extend(rows.iter().map(place));
    }
    Ok(gone)
}

/// Of the servers at these places one that can be reached, if there is one.
///
/// # Errors
/// If nobody told, or the command was ended meanwhile: then it isn't known.
fn reachable<Out: Write>(
    session: &Session<Out>,
    places: &[String],
) -> Result<Option<String>, Refusal> {
    let status = session.answer(session.shown().status_json())?;
    let status: Value = status.parse().unwrap_or_default();
    let processes = status.pointer("/cluster/processes").and_then(Value::as_object);
    let found = processes.and_then(|all| {
        all.values().find(|process| {
            // The one that answers says nothing of whether it can be reached.
            let is_reached = process["plinth"]["reachable"] != Value::Bool(false);
            is_reached && process["address"].as_str().is_some_and(|address| names(places, address))
        })
    });
    Ok(found.and_then(|found| found["address"].as_str()).map(ToOwned::to_owned))
}

/// `exclude [failed [force]] [ADDRESS...]`
pub fn exclude<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let (prefix, is_forced, places) = match arguments {
        [first, second, rest @ ..] if first == b"failed" && second == b"force" => {
            ("management/failed/", true, rest)
        }
        [first, rest @ ..] if first == b"failed" => ("management/failed/", false, rest),
        all => (EXCLUDED, false, all),
    };
    if places.is_empty() {
        let gone = gone(session)?;
        if gone.is_empty() {
            writeln!(session.out, "Nobody is excluded.")?;
        }
        for place in gone {
            writeln!(session.out, "{place}")?;
        }
        return Ok(());
    }
    let wanted: Vec<String> = places
        .iter()
        .map(|place| String::from_utf8_lossy(place).trim_end_matches(":tls").to_owned())
        .collect();
    if prefix != EXCLUDED
        && !is_forced
        && let Some(address) = reachable(session, &wanted)?
    {
        return Err(Refusal::Usage(format!(
            "{address} is there and answers, and a server that is given up never comes back under its number: `exclude {address}` \
             moves it out, `exclude failed force {address}` gives it up all the same"
        )));
    }
    manage(session, |transaction| {
        places.iter().for_each(|place| transaction.set(special(prefix, place), ""));
        Ok(())
    })?;
    let places = wanted;
    let is_gone = prefix != EXCLUDED;
    let kept = if is_gone { Vec::new() } else { kept(session, &places)? };
    let is_kept = |address: &String| kept.contains(address);
    if !kept.is_empty() {
        writeln!(
            session.out,
            "Noted. {} keeps its vote, since `coordinators` names it: name others, or `coordinators auto`.",
            kept.join(", ")
        )?;
        let others = members(session)?.into_iter().map(|member| member.address);
        if !others.into_iter().any(|address| names(&places, &address) && !is_kept(&address)) {
            return Ok(());
        }
    }
    let done = if is_gone {
        "They are no members any more; their numbers never come back."
    } else {
        "They don't vote any more, and can be taken away."
    };
    until(session, done, |members| {
        members.iter().all(|member| {
            let is_done = !is_gone && (!member.votes || is_kept(&member.address));
            is_done || !names(&places, &member.address)
        })
    })
}

/// `include all|ADDRESS...`
pub fn include<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    manage(session, |transaction| {
        for prefix in [EXCLUDED, "management/failed/"] {
            if arguments.len() == 1 && arguments[0] == b"all" {
                transaction.clear_range(special(prefix, b""), special(prefix, b"\xff"));
            } else {
                arguments.iter().for_each(|place| transaction.clear(special(prefix, place)));
            }
        }
        Ok(())
    })?;
    Ok(writeln!(session.out, "Included: they get a vote where one is free.")?)
}

/// `configure single|double|triple` in a cluster. False if the database is on one server.
pub fn configure<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<bool, Refusal> {
    let [word] = arguments else { return Ok(false) };
    let mode = String::from_utf8_lossy(word).into_owned();
    let Some(count) = voters_of(&mode) else { return Ok(false) };
    let found = members(session)?;
    if found.is_empty() {
        return Ok(false);
    }
    let gone = gone(session)?;
    let could = found.iter().filter(|member| !names(&gone, &member.address)).count();
    if could < count {
        let others = match found.len() - could {
            0 => String::new(),
            excluded => format!(" besides {excluded} that are excluded"),
        };
        return Err(Refusal::Usage(format!(
            "{mode} takes {count} servers, and the cluster has {could}{others}: start others with an empty directory and the cluster \
             file first, or include those that are excluded"
        )));
    }
    let redundancy = [system::CONFIGURATION_PREFIX, b"redundancy_mode"].concat();
    manage(session, |transaction| {
        transaction.set_option(TransactionOption::AccessSystemKeys)?;
        transaction.set(system::VOTER_COUNT, count.to_string());
        transaction.set(&redundancy, &mode);
        transaction.clear(system::COORDINATORS_WANTED);
        Ok(())
    })?;
    until(session, "Configuration changed", |members| {
        members.iter().filter(|member| member.votes).count() == count
    })?;
    Ok(true)
}
