//! `plinth backup start`, `status`, `wait`, `modify`, `pause`, `resume`, `discontinue`, `abort`:
//! continuous backups, which the server does; `expire` and `delete`: what becomes of old ones.
//!
//! The commands write what is wanted into the database, and its servers see it within a second.
//! Always: a command that says that a backup ends says so when it has ended, if it is told to wait.

use super::progress::{Waiting, answered};
use super::{
    Opened, check_is_whole, count, credentials, database_args, database_id, key_file, key_ranges,
    open_backup, open_database, ranges, read_key, refused, url,
};
use crate::failure::{Failure, tell};
use crate::patience::{PATIENCE, no_answer};
use crate::target::Open;
use crate::terminal;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::backup::agent::{self, ABORTED, DEFAULT_TAG, State, TagStatus, Wish};
use plinth::backup::restore::Goal;
use plinth::backup::target::redacted;
use plinth::backup::{self, Backup, everything, parse_time};
use plinth::{Database, Error};
use plinth_bench::words::{bytes, duration};
use plinth_env::{Env, block_on};
use std::path::PathBuf;
use std::time::Duration;

/// How a backup is that was told to end and hasn't.
const ENDING: &str =
    "is ending: a server of the database ends it within seconds, or once one is started";
/// How long `abort` waits for that: longer than a server waits for a target that doesn't answer.
const ABORT_WAITS: Duration = Duration::from_secs(15);
/// How often it is looked how a backup is.
const LOOK: Duration = Duration::from_millis(300);

/// The subcommands of `plinth backup` that are about continuous backups.
pub fn commands() -> Vec<Command> {
    let url = || Arg::new("url").value_name("URL").required(true).help("Where the backup is");
    vec![
        start_command(),
        served(Command::new("status"))
            .about("How the continuous backups are")
            .arg(tag_flag().default_value(None).help("Only the backup with this tag"))
            .arg(super::json()),
        of_tag("wait", "Waits until a backup can be restored, or has ended"),
        of_tag("modify", "Changes how often snapshots are taken").arg(interval_flag().required(true)),
        of_tag("pause", "Has a backup stand still; the database keeps its log meanwhile"),
        of_tag("resume", "Has a backup go on"),
        of_tag("discontinue", "Ends a backup when it can be restored and everything up to now is saved").arg(wait_flag()),
        of_tag("abort", "Ends a backup at once; what is saved stays"),
        Command::new("expire")
            .about("Removes what isn't needed to restore what there was from a time or version on")
            .after_help("The newest snapshot and what follows it always stays.")
            .arg(url())
            .arg(credentials())
            .arg(
                Arg::new("before")
                    .long("before")
                    .value_name("TIME|VERSION")
                    .required(true)
                    .help("A time (2026-11-25T03:05:34Z, 2026/11/25.03:05:34+0100), a version, or a number of days: 30d"),
            ),
        Command::new("delete")
            .about("Removes a whole backup")
            .arg(url())
            .arg(credentials())
            .arg(
                Arg::new("yes")
                    .long("yes")
                    .action(ArgAction::SetTrue)
                    .help("Removes it; without it only says what would go"),
            ),
    ]
}

fn start_command() -> Command {
    of_tag("start", "Begins a continuous backup, which the server does: snapshots, and the log between them")
        .after_help(
            "URL, key file and credentials are the server's: paths on its machine, and FDB_BLOB_CREDENTIALS of its environment. The backup goes on until it is discontinued.\n\n\
             Example:\n  plinth backup start --cluster-file ./shop/fdb.cluster -d /backups/shop",
        )
        .arg(Arg::new("url").short('d').long("destcontainer").value_name("URL").required(true).help("Where it goes"))
        .arg(interval_flag())
        .arg(ranges("Only this range of keys; may be given several times [default: everything]"))
        .arg(key_file())
        .arg(credentials())
        .arg(
            Arg::new("log-bytes")
                .long("log-bytes")
                .value_name("BYTES")
                .value_parser(value_parser!(u64).range(1..))
                .help("Most log that the database keeps while the target can't be reached [default: a quarter of the free disk]"),
        )
        .arg(
            Arg::new("stop-when-done")
                .long("stop-when-done")
                .action(ArgAction::SetTrue)
                .help("Ends when the first snapshot is whole"),
        )
        .arg(wait_flag())
}

/// A command on the backup with a tag.
fn of_tag(name: &'static str, about: &'static str) -> Command {
    served(Command::new(name)).about(about).arg(tag_flag())
}

fn tag_flag() -> Arg {
    Arg::new("tag")
        .short('t')
        .long("tagname")
        .value_name("TAG")
        .default_value(DEFAULT_TAG)
        .help("The backup's tag")
}

fn interval_flag() -> Arg {
    Arg::new("snapshot-interval")
        .short('s')
        .long("snapshot-interval")
        .value_name("SECONDS")
        .value_parser(value_parser!(u64).range(1..))
        .help("How often a snapshot is begun [default: 864000, ten days]")
}

fn wait_flag() -> Arg {
    Arg::new("wait").short('w').long("wait").action(ArgAction::SetTrue).help("Waits until it is so")
}

/// Of a database that is served, or of one in a directory that nobody has open: then it begins when
/// that is served.
fn served(command: Command) -> Command {
    database_args(command)
}

/// Runs one of [`commands`]; `None` if it is none of them.
pub fn run(name: &str, options: &ArgMatches) -> Option<Result<u8, Failure>> {
    Some(match name {
        "start" => start(options),
        "status" => status(options),
        "wait" => wait(options),
        "modify" => modify(options),
        "pause" => change(options, State::Paused, "stands still"),
        "resume" => change(options, State::Running, "goes on"),
        "discontinue" => change(
            options,
            State::Discontinuing,
            "ends when it can be restored and everything up to now is saved",
        ),
        "abort" => change(options, State::Aborting, ENDING),
        "expire" => expire(options),
        "delete" => delete(options),
        _ => return None,
    })
}

fn tag(options: &ArgMatches) -> String {
    options.get_one::<String>("tag").cloned().unwrap_or_default()
}

fn failed(error: Error) -> Failure {
    refused("cannot do that", &error)
}

fn start(options: &ArgMatches) -> Result<u8, Failure> {
    let (tag, url, ranges) = (tag(options), url(options), key_ranges(options)?);
    super::target(&Env::real(), &url, options)?;
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
    };
    // A relative path would be another one for the server.
    let url = if url.contains("://") { url } else { absolute(&PathBuf::from(url)) };
    let wish = Wish {
        ranges: if ranges.is_empty() { everything() } else { ranges },
        log_bytes: options.get_one::<u64>("log-bytes").copied(),
        key_file: options.get_one::<PathBuf>("encryption-key-file").map(absolute),
        stop_when_done: options.get_flag("stop-when-done"),
        snapshot_interval: interval(options).unwrap_or(Wish::new("").snapshot_interval),
        ..Wish::new(url)
    };
    let Opened { db, opened, .. } = open_database(options)?;
    check_place(&wish, &database_id(&db)?, options)?;
    check_is_whole(&db)?;
    block_on(agent::start(&db, &tag, &wish)).map_err(failed)?;
    let is_served = !options.contains_id("dir") || options.get_one::<PathBuf>("dir").is_none();
    if options.get_flag("wait") && is_served {
        return wait(options);
    }
    terminal::print(&format!(
        "the backup {tag} to {} begins; see plinth backup status\n",
        redacted(&wish.url)
    ))?;
    close(opened)
}

/// Refuses a place with another backup in it, where that can be seen from here: the server, which
/// may see another place of that name, refuses it too, but nobody would be told at once. A place
/// that doesn't answer here may answer the server.
fn check_place(wish: &Wish, database: &str, options: &ArgMatches) -> Result<(), Failure> {
    let (env, key) = (Env::real(), read_key(options).ok().flatten());
    let (place, target) = (redacted(&wish.url), super::target(&env, &wish.url, options)?);
    let (title, asked) = (format!("looking for a backup in {place}"), target.clone());
    let trouble = || asked.trouble();
    let looked = answered(&env, title, PATIENCE, trouble, Backup::open(&env, target, key));
    let why = match looked {
        Some(Ok(there)) => {
            let is_of = there.check_is_of(database, &wish.ranges);
            return is_of.map_err(|error| Failure::of("cannot do that", error));
        }
        Some(Err(error)) if error == Error::file_not_found() => return Ok(()),
        Some(Err(error)) => error.to_string(),
        None => {
            let after = no_answer(PATIENCE);
            asked.trouble().map_or(after.clone(), |trouble| format!("{after}, {trouble}"))
        }
    };
    tell(format_args!(
        "cannot see from here whether {place} has a backup already: {why}; the server asks for itself"
    ));
    Ok(())
}

fn close(opened: Open) -> Result<u8, Failure> {
    opened.close().map_err(|error| Failure::of("cannot close the database", error))?;
    Ok(0)
}

fn interval(options: &ArgMatches) -> Option<Duration> {
    options.get_one::<u64>("snapshot-interval").map(|seconds| Duration::from_secs(*seconds))
}

fn modify(options: &ArgMatches) -> Result<u8, Failure> {
    let Opened { db, opened, .. } = open_database(options)?;
    let interval = interval(options).unwrap_or_default();
    block_on(agent::modify(&db, &tag(options), interval)).map_err(failed)?;
    terminal::print(&format!(
        "the backup {} takes a snapshot each {} s\n",
        tag(options),
        interval.as_secs()
    ))?;
    close(opened)
}

fn change(options: &ArgMatches, state: State, what: &str) -> Result<u8, Failure> {
    let Opened { db, opened, .. } = open_database(options)?;
    let tag = tag(options);
    block_on(agent::change(&db, &tag, state)).map_err(failed)?;
    let is_served = options.get_one::<PathBuf>("dir").is_none();
    if state == State::Aborting && is_served {
        let Some(how) = ends_within(&db, &tag, ABORT_WAITS)? else {
            let after = duration(ABORT_WAITS);
            return Err(Failure::new(format!(
                "the backup {tag} has not ended in {after}: it {ENDING}"
            )));
        };
        let what = match &how[..] {
            ABORTED => "was aborted; what it saved stays".to_owned(),
            other => format!("had ended before: {other}"),
        };
        terminal::print(&format!("the backup {tag} {what}\n"))?;
        return close(opened);
    }
    if state == State::Discontinuing && options.get_flag("wait") {
        let ended = until(&db, &tag, |status| status.ended.is_some())?.ended.unwrap_or_default();
        if ended == ABORTED {
            let what = format!("the backup {tag} was aborted before everything was saved");
            return Err(Failure::new(what));
        }
        terminal::print(&format!("the backup {tag} has ended\n"))?;
        return close(opened);
    }
    terminal::print(&format!("the backup {tag} {what}\n"))?;
    close(opened)
}

/// How a backup ends within that time, if it does.
fn ends_within(db: &Database, tag: &str, most: Duration) -> Result<Option<String>, Failure> {
    let env = db.endpoint().env();
    let until = env.now() + most;
    loop {
        let ended = found(db, tag)?.ended;
        if ended.is_some() || env.now() >= until {
            return Ok(ended);
        }
        block_on(env.sleep(LOOK));
    }
}

fn found(db: &Database, tag: &str) -> Result<TagStatus, Failure> {
    let tags = block_on(agent::tags(db)).map_err(failed)?;
    let found = tags.into_iter().find(|status| status.tag == tag);
    found.ok_or_else(|| Failure::new(format!("there is no backup of the tag {tag}")))
}

fn wait(options: &ArgMatches) -> Result<u8, Failure> {
    let Opened { db, opened, .. } = open_database(options)?;
    let tag = tag(options);
    let status = until(&db, &tag, |status| status.is_restorable || status.ended.is_some())?;
    terminal::print(&lines(&status))?;
    if status.ended.as_deref() == Some(ABORTED) && !status.is_restorable {
        let what = format!("the backup {tag} was aborted before it could be restored");
        return Err(Failure::new(what));
    }
    close(opened)
}

/// Waits until a backup is so, and shows how far it is meanwhile.
fn until(
    db: &Database,
    tag: &str,
    is_so: impl Fn(&TagStatus) -> bool,
) -> Result<TagStatus, Failure> {
    let (env, mut told) = (db.endpoint().env(), None);
    let mut waiting = Waiting::begin(env, format!("waiting for the backup {tag}"));
    loop {
        let status = found(db, tag)?;
        if is_so(&status) {
            return Ok(status);
        }
        if status.error.is_some() && status.error != told {
            tell(format_args!(
                "{tag} gets no further: {}",
                status.error.as_deref().unwrap_or_default()
            ));
            told.clone_from(&status.error);
        }
        let step = step(&status);
        waiting.set(env, step, format!("{step}{}", saved(&status)));
        block_on(env.sleep(LOOK));
    }
}

/// What a backup is at.
fn step(status: &TagStatus) -> &'static str {
    match status.state {
        State::Paused => "it is paused",
        State::Aborting => "it ends at once",
        State::Discontinuing if status.is_restorable => "it saves what is left, and ends",
        _ if status.is_restorable => "it can be restored",
        _ if status.saved.is_none() => "nothing is saved yet",
        _ => "its first snapshot is under way",
    }
}

fn saved(status: &TagStatus) -> String {
    let behind = status.behind_seconds;
    let words = |saved| format!("; saved up to version {saved}, {behind:.1} s behind");
    status.saved.map_or(String::new(), words)
}

fn status(options: &ArgMatches) -> Result<u8, Failure> {
    let Opened { db, opened, .. } = open_database(options)?;
    let tags = match options.get_one::<String>("tag") {
        Some(tag) => vec![found(&db, tag)?],
        None => block_on(agent::tags(&db)).map_err(failed)?,
    };
    if options.get_flag("json") {
        let all: serde_json::Map<_, _> =
            tags.iter().map(|status| (status.tag.clone(), status.to_json())).collect();
        terminal::print(&format!("{:#}\n", serde_json::json!({ "tags": all })))?;
        return close(opened);
    }
    if tags.is_empty() {
        terminal::print("no continuous backup was ever begun\n")?;
    }
    for status in &tags {
        terminal::print(&lines(status))?;
    }
    close(opened)
}

fn lines(status: &TagStatus) -> String {
    let mut lines = vec![format!("{}          to {}", status.tag, redacted(&status.wish.url))];
    lines.push(match (&status.ended, status.saved) {
        (Some(ended), Some(saved)) => format!("  {ended}, up to version {saved}"),
        (Some(ended), None) => format!("  {ended} before anything of the log was saved"),
        (None, None) if status.is_restorable => {
            "  a snapshot can be restored; the log begins".to_owned()
        }
        (None, None) => "  begun; nothing is saved yet".to_owned(),
        (None, Some(saved)) => format!(
            "  saved up to version {saved}, {:.1} s behind; {}",
            status.behind_seconds,
            if status.is_restorable {
                "can be restored"
            } else {
                "can't be restored before the first snapshot is whole"
            }
        ),
    });
    lines.push(format!(
        "  {}, {} in all; log {}",
        count(status.snapshots, "snapshot"),
        bytes(status.snapshot_bytes),
        bytes(status.log_bytes)
    ));
    match status.state {
        State::Running => {}
        State::Paused => lines.push("  paused".to_owned()),
        State::Discontinuing | State::Aborting if status.ended.is_some() => {}
        State::Discontinuing if status.is_restorable => {
            lines.push("  discontinued: ends once everything up to then is saved".to_owned());
        }
        State::Discontinuing => {
            lines.push("  discontinued: ends once its first snapshot is whole".to_owned());
        }
        State::Aborting => lines.push(format!("  {ENDING}")),
    }
    if status.broken > 0 {
        lines.push(format!(
            "  BROKEN {}: the database let go of what had not been saved; a stretch of the log is missing",
            count(status.broken, "time")
        ));
    }
    if let Some(error) = &status.error {
        lines.push(format!("  gets no further: {error}"));
    }
    lines.join("\n") + "\n"
}

fn expire(options: &ArgMatches) -> Result<u8, Failure> {
    let (env, url) = (Env::real(), url(options));
    let text = options.get_one::<String>("before").cloned().unwrap_or_default();
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let before = match (days, text.parse::<i64>()) {
        (Some(days), _) => {
            let now = env.wall_clock().as_millis() as u64;
            Goal::Time(now.saturating_sub(days.saturating_mul(86_400_000)))
        }
        (None, Ok(version)) => Goal::Version(version),
        (None, Err(_)) => {
            Goal::Time(parse_time(&text).map_err(|error| Failure::usage(error.to_string()))?)
        }
    };
    // Names and headers are all that it looks at, but for a time, which stands in the clear too.
    let backup = open_backup(&env, &url, read_key_if_any(options)?, options)?;
    let url = redacted(&url);
    let expired = match block_on(backup::expire(&backup, before)) {
        Err(error) if error == Error::backup_cannot_expire() => {
            terminal::print(&format!("nothing is old enough to be removed from {url}\n"))?;
            return Ok(0);
        }
        expired => expired.map_err(|error| Failure::of(format!("cannot expire {url}"), error))?,
    };
    let first = expired.first.map_or("nothing".to_owned(), |version| format!("version {version}"));
    let (snapshots, logs) = (expired.snapshots as u64, expired.logs as u64);
    terminal::print(&format!(
        "removed {} and {} of the log, {}; kept everything from {first} on\n",
        count(snapshots, "snapshot"),
        count(logs, "file"),
        bytes(expired.bytes)
    ))?;
    Ok(0)
}

fn read_key_if_any(options: &ArgMatches) -> Result<Option<backup::Key>, Failure> {
    match options.try_contains_id("encryption-key-file") {
        Ok(true) => read_key(options),
        _ => Ok(None),
    }
}

fn delete(options: &ArgMatches) -> Result<u8, Failure> {
    let (env, url) = (Env::real(), url(options));
    let backup = open_backup(&env, &url, None, options)?;
    let url = redacted(&url);
    if !options.get_flag("yes") {
        let contents = block_on(backup.contents());
        let contents =
            contents.map_err(|error| Failure::of(format!("cannot read {url}"), error))?;
        return Err(Failure::new(format!(
            "the backup in {url}, {} and {} of the log, {}, would be gone for ever; nothing was removed: --yes does so",
            count(contents.snapshots.len() as u64, "snapshot"),
            count(contents.logs.len() as u64, "file"),
            bytes(contents.bytes)
        )));
    }
    block_on(backup::delete(&backup))
        .map_err(|error| Failure::of(format!("cannot delete {url}"), error))?;
    terminal::print(&format!("the backup in {url} is gone\n"))?;
    Ok(0)
}
