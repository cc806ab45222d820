//! The crash: a process that writes is killed without warning, and everything it acknowledged is
//! there.
//!
//! The writer tells us over a pipe of each commit that returned; after the kill we open the
//! directory and look for those rows. Its counter, set in the same transactions, shows half a
//! transaction.
//!
//! Always: a writer's acknowledged rows are its first so many, and no writer outlives the chapter.

use super::open;
use super::story::Story;
use super::writer::{self, COUNT, WRITERS};
use crate::command::WRITER;
use crate::failure::Failure;
use plinth::{Database, RangeOptions, Result, StreamingMode};
use plinth_bench::words;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long the first process lives before it is killed; each one after it somewhat longer.
const LIFE: Duration = Duration::from_millis(900);

/// Of each writer of each round, how many of its rows were acknowledged: always the first so many.
type Acknowledged = BTreeMap<(u64, u64), u64>;

/// The chapter, with so many crashes.
pub fn chapter(story: &Story, path: &Path, crashes: u64) -> Result<(), Failure> {
    story.chapter("A crash")?;
    story.say("Another process opens a database, and eight threads of it write as fast as they can: a row and, in the same")?;
    story.say("transaction, a counter. It tells us each row whose commit returned. Then we kill it, in mid-sentence.")?;
    let mut acknowledged = Acknowledged::new();
    for round in 0..crashes {
        let life = LIFE + LIFE.mul_f64(0.37) * round as u32;
        let more = kill_a_writer(story, path, round, life)?;
        story.code(
            "kill -9",
            format!("after {} acknowledged commits", words::grouped(more.values().sum())),
        )?;
        acknowledged.extend(more);
        recover(story, path, &acknowledged, (round + 1) * WRITERS)?;
    }
    Ok(())
}

/// Starts a writer, kills it after a while, and gives what it had acknowledged.
fn kill_a_writer(
    story: &Story,
    path: &Path,
    round: u64,
    life: Duration,
) -> Result<Acknowledged, Failure> {
    let failed = |error| Failure::of("cannot start this program once more", error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut child = Command::new(program)
        .arg(WRITER)
        .arg(path)
        .arg(round.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let result = listen(story, &mut child, round, life);
    // Whatever happened, the child must not outlive the tour, which removes the directory.
    let _ = child.kill();
    let _ = child.wait();
    result
}

/// Notes what the writer acknowledges, kills it when its time has come, and reads what was still in
/// the pipe.
fn listen(
    story: &Story,
    child: &mut Child,
    round: u64,
    life: Duration,
) -> Result<Acknowledged, Failure> {
    let Some(output) = child.stdout.take() else {
        return Err(Failure::new("the writing process has no output"));
    };
    let mut lines = BufReader::new(output);
    let mut acknowledged = Acknowledged::new();
    let mut end = None;
    while let Some((writer, number)) = next_acknowledgement(&mut lines)? {
        acknowledged.insert((round, writer), number + 1);
        let end = *end.get_or_insert(story.env.now() + life);
        if story.env.now() >= end {
            child.kill().map_err(|error| Failure::of("cannot kill the writing process", error))?;
            break;
        }
    }
    while let Some((writer, number)) = next_acknowledgement(&mut lines)? {
        acknowledged.insert((round, writer), number + 1);
    }
    if acknowledged.is_empty() {
        return Err(Failure::new("the writing process wrote nothing"));
    }
    Ok(acknowledged)
}

/// The next whole line: a writer and a number. The last line may be cut off by the crash, and
/// doesn't count.
fn next_acknowledgement(lines: &mut BufReader<ChildStdout>) -> Result<Option<(u64, u64)>, Failure> {
    let mut line = String::new();
    lines
        .read_line(&mut line)
        .map_err(|error| Failure::of("cannot read from the writing process", error))?;
    let words = line.strip_suffix('\n').and_then(|line| line.split_once(' '));
    Ok(words.and_then(|(writer, number)| Some((writer.parse().ok()?, number.parse().ok()?))))
}

/// Opens the database again and holds what is there against what was acknowledged. Of each writer
/// killed so far, one commit may have taken effect that it had no time to tell of.
fn recover(
    story: &Story,
    path: &Path,
    acknowledged: &Acknowledged,
    writers: u64,
) -> Result<(), Failure> {
    let began = story.env.now();
    let database = open(path)?;
    let opened = words::duration(story.env.now() - began);
    let (found, count) =
        read_all(&database).map_err(|error| Failure::of("cannot read after the crash", error))?;
    story.code(
        "Local::open(..)",
        format!("recovered in {opened}, {} rows", words::grouped(found.len() as u64)),
    )?;
    let missing = acknowledged
        .iter()
        .flat_map(|(&(round, writer), &rows)| (0..rows).map(move |number| (round, writer, number)))
        .filter(|&(round, writer, number)| {
            let value = found.get(writer::row_key(round, writer, number).as_bytes());
            value.map(Vec::as_slice) != Some(writer::row_value(writer, number).as_bytes())
        })
        .count();
    let total: u64 = acknowledged.values().sum();
    let unheard = (found.len() as u64).saturating_sub(total);
    story.claim(
        &format!(
            "nothing acknowledged is lost: {missing} of {} rows are missing or wrong",
            words::grouped(total)
        ),
        missing == 0,
    )?;
    story.claim(
        &format!(
            "no half transaction: the counter says {}, too ({unheard} committed, but not told)",
            words::grouped(count)
        ),
        count == found.len() as u64 && unheard <= writers,
    )
}

type Found = BTreeMap<Vec<u8>, Vec<u8>>;

/// All rows, and what the counter says.
fn read_all(database: &Database) -> Result<(Found, u64)> {
    let mut found = Found::new();
    let mut range = RangeOptions::prefix("row/").mode(StreamingMode::WantAll);
    loop {
        let batch = database
            .transact_blocking(|transaction| transaction.get_range(range.clone()).wait())?;
        found.extend(batch.rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        let Some((last, _)) = batch.rows.last().filter(|_| batch.more) else { break };
        range = range.after(last, batch.rows.len());
    }
    let count = database.transact_blocking(|transaction| transaction.get(COUNT).wait())?;
    let count = count.and_then(|bytes| bytes[..].try_into().ok()).map_or(0, u64::from_le_bytes);
    Ok((found, count))
}
