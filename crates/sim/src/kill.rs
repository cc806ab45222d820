//! Real crashes: a writing process is killed at random instants, and what it was told to be durable
//! must be there.
//!
//! No simulation: the system's own files, and SIGKILL. There is a directory for each engine, and
//! rounds take turns at them. Each round starts the writer on what the one before left behind there
//! and kills it: one of three at some instant after its start, mostly in the middle of its
//! recovery, the others some milliseconds after the database is open. A killed process loses
//! nothing that it had handed to the system, so this is about order, recovery and locks, not about
//! syncs; those are the simulation's.

use crate::writer;
use plinth_env::simulated::Random;
use plinth_env::{Env, block_on};
use plinth_pipeline::EngineKind;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What many rounds came to.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Kills {
    /// How many processes were killed.
    pub rounds: u64,
    /// How many of them before their database was open.
    pub while_opening: u64,
    /// How many commits were acknowledged in all.
    pub acknowledged: u64,
    /// How many tables the engine `ssd` had in the end.
    pub tables: u64,
}

/// The engines, round by round.
const ENGINES: [EngineKind; 2] = [EngineKind::Memory, EngineKind::Ssd];

/// What is written to, time and again.
struct Victim {
    engine: EngineKind,
    dir: PathBuf,
    /// The newest number that is known to be durable there.
    known: u64,
}

/// For how long writers live at most, in microseconds.
const LONGEST_MICROS: [u64; 3] = [20_000, 100_000, 300_000];

/// From when on a writer's life is measured.
#[derive(Clone, Copy)]
enum Since {
    /// Most die while they open the database, on a slow machine all.
    Start,
    /// It has opened the database, whatever time that took: it dies amid commits.
    Open,
}

/// Kills `rounds` writers, one after the other, on a directory of their own. `program` starts the
/// command line of [`command`](crate::command).
///
/// # Errors
/// What was lost, or why no writer could be run.
pub fn rounds(program: &[OsString], rounds: u64, seed: u64) -> Result<Kills, String> {
    let env = Env::real();
    let mut random = Random::new(seed);
    let dir =
        block_on(env.files().temporary_dir("plinth-kill")).map_err(|error| error.to_string())?;
    let mut kills = Kills::default();
    let mut victims =
        ENGINES.map(|engine| Victim { engine, dir: dir.path().join(engine.name()), known: 0 });
    for round in 0..rounds {
        let Victim { engine, dir, known } = &mut victims[(round % ENGINES.len() as u64) as usize];
        let longest = LONGEST_MICROS[random.index(LONGEST_MICROS.len())];
        let life = Duration::from_micros(random.below(longest));
        let since = if random.below(3) == 0 { Since::Start } else { Since::Open };
        let output = live_and_die(&env, program, (dir, engine.name()), since, life)?;
        let told = judge(&output, *known).map_err(|what| {
            format!("round {round} of seed {seed}, engine {}: {what}", engine.name())
        })?;
        kills.rounds += 1;
        match told {
            Some(newest) => {
                kills.acknowledged += newest - *known;
                *known = newest;
            }
            None => kills.while_opening += 1,
        }
        if round % 50 >= 48 {
            *known = look(&env, dir, *engine, *known)?;
        }
    }
    for Victim { engine, dir, known } in &victims[..victims.len().min(rounds as usize)] {
        look(&env, dir, *engine, *known)?;
    }
    kills.tables = block_on(tables(&env, &victims[1].dir)).map_err(|error| error.to_string())?;
    Ok(kills)
}

/// How many tables there are in the directory of a database of the engine `ssd`.
async fn tables(env: &Env, dir: &Path) -> plinth_types::Result<u64> {
    let dir = dir.join("gen-1/tables");
    let names =
        if env.files().exists(&dir).await? { env.files().list(&dir).await? } else { Vec::new() };
    Ok(names.iter().filter(|name| name.starts_with("table-")).count() as u64)
}

fn live_and_die(
    env: &Env,
    program: &[OsString],
    (dir, engine): (&Path, &str),
    since: Since,
    life: Duration,
) -> Result<String, String> {
    let (program, before) = program.split_first().ok_or("no program to start")?;
    let mut child = Command::new(program)
        .args(before)
        .arg(writer::COMMAND)
        .args([dir.as_os_str(), engine.as_ref()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("start {}: {error}", program.to_string_lossy()))?;
    let mut output = BufReader::new(child.stdout.take().ok_or("the writer has no output")?);
    let mut said = String::new();
    if let Since::Open = since {
        // Its first line says that it is open; if it fails it says nothing, and its complaint is
        // read below.
        output.read_line(&mut said).map_err(|error| format!("read from the writer: {error}"))?;
    }
    block_on(env.sleep(life));
    child.kill().map_err(|error| format!("kill the writer: {error}"))?;
    output.read_to_string(&mut said).map_err(|error| format!("read from the writer: {error}"))?;
    let ended =
        child.wait_with_output().map_err(|error| format!("wait for the writer: {error}"))?;
    let complaint = String::from_utf8_lossy(&ended.stderr);
    if complaint.is_empty() { Ok(said) } else { Err(format!("the writer failed: {complaint}")) }
}

/// The newest number that a writer was told to be durable, if it got as far as to look; `known` is
/// what was known before.
fn judge(output: &str, known: u64) -> Result<Option<u64>, String> {
    // What follows the last line's end was cut off by the kill.
    let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut lines = whole.lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let found: Vec<u64> =
        first.split(' ').skip(1).filter_map(|number| number.parse().ok()).collect();
    let [low, high] = found[..] else { return Err(format!("the writer said {first:?}")) };
    hold_against(known, [low, high])?;
    let mut newest = low;
    for line in lines {
        let number: u64 = line.parse().map_err(|_| format!("the writer said {line:?}"))?;
        if number != newest + 1 {
            return Err(format!("{number} was acknowledged after {newest}"));
        }
        newest = number;
    }
    Ok(Some(newest))
}

/// At most one commit was under way when the process died.
fn hold_against(known: u64, [low, high]: [u64; 2]) -> Result<(), String> {
    if low != high {
        return Err(format!(
            "half of a transaction is there: {low} at one end, {high} at the other"
        ));
    }
    if low < known {
        return Err(format!("{known} was acknowledged, {low} is there"));
    }
    Ok(())
}

/// Opens the database here, and looks.
fn look(env: &Env, dir: &Path, engine: EngineKind, known: u64) -> Result<u64, String> {
    let looked = block_on(async {
        let database = writer::open(env, dir, engine).await?;
        writer::numbers(&database).await
    });
    let numbers = looked.map_err(|error| format!("opening after a kill: {error}"))?;
    hold_against(known, numbers)?;
    Ok(numbers[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_says_is_held_against_what_is_known() {
        assert_eq!(judge("", 5), Ok(None));
        assert_eq!(judge("open 5", 5), Ok(None), "a line without its end may be cut short");
        assert_eq!(judge("open 5 5\n6\n7\n8", 5), Ok(Some(7)));
        assert_eq!(judge("open 6 6\n", 5), Ok(Some(6)), "one was under way");
        assert!(judge("open 4 4\n", 5).is_err(), "lost");
        assert!(judge("open 6 5\n", 5).is_err(), "half");
        assert!(judge("open 5 5\n7\n", 5).is_err(), "skipped");
    }
}
