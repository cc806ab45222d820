//! Streams of changes: `changes register|list|tail|remove`, as `plinth changes` does it.
//!
//! They are the whole database's, so a tenant or a transaction that was begun doesn't matter to
//! them; and they change what the database keeps, so registering, removing and acknowledging need
//! write mode. At a terminal Ctrl-C ends `tail`, and the shell goes on.

use super::session::{Refusal, Session};
use super::words::quoted;
use crate::changes::{committed, described, ranges_of};
use plinth::client::{ChangeBatch, ChangeConsumer, Changes};
use plinth::{Version, block_on, printable};
use plinth_env::sync::{First, race};
use std::io::Write;

const USAGE: &str = "usage: changes register NAME [PREFIX...], changes list, changes remove NAME, changes tail NAME [FROM] \
                     [json] [once] [acknowledge]";

/// `changes ...`
pub fn changes<Out: Write>(
    session: &mut Session<Out>,
    arguments: &[Vec<u8>],
) -> Result<(), Refusal> {
    let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
    match &words[..] {
        [b"register", name, prefixes @ ..] => {
            session.check_writable()?;
            let ranges = ranges_of(prefixes.iter().copied());
            let stream = session.answer(session.shown().register_changes(name, ranges, None))?;
            let (id, name, version) = (stream.id, printable(name), stream.registered);
            Ok(writeln!(
                session.out,
                "Stream {id} of `{name}': everything committed after version {version}"
            )?)
        }
        [b"list"] => {
            let streams = session.answer(session.shown().list_changes())?;
            streams.iter().try_for_each(|stream| writeln!(session.out, "{}", described(stream)))?;
            Ok(())
        }
        [b"remove", name] => {
            session.check_writable()?;
            session.answer(session.shown().remove_changes(name))?;
            Ok(writeln!(session.out, "The stream `{}' has been removed", printable(name))?)
        }
        [b"tail", name, options @ ..] => tail(session, name, &Tail::of(options)?),
        _ => Err(Refusal::Usage(USAGE.to_owned())),
    }
}

/// How a stream is followed.
#[derive(Default)]
struct Tail {
    from: Option<Version>,
    json: bool,
    once: bool,
    acknowledge: bool,
}

impl Tail {
    fn of(words: &[&[u8]]) -> Result<Self, Refusal> {
        let mut tail = Self::default();
        for &word in words {
            match word {
                b"json" => tail.json = true,
                b"once" => tail.once = true,
                b"acknowledge" => tail.acknowledge = true,
                other => {
                    let version =
                        std::str::from_utf8(other).ok().and_then(|text| text.parse().ok());
                    tail.from = Some(version.filter(|version| *version >= 0).ok_or_else(|| {
                        Refusal::Usage(format!(
                            "{} is none of json, once, acknowledge, and no version",
                            quoted(other)
                        ))
                    })?);
                }
            }
        }
        Ok(tail)
    }
}

fn tail<Out: Write>(session: &mut Session<Out>, name: &[u8], tail: &Tail) -> Result<(), Refusal> {
    if tail.acknowledge {
        session.check_writable()?;
    }
    let mut consumer = session.answer(session.shown().consume_changes(name))?;
    if let Some(from) = tail.from {
        consumer = session.shown().resume_changes(consumer.id(), from);
    }
    let end = if tail.once { session.answer(committed(&session.shown()))? } else { Version::MAX };
    let lines = if tail.json { ChangeBatch::json_lines } else { ChangeBatch::text_lines };
    while let Some(changes) = next(session, &mut consumer, tail.once)? {
        for batch in &changes.batches {
            session.out.write_all(lines(batch).as_bytes())?;
        }
        session.out.flush()?;
        if tail.acknowledge {
            session.answer(consumer.acknowledge())?;
        }
        if changes.upto >= end {
            break;
        }
    }
    Ok(())
}

/// What comes next; nothing after Ctrl-C.
fn next<Out>(
    session: &Session<Out>,
    consumer: &mut ChangeConsumer,
    once: bool,
) -> Result<Option<Changes>, Refusal> {
    let env = session.database.endpoint().env().clone();
    let read = async { if once { consumer.try_next().await } else { consumer.next().await } };
    match block_on(race(session.interrupts.raised(&env), read)) {
        First::Left(()) => Ok(None),
        First::Right(changes) => Ok(Some(changes?)),
    }
}
