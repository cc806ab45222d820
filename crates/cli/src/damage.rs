//! `plinth check` and `plinth salvage`: what to do when a disk has not kept what it was given.
//!
//! Both print what they found to standard output, each damaged place on a line of its own, and end
//! with exit code 3 if there was any. What `check` can't tell without a key is no success either.

use crate::encryption;
use crate::failure::{DAMAGED, FAILED, Failure};
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use plinth::{CheckReport, Corruption, Keys};
use plinth_bench::words::{bytes, counted, grouped};
use plinth_env::{Env, block_on};
use plinth_peers::PeerError;
use plinth_peers::charter::{self, Standing};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// `plinth check DIR`.
pub fn check(options: &ArgMatches) -> Result<u8, Failure> {
    let dir = path(options, "dir");
    let task = terminal::progress().unknown(&format!("checking {}", dir.display()));
    let keys = encryption::keys(options, &dir)?;
    let report = block_on(plinth::check_with(&Env::real(), &dir, &keys));
    drop(task);
    let failed = |error| Failure::of(format!("cannot check {}", dir.display()), error);
    let mut report = report.map_err(failed)?;
    if let Some(node) = report.member {
        report.problems.extend(charter_problem(&dir, node, &keys));
    }
    let terminal = Terminal::stdout();
    let (records, log) = (grouped(report.log_records), bytes(report.log_bytes));
    let (rows, checkpoints) = (grouped(report.checkpoint_rows), bytes(report.checkpoint_bytes));
    let mut lines = vec![
        format!("log          {records} records, {log}"),
        format!("checkpoint   {rows} rows, {checkpoints}"),
    ];
    lines.extend(report.torn_tail.iter().map(|tail| {
        format!("unfinished   {tail}; this is what a crash leaves, and the next start cuts it off")
    }));
    let but = spoilt_note(&mut report, &mut lines);
    if !report.locked.is_empty() {
        let keys = report.locked.join(", ");
        lines.push(format!(
            "encrypted    with {keys}, not among the keys given: checksums were compared, and nothing else; give the key with --encryption-key-file"
        ));
    }
    if report.problems.is_empty() && !report.locked.is_empty() {
        let doubt = "without the key nobody can tell whether it opens with every row";
        lines.push(format!("{}: every checksum holds{but}, but {doubt}", terminal.bad("unknown")));
    } else if report.problems.is_empty() {
        lines.push(format!(
            "{}: it opens with every row, and every checksum holds{but}",
            terminal.good("ok")
        ));
    } else {
        lines.extend(places(terminal, &report.problems));
        let dir = dir.display();
        if report.member.is_some() {
            lines.push(
                "If the other servers of its cluster work, start this one with an empty directory: it joins them as a new one"
                    .into(),
            );
        }
        let advice = "Restore a backup, or copy what is readable into a new database";
        lines.push(format!("{advice}: plinth salvage {dir} OUT"));
    }
    terminal::print(&(lines.join("\n") + "\n"))?;
    Ok(match (report.problems.is_empty(), report.locked.is_empty()) {
        (false, _) => DAMAGED,
        (true, false) => FAILED,
        (true, true) => 0,
    })
}

/// `plinth salvage DIR OUT`.
pub fn salvage(options: &ArgMatches) -> Result<u8, Failure> {
    let (dir, out) = (path(options, "dir"), path(options, "out"));
    let task =
        terminal::progress().unknown(&format!("copying {} to {}", dir.display(), out.display()));
    let report =
        block_on(plinth::salvage_with(&Env::real(), &dir, &out, &encryption::keys(options, &dir)?));
    drop(task);
    let failed =
        |error| Failure::of(format!("cannot copy {} to {}", dir.display(), out.display()), error);
    let report = report.map_err(failed)?;
    let terminal = Terminal::stdout();
    let (rows, commits) = (counted(report.rows, "row"), grouped(report.batches));
    let batches = if report.batches == 1 { "batch" } else { "batches" };
    let mut lines = vec![format!("copied       {rows}, after {commits} {batches} of the log")];
    let whole = report.problems.is_empty() && report.missing_batches == 0;
    if whole {
        let whose = if report.was_member { " that this server had" } else { "" };
        lines.push(format!(
            "{}: nothing was damaged, {} has everything{whose}",
            terminal.good("ok"),
            out.display()
        ));
    }
    if report.was_member {
        lines.push(
            "member       of a cluster: other servers may have commits that it never heard of; if they work, use theirs"
                .into(),
        );
    }
    lines.extend(places(terminal, &report.problems));
    if report.missing_batches > 0 {
        let missing = grouped(report.missing_batches);
        let meaning = "what they wrote is older than it was, or absent";
        lines.push(format!("batches of commits that are missing: {missing}; {meaning}"));
    }
    terminal::print(&(lines.join("\n") + "\n"))?;
    Ok(if whole { 0 } else { DAMAGED })
}

/// Tells of a damaged note of how far the log is durable, and what that takes from "every checksum
/// holds". There are two such notes and one is enough, unless something is unfinished.
fn spoilt_note(report: &mut CheckReport, lines: &mut Vec<String>) -> &'static str {
    let Some(note) = report.spoilt_note.take() else { return "" };
    if report.torn_tail.is_some() {
        let doubt = "the damaged note may have said that the unfinished end was acknowledged";
        lines.push(format!("uncertain    {doubt}"));
        report.problems.push(note);
        return "";
    }
    lines.push(format!("note         {note}"));
    " but that of this note: the other one is enough, and the database writes this one anew"
}

/// What is wrong with the file that tells a member who its peers are: without it nobody takes it
/// for the node that it was.
fn charter_problem(dir: &Path, node: u64, keys: &Keys) -> Option<Corruption> {
    let found = match block_on(Standing::read(&Env::real(), dir, keys)) {
        Ok(Some(standing)) if standing.node == node => return None,
        // That its key isn't there is told of the whole directory.
        Err(PeerError::Locked(_)) => return None,
        Ok(Some(standing)) => format!("that of node {}", standing.node),
        Ok(None) => "none".into(),
        Err(error) => error.summary(),
    };
    Some(Corruption {
        file: dir.join(charter::FILE_NAME).display().to_string(),
        offset: 0,
        what: "file".into(),
        expected: format!("the charter of node {node}"),
        found,
    })
}

/// How many places are damaged, and each in a line; nothing if there are none.
fn places(terminal: Terminal, problems: &[impl Display]) -> Vec<String> {
    if problems.is_empty() {
        return Vec::new();
    }
    let places = if problems.len() == 1 { "place" } else { "places" };
    let head =
        format!("{} in {} {places}:", terminal.bad("damaged"), grouped(problems.len() as u64));
    std::iter::once(head).chain(problems.iter().map(|problem| format!("  {problem}"))).collect()
}

fn path(options: &ArgMatches, name: &str) -> PathBuf {
    options.get_one::<PathBuf>(name).cloned().unwrap_or_default()
}
