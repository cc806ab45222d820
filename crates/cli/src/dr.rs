//! `plinth dr`: a second site, a database that follows another one and can take its place.
//!
//! Here stands what a command line needs: names of databases become databases, what there is
//! becomes lines or JSON, and what went wrong becomes advice. The work itself is the crate
//! `plinth-dr`. Always: whatever is interrupted can be said again.

use crate::failure::{Failure, INTERRUPTED, tell};
use crate::interrupt;
use crate::target::{Open, Target};
use crate::terminal;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::{Error, block_on};
use plinth_bench::words::{bytes, grouped};
use plinth_dr::{
    Agent, Control, DEFAULT_TAG, Ending, Freed, Leftover, Phase, Sites, StartSettings, Status,
    Waits,
};
use plinth_env::sync::{First, race};
use serde_json::json;
use std::time::Duration;

/// How often it is looked how the second site is.
const LOOK: Duration = Duration::from_millis(500);

/// The command line of `plinth dr`.
pub fn command() -> Command {
    let tag = || {
        Arg::new("tag")
            .short('t')
            .long("tag")
            .value_name("TAG")
            .default_value(DEFAULT_TAG)
            .help("Its tag; a database can have several second sites, under different ones")
    };
    let start = both(Command::new("start"))
        .about("Has the second database follow the first, and does the work until interrupted")
        .arg(tag())
        .arg(flag("clear", "Clears what the second has; without this it must be empty"))
        .arg(
            Arg::new("log-bytes")
                .long("log-bytes")
                .value_name("BYTES")
                .value_parser(value_parser!(u64).range(1..))
                .help("Most log that the first keeps while the second can't be reached [default: a quarter of the free disk]"),
        )
        .arg(flag("no-agent", "Only begins it: plinth dr agent does the work, elsewhere"));
    let abort = Command::new("abort")
        .about("Ends it: both databases are free, the second as the first was at the version it had come to")
        .arg(to())
        .arg(from().required_unless_present("dstonly"))
        .arg(tag())
        .arg(flag("dstonly", "Makes the second free without asking the first, which is gone"))
        .arg(flag("clear", "Clears a second that isn't whole: it never was, or has a part of what is being restored into the first"))
        .arg(flag("keep-partial", "Keeps the rows of such a second as they are").conflicts_with("clear"));
    let status = Command::new("status")
        .about("What the second holds, and how far behind the first that is")
        .arg(to())
        .arg(from())
        .arg(flag("json", "As JSON"));
    let commands = [
        start,
        both(Command::new("agent"))
            .about("Does the work until interrupted; a second agent waits for its turn"),
        status,
        both(Command::new("wait")).about("Waits until the second is whole"),
        both(Command::new("switch")).about(
            "Lets the two change places: the second takes writes, the first follows it, and nothing is lost",
        ),
        both(Command::new("pause")).about("Has the second stand still; the first keeps its log meanwhile"),
        both(Command::new("resume")).about("Has it go on"),
        abort,
    ];
    Command::new("dr")
        .about("A second site: a database that follows another one, and can take its place")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
        .after_help(
            "F is a server's cluster file, or a directory that nobody has open; the first may be FoundationDB's, of release 8, by its change \
             data capture: fdb:CLUSTER_FILE.\n\n\
             Examples:\n  plinth dr start --from ./here/fdb.cluster --to ./there/fdb.cluster\n  \
             plinth dr status --from ./here/fdb.cluster --to ./there/fdb.cluster\n  \
             plinth dr switch --from ./here/fdb.cluster --to ./there/fdb.cluster\n  \
             plinth dr start --from fdb:/etc/foundationdb/fdb.cluster --to ./there/fdb.cluster\n  \
             plinth dr abort --to ./there/fdb.cluster --dstonly",
        )
}

fn from() -> Arg {
    Arg::new("from")
        .short('s')
        .long("from")
        .value_name("F")
        .help("The first database: who is written")
}

fn to() -> Arg {
    Arg::new("to")
        .short('d')
        .long("to")
        .value_name("F")
        .required(true)
        .help("The second database: who follows")
}

fn both(command: Command) -> Command {
    command.arg(from().required(true)).arg(to())
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// Runs the command with these options.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let Some((name, options)) = options.subcommand() else {
        return Err(Failure::usage(
            "plinth dr start, agent, status, wait, switch, pause, resume or abort",
        ));
    };
    let opened = Opened::open(options)?;
    let done = match name {
        "start" => opened.start(options),
        "agent" => opened.agent(),
        "status" => opened.status(options.get_flag("json")),
        "wait" => opened.wait(),
        "switch" => opened.switch(),
        "pause" => opened.pause(true),
        "resume" => opened.pause(false),
        _ => opened.abort(options),
    }?;
    opened.close()?;
    Ok(done)
}

/// The databases of a command.
struct Opened {
    from: Option<(String, Open)>,
    to: (String, Open),
}

fn open(options: &ArgMatches, side: &str) -> Result<Option<(String, Open)>, Failure> {
    let Some(name) = options.get_one::<String>(side).cloned() else { return Ok(None) };
    let target = Target::named(&name).map_err(|error| Failure::usage(error.to_string()))?;
    if matches!(target, Target::Foundation(_)) && side == "to" {
        let detail = "a second site is a database of Plinth's: FoundationDB can be followed, and can't follow";
        return Err(Failure::usage(format!("{name}: {detail}")));
    }
    let database = target.open(true).map_err(|error| Failure::opening(&name, &error))?;
    Ok(Some((name, database)))
}

impl Opened {
    fn open(options: &ArgMatches) -> Result<Self, Failure> {
        let from = open(options, "from")?;
        let to = open(options, "to")?.ok_or_else(|| Failure::usage("say which database: --to"))?;
        Ok(Self { from, to })
    }

    fn close(self) -> Result<(), Failure> {
        for (name, database) in self.from.into_iter().chain([self.to]) {
            database.close().map_err(|error| Failure::of(format!("cannot close {name}"), error))?;
        }
        Ok(())
    }

    fn sites(&self) -> Result<Sites, Failure> {
        let (_, from) =
            self.from.as_ref().ok_or_else(|| Failure::usage("say which database: --from"))?;
        Ok(Sites::new(from.database.clone(), self.to.1.database.clone()))
    }

    /// The names, in the order of who is written and who follows.
    fn names(&self, is_reversed: bool) -> (&str, &str) {
        let from = self.from.as_ref().map_or("the first", |(name, _)| name);
        if is_reversed { (&self.to.0, from) } else { (from, &self.to.0) }
    }

    fn found(&self) -> Result<Option<Status>, Failure> {
        let from = self.from.as_ref().map(|(_, opened)| &opened.database);
        block_on(plinth_dr::status(from, &self.to.1.database)).map_err(failed)
    }

    fn start(&self, options: &ArgMatches) -> Result<u8, Failure> {
        let settings = StartSettings {
            tag: options.get_one::<String>("tag").cloned().unwrap_or_default(),
            clear: options.get_flag("clear"),
            log_bytes: options.get_one::<u64>("log-bytes").copied(),
        };
        let sites = self.sites()?;
        let is_new = block_on(plinth_dr::start(&sites, &settings)).map_err(failed)?;
        let ((from, to), how) = (self.names(false), if is_new { "begins" } else { "goes on" });
        if options.get_flag("no-agent") {
            terminal::print(&format!(
                "{how}: plinth dr agent --from {from} --to {to} does the work\n"
            ))?;
            return Ok(0);
        }
        terminal::print(&format!("{how}: {to} follows {from} for as long as this runs\n"))?;
        self.agent()
    }

    /// Does the work, and says how it goes on.
    fn agent(&self) -> Result<u8, Failure> {
        let stop = interrupt::flag();
        let agent = Agent::new(self.sites()?, Control { stop: stop.clone() });
        let ended = match block_on(race(agent.run(), self.watch())) {
            First::Left(ended) => ended,
            First::Right(failure) => return Err(failure),
        };
        match ended.map_err(failed)? {
            Ending::Stopped => {
                tell("interrupted; plinth dr agent goes on from here");
                Ok(INTERRUPTED)
            }
            Ending::Ended => {
                terminal::print("ended: neither follows the other any more\n")?;
                Ok(0)
            }
        }
    }

    /// Prints a line each time that something is different, until that fails.
    async fn watch(&self) -> Failure {
        let (env, mut said) = (self.to.1.database.endpoint().env().clone(), None);
        loop {
            env.sleep(LOOK).await;
            let from = self.from.as_ref().map(|(_, opened)| &opened.database);
            // What is wrong the agent says, or tries again.
            let Ok(Some(status)) = plinth_dr::status(from, &self.to.1.database).await else {
                continue;
            };
            let new =
                (status.phase, status.is_reversed, copied_tenths(&status), status.problem.clone());
            if said.as_ref() != Some(&new) {
                if let Err(failure) = terminal::print(&format!("{}\n", self.line(&status))) {
                    return failure;
                }
                said = Some(new);
            }
        }
    }

    fn line(&self, status: &Status) -> String {
        let (from, to) = self.names(status.is_reversed);
        if let Some(problem) = &status.problem {
            return format!("gets no further: {problem}");
        }
        match (status.phase, status.whole_at) {
            (Phase::Copying, _) => {
                let copied = status.copied;
                let of =
                    copied.of_bytes.map_or(String::new(), |of| format!(" of about {}", bytes(of)));
                format!("copying: {} rows, {}{of}", grouped(copied.rows), bytes(copied.bytes))
            }
            (Phase::Following, None) if status.has_half => {
                format!(
                    "following: {to} has a part of what is being restored or migrated into {from}, and is whole at the end of that"
                )
            }
            (Phase::Following, Some(version)) => {
                format!("following: {to} is whole at version {version} of {from}")
            }
            (phase, _) => phase.name().to_owned(),
        }
    }

    fn status(&self, as_json: bool) -> Result<u8, Failure> {
        let found = self.found()?;
        if as_json {
            let shown =
                found.as_ref().map_or(json!({ "state": "none" }), |status| self.json(status));
            terminal::print(&format!("{shown:#}\n"))?;
            return Ok(0);
        }
        let Some(status) = found else {
            terminal::print("neither database follows the other\n")?;
            return Ok(0);
        };
        let (from, to) = self.names(status.is_reversed);
        let version =
            |version: Option<i64>| version.map_or("-".to_owned(), |version| version.to_string());
        let mut lines = vec![
            format!("state        {}", status.phase.name()),
            format!("tag          {}", status.tag),
            format!("first        {from}, newest version {}", version(status.newest)),
            format!(
                "second       {to}, which has everything up to version {}",
                version(status.position)
            ),
        ];
        lines.push(match status.whole_at {
            Some(version) => format!("whole        at version {version}"),
            None if status.has_half => "whole        no: it has a part of what is being restored or migrated into the first".to_owned(),
            None => "whole        not yet".to_owned(),
        });
        if let (Some(versions), Some(seconds)) = (status.lag_versions(), status.lag_seconds()) {
            let versions = grouped(versions.unsigned_abs());
            lines.push(format!("behind       {versions} versions, {seconds:.3} s"));
        }
        if status.whole_at.is_none() {
            lines.push(format!("             {}", self.line(&status)));
        }
        if !status.is_first_reached {
            lines.push(
                "             the first can't be reached: this is what the second knows".to_owned(),
            );
        }
        lines.push(match status.agent_age {
            Some(age) => format!("agent        last heard of {:.1} s ago", age.as_secs_f64()),
            None => "agent        none works at it: plinth dr agent".to_owned(),
        });
        if let Some(problem) = &status.problem {
            lines.push(format!("problem      {problem}"));
        }
        terminal::print(&format!("{}\n", lines.join("\n")))?;
        Ok(0)
    }

    fn json(&self, status: &Status) -> serde_json::Value {
        let (from, to) = self.names(status.is_reversed);
        json!({
            "state": status.phase.name(),
            "tag": status.tag,
            "id": status.id,
            "first": { "name": from, "reached": status.is_first_reached, "newest_version": status.newest },
            "second": { "name": to, "version": status.position, "whole_at_version": status.whole_at, "has_half": status.has_half },
            "is_reversed": status.is_reversed,
            "lag": { "versions": status.lag_versions(), "seconds": status.lag_seconds() },
            "copied": { "rows": status.copied.rows, "bytes": status.copied.bytes, "of_bytes": status.copied.of_bytes },
            "agent_heard_seconds_ago": status.agent_age.map(|age| age.as_secs_f64()),
            "problem": status.problem,
        })
    }

    fn wait(&self) -> Result<u8, Failure> {
        let (from, mut said) =
            (self.from.as_ref().map(|(_, opened)| &opened.database), String::new());
        let control = Control { stop: interrupt::flag() };
        let tell = |waits: Waits<'_>| {
            let what = match waits {
                Waits::Status(status) if status.agent_age.is_none() => {
                    "an agent: plinth dr agent".to_owned()
                }
                Waits::Status(status) => self.line(status),
                Waits::Answer(error) => error.to_string(),
            };
            if what != said {
                tell(format_args!("waiting: {what}"));
                said = what;
            }
        };
        match block_on(plinth_dr::wait(from, &self.to.1.database, &control, tell)) {
            Ok(status) => {
                let (from, to) = self.names(status.is_reversed);
                let version = status.whole_at.unwrap_or_default();
                terminal::print(&format!("{to} is whole at version {version} of {from}\n"))?;
                Ok(0)
            }
            Err(error) if error == Error::operation_cancelled() => Ok(INTERRUPTED),
            Err(error) => Err(failed(error)),
        }
    }

    fn switch(&self) -> Result<u8, Failure> {
        let control = Control { stop: interrupt::flag() };
        let (from, to) = self.names(false);
        match block_on(plinth_dr::switch(&self.sites()?, &control)) {
            Ok(true) if self.is_followed_one_way() => terminal::print(&self.handed_over())?,
            Ok(true) => {
                terminal::print(&format!("{to} takes writes now, and {from} follows it\n"))?
            }
            Ok(false) => {
                terminal::print(&format!("{to} takes writes already, and {from} follows it\n"))?
            }
            Err(error) if error == Error::operation_cancelled() => {
                tell(error);
                return Ok(INTERRUPTED);
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(0)
    }

    /// Whether the first is a FoundationDB.
    fn is_followed_one_way(&self) -> bool {
        self.from
            .as_ref()
            .is_some_and(|(_, from)| from.database.endpoint().change_capture().is_some())
    }

    /// What is said of a FoundationDB whose place was taken.
    fn handed_over(&self) -> String {
        let (from, to) = self.names(false);
        let lock = self
            .from
            .as_ref()
            .and_then(|(_, from)| block_on(plinth_dr::lock_of(&from.database)).ok().flatten());
        let unlock = lock
            .map_or("fdbcli's unlock".to_owned(), |uid| format!("fdbcli --exec 'unlock {uid}'"));
        format!(
            "{to} takes writes now; {from} is locked, and stays so: FoundationDB doesn't follow back ({unlock} makes it free)\n"
        )
    }

    fn pause(&self, is_paused: bool) -> Result<u8, Failure> {
        block_on(plinth_dr::set_paused(&self.sites()?, is_paused)).map_err(failed)?;
        terminal::print(if is_paused { "stands still\n" } else { "goes on\n" })?;
        Ok(0)
    }

    fn abort(&self, options: &ArgMatches) -> Result<u8, Failure> {
        let leftover = match (options.get_flag("keep-partial"), options.get_flag("clear")) {
            (true, _) => Some(Leftover::Keep),
            (_, true) => Some(Leftover::Clear),
            _ => None,
        };
        let is_alone = options.get_flag("dstonly");
        // Whoever names them may not know that they had changed sides.
        let is_reversed = !is_alone && self.found()?.is_some_and(|status| status.is_reversed);
        let (_, to) = self.names(is_reversed);
        let freed = match is_alone {
            true => block_on(plinth_dr::abort_second(&self.to.1.database, leftover)),
            false => {
                let tag = options.get_one::<String>("tag").cloned().unwrap_or_default();
                block_on(plinth_dr::abort(&self.sites()?, &tag, leftover))
            }
        };
        let said = match freed.map_err(failed)? {
            Freed::Whole(version) => format!(", as the first was at version {version}"),
            Freed::Part => ", with the rows that it had: a part of what the first has".to_owned(),
            Freed::Empty => ", and empty".to_owned(),
            Freed::AsItWas => String::new(),
        };
        terminal::print(&format!("ended: {to} is free{said}\n"))?;
        Ok(0)
    }
}

/// How much of the first copy is there, in tenths.
fn copied_tenths(status: &Status) -> u64 {
    status.copied.of_bytes.map_or(0, |of| status.copied.bytes * 10 / of.max(1))
}

fn failed(error: Error) -> Failure {
    let advice = match error.code() {
        2011 => {
            "\nthe first has let go of changes that the second needs: begin anew (plinth dr abort, then start --clear), \
                 or use the second as it is (plinth dr abort --dstonly)"
        }
        1004 => "\nif the first is gone, make the second free: plinth dr abort --to F --dstonly",
        _ => "",
    };
    Failure::of("cannot do that", format!("{error}{advice}"))
}
