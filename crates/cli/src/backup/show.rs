//! `plinth backup describe`, `list` and `verify`: what is there, and whether it can be read.
//!
//! Each is shown in lines for people or, of a listing, as JSON for programs. Always: a backup with
//! damage in it ends the command with its own exit code, after everything that is whole was told
//! too.

use super::progress::watched;
use super::{UNFINISHED, count, open_backup, read_key, target, url};
use crate::failure::{DAMAGED, Failure};
use crate::interrupt;
use crate::terminal::{self, Terminal};
use clap::ArgMatches;
use plinth::backup::target::redacted;
use plinth::backup::{self, Backup, Contents, Gap, Help, show_ranges, show_time};
use plinth::printable;
use plinth_bench::words::bytes;
use plinth_env::{Env, block_on};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// `plinth backup describe URL`.
pub fn describe(options: &ArgMatches) -> Result<u8, Failure> {
    let (env, url) = (Env::real(), url(options));
    let backup = open_backup(&env, &url, read_key(options)?, options)?;
    let url = redacted(&url);
    let contents = contents(&backup, &url)?;
    if options.get_flag("json") {
        terminal::print(&format!("{:#}\n", as_json(&backup, &contents)))?;
        return Ok(0);
    }
    let mut lines = vec![
        format!("backup       {}", backup.url()),
        format!("of           the database {}", backup.database()),
        format!(
            "ranges       {}",
            backup.ranges().map_or("encrypted: give the key".into(), show_ranges)
        ),
        format!("encrypted    {}", if backup.is_sealed() { "yes" } else { "no" }),
        format!("takes        {}", bytes(contents.bytes)),
    ];
    for snapshot in &contents.snapshots {
        let header = &snapshot.header;
        lines.push(format!(
            "snapshot     version {}, {}: {}, {}, in {}",
            header.to,
            show_time(header.time_to),
            count(header.count, "row"),
            bytes(header.raw),
            bytes(snapshot.stored)
        ));
    }
    if let (Some(first), Some(last)) = (contents.logs.first(), contents.logs.last()) {
        let files = count(contents.logs.len() as u64, "file");
        lines.push(format!("log          versions {} to {}, {files}", first.from, last.to - 1));
    }
    if let Some(end) = contents.ends.last() {
        lines.push(format!("ended        at version {end}"));
    }
    for directory in &contents.unfinished {
        lines.push(format!("unfinished   {directory} {UNFINISHED}"));
    }
    for (_, error) in &contents.damaged {
        lines.push(format!("{}      {error}", Terminal::stdout().bad("damaged")));
    }
    for (from, to) in contents.restorable() {
        lines.push(restorable(from, to));
    }
    if contents.snapshots.is_empty() {
        lines.push("restorable   nothing: there is no whole snapshot".into());
    }
    terminal::print(&(lines.join("\n") + "\n"))?;
    Ok(if contents.damaged.is_empty() { 0 } else { DAMAGED })
}

fn restorable(from: i64, to: i64) -> String {
    match from == to {
        true => format!("restorable   version {from}"),
        false => format!("restorable   versions {from} to {to}"),
    }
}

fn contents(backup: &Backup, url: &str) -> Result<Contents, Failure> {
    block_on(backup.contents()).map_err(|error| Failure::of(format!("cannot list {url}"), error))
}

fn as_json(backup: &Backup, contents: &Contents) -> serde_json::Value {
    let snapshot = |snapshot: &backup::Snapshot| {
        let header = &snapshot.header;
        serde_json::json!({
            "directory": snapshot.directory,
            "version_begin": header.from,
            "version_end": header.to,
            "time": show_time(header.time_to),
            "rows": header.count,
            "bytes": header.raw,
            "stored_bytes": snapshot.stored,
        })
    };
    let stretch = |(from, to): &(i64, i64)| serde_json::json!({ "from": from, "to": to });
    serde_json::json!({
        "url": backup.url(),
        "database": backup.database(),
        "ranges": backup.ranges().map(|ranges| ranges.iter().map(|range| [&range.begin, &range.end].map(|key| printable(key))).collect::<Vec<_>>()),
        "encrypted": backup.is_sealed(),
        "stored_bytes": contents.bytes,
        "snapshots": contents.snapshots.iter().map(snapshot).collect::<Vec<_>>(),
        "unfinished": contents.unfinished,
        "log_files": contents.logs.len(),
        "ended_at": contents.ends.last(),
        "restorable": contents.restorable().iter().map(stretch).collect::<Vec<_>>(),
        "damaged": contents.damaged.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>(),
    })
}

/// `plinth backup list URL`: what is there, or in the directories directly below.
pub fn list(options: &ArgMatches) -> Result<u8, Failure> {
    let (env, url) = (Env::real(), url(options));
    let place = target(&env, &url, options)?;
    let failed = |error| Failure::of(format!("cannot list {}", redacted(&url)), error);
    let objects = block_on(place.list("")).map_err(failed)?;
    let mut urls = Vec::new();
    for object in objects {
        match object.name.strip_suffix("backup.id") {
            Some("") => urls.push(url.clone()),
            Some(below) if !below.trim_end_matches('/').contains('/') => {
                // Parameters stand behind the place.
                let (place, parameters) = url.find('?').map_or((&*url, ""), |at| url.split_at(at));
                let below = below.trim_end_matches('/');
                urls.push(format!("{}/{below}{parameters}", place.trim_end_matches('/')));
            }
            _ => {}
        }
    }
    let (mut found, mut code) = (Vec::new(), 0);
    for url in &urls {
        let shown = redacted(url);
        let opened = open_backup(&env, url, None, options)
            .and_then(|backup| contents(&backup, &shown).map(|contents| (backup, contents)));
        match opened {
            Ok((backup, contents)) => found.push((shown, backup, contents)),
            // The others are there all the same.
            Err(failure) => {
                failure.tell();
                code = failure.code();
            }
        }
    }
    if options.get_flag("json") {
        let all: Vec<_> =
            found.iter().map(|(_, backup, contents)| as_json(backup, contents)).collect();
        terminal::print(&format!("{:#}\n", serde_json::Value::from(all)))?;
        return Ok(code);
    }
    for (url, _, contents) in &found {
        let last = contents.restorable().last().map(|(_, to)| *to);
        let last = last.map_or("nothing restorable".to_owned(), |to| format!("up to version {to}"));
        let snapshots = count(contents.snapshots.len() as u64, "snapshot");
        terminal::print(&format!("{url}   {snapshots}, {}, {last}\n", bytes(contents.bytes)))?;
    }
    if urls.is_empty() {
        terminal::print(&format!("no backups at {} or directly below\n", redacted(&url)))?;
    }
    Ok(code)
}

/// What can't be restored, by version and by time.
fn cost((from, to): (i64, i64), times: (Option<u64>, Option<u64>)) -> String {
    let versions =
        if from == to { format!("version {from}") } else { format!("versions {from} to {to}") };
    let times = match times {
        (Some(begin), Some(end)) if begin == end => format!(", of {}", show_time(begin)),
        (Some(begin), Some(end)) => format!(", of {} to {}", show_time(begin), show_time(end)),
        (Some(begin), None) => format!(", of {} and later", show_time(begin)),
        (None, Some(end)) => format!(", of {} and earlier", show_time(end)),
        (None, None) => String::new(),
    };
    format!("; costs {versions}{times}")
}

/// `plinth backup verify URL`.
pub fn verify(options: &ArgMatches) -> Result<u8, Failure> {
    let (env, url) = (Env::real(), url(options));
    let backup = open_backup(&env, &url, read_key(options)?, options)?;
    let url = redacted(&url);
    let total = contents(&backup, &url)?.bytes;
    let (read, stop) = (Arc::new(AtomicU64::new(0)), interrupt::flag());
    let counted = read.clone();
    let report = watched(&env, "verifying", total, &read, async move {
        backup::verify(&backup, &counted, &stop).await
    });
    let report = report.map_err(|error| Failure::of(format!("cannot verify {url}"), error))?;
    let terminal = Terminal::stdout();
    let mut lines =
        vec![format!("read         {}, {}", count(report.files, "file"), bytes(report.bytes))];
    if !report.is_deep {
        lines.push(
            "checked      checksums alone: the backup is encrypted, and no key was given".into(),
        );
    }
    for problem in &report.problems {
        let cost = problem.costs.map_or(String::new(), |costs| cost(costs, report.times(costs)));
        let help = match &problem.help {
            Some(Help::OlderThan(version)) => format!(
                "; an older snapshot reaches the same versions: restore with --snapshot-before {version}, or remove this one's directory"
            ),
            Some(Help::Remove) => "; other files have its versions: remove it".into(),
            None => String::new(),
        };
        lines.push(format!("{}      {problem}{cost}{help}", terminal.bad("damaged")));
    }
    for Gap { from, to, .. } in &report.gaps {
        lines.push(format!(
            "gap          no file of the log has versions {from} to {to}: the backup was begun anew behind them, or broken"
        ));
    }
    for directory in &report.unfinished {
        lines.push(format!("unfinished   {directory} {UNFINISHED}"));
    }
    for (from, to) in &report.restorable {
        lines.push(restorable(*from, *to));
    }
    match report.problems.is_empty() {
        true => {
            let is_all = report.gaps.is_empty() && report.unfinished.is_empty();
            let which = if is_all { "every file" } else { "every file that is there" };
            lines.push(format!("{}: {which} is whole", terminal.good("ok")));
        }
        false => lines.push("Take a new snapshot: plinth backup now".into()),
    }
    terminal::print(&(lines.join("\n") + "\n"))?;
    Ok(if report.problems.is_empty() { 0 } else { DAMAGED })
}
