//! The command line of the simulation, shared by `plinth-sim` and `plinth sim`.
//!
//! It runs seeds of specs, any number of them, prints each failure with the command that runs it
//! again, and ends with the sum: runs, commits, and which rare paths were reached or never reached.
//! Or it kills real processes.

use crate::bugs::Bug;
use crate::many::{Sum, run_many};
use crate::plan::{Caller, Plan};
use crate::probes::PRODUCT_IS_COUNTED;
use crate::spec::{BUILT_IN, Spec};
use crate::{hostile, kill, kill_nodes, writer};
use plinth_env::{say, tell};
use plinth_pipeline::EngineKind;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// After how many events that befell real servers one line more says how it goes.
const ROUNDS_TOLD: u64 = 10;

const USAGE: &str = "\
Runs a whole database in a simulated world, under crashes and disk faults, and judges what its clients saw.

Usage: make sim ARGS='[--seed N] [--count N] [--spec F,...]'   or   plinth sim [--seed N] ...

  --seed N       the first seed [default: 1]
  --count N      how many seeds of each spec [default: 1 if --seed is given, else 100]
  --spec F,...   these specs: names of built-in ones, or TOML files [default: all built-in ones]
  --jobs N       how many runs side by side [default: 2]
  --nodes N      on so many nodes, whatever the specs say
  --no-faults    nothing goes wrong
  --bug NAME     a mistake to have on purpose (a build with planted bugs)
  --verbose      a line for each run, not only for those that fail
  --list         names the built-in specs and what they are about
  --kills N      instead: kill N real processes that write to real files, at random instants; with --nodes 3 real
                 servers of a cluster are killed, ended, stopped, cut off and delayed N times (plinth sim alone)
  --hostile N    instead: a real server, N hostile connections and ten good clients beside them (plinth sim alone)
  --seconds N    for how long [default: 60]
  --attacks A,.. what they do [default: all that there is]
  --engine NAME  on which engine, memory or ssd [default: memory]
  --at-most A,B  fails if good clients wait (p99) more than A times as long as undisturbed while they are attacked, or
                 more than B times in what follows a second after, or if a probe of /health isn't answered

The same seed gives the same run on every machine; the trace number says so.";

struct Arguments {
    seed: u64,
    count: u64,
    specs: Vec<Arc<Spec>>,
    jobs: usize,
    faults: bool,
    bug: Option<Bug>,
    verbose: bool,
    nodes: Option<u64>,
    kills: Option<u64>,
    hostile: Hostile,
}

/// What there is to say of hostile clients.
struct Hostile {
    attackers: Option<u64>,
    seconds: u64,
    attacks: String,
    engine: EngineKind,
    at_most: Option<[f64; 2]>,
}

/// `own` are the specs that there are, instead of the built-in ones and files.
fn parse(arguments: &[String], own: Option<&[Spec]>) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        seed: 1,
        count: 0,
        specs: Vec::new(),
        jobs: 2,
        faults: true,
        bug: None,
        verbose: false,
        nodes: None,
        kills: None,
        hostile: Hostile {
            attackers: None,
            seconds: 60,
            attacks: String::new(),
            engine: EngineKind::Memory,
            at_most: None,
        },
    };
    let mut specs = Vec::new();
    let mut rest = arguments.iter();
    let mut count = None;
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--seed" => {
                parsed.seed = number(value()?)?;
                count = count.or(Some(1));
            }
            "--count" => count = Some(number(value()?)?),
            "--spec" => {
                for name in value()?.split(',') {
                    specs.push(own.map_or_else(|| Spec::find(name), |own| among(own, name))?);
                }
            }
            "--jobs" => parsed.jobs = number(value()?)?.clamp(1, 64) as usize,
            "--no-faults" => parsed.faults = false,
            "--bug" => parsed.bug = Some(bug(value()?)?),
            "--kills" => parsed.kills = Some(number(value()?)?),
            "--hostile" => parsed.hostile.attackers = Some(number(value()?)?),
            "--seconds" => parsed.hostile.seconds = number(value()?)?.max(1),
            "--attacks" => parsed.hostile.attacks.clone_from(value()?),
            "--engine" => parsed.hostile.engine = engine(value()?)?,
            "--at-most" => parsed.hostile.at_most = Some(at_most(value()?)?),
            "--nodes" => parsed.nodes = Some(nodes(value()?)?),
            "--verbose" => parsed.verbose = true,
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    parsed.count = count.unwrap_or(100);
    if specs.is_empty() {
        specs = own.map_or_else(Spec::all, <[Spec]>::to_vec);
    }
    let fitted = |spec: Spec| match parsed.nodes {
        Some(nodes) => spec.on(nodes),
        None => spec,
    };
    parsed.specs = specs.into_iter().map(|spec| Arc::new(fitted(spec))).collect();
    Ok(parsed)
}

/// The one of this name.
fn among(specs: &[Spec], name: &str) -> Result<Spec, String> {
    specs.iter().find(|spec| spec.name == name).cloned().ok_or_else(|| {
        let known: Vec<&str> = specs.iter().map(|spec| &spec.name[..]).collect();
        format!("there is no spec {name:?}; there are {}", known.join(", "))
    })
}

fn engine(name: &str) -> Result<EngineKind, String> {
    let known = [EngineKind::Memory, EngineKind::Ssd];
    let found = known.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("there is no engine {name:?}; there are memory and ssd"))
}

/// How many times as long good clients may wait under attack, and afterwards.
fn at_most(text: &str) -> Result<[f64; 2], String> {
    let times = |text: &str| text.parse().ok().filter(|times: &f64| *times >= 1.0);
    let (attacked, after) = text.split_once(',').unwrap_or_default();
    match (times(attacked), times(after)) {
        (Some(attacked), Some(after)) => Ok([attacked, after]),
        _ => Err(format!("{text:?} says no times as long, from 1 on: as 10,2")),
    }
}

fn nodes(text: &str) -> Result<u64, String> {
    let nodes = number(text)?;
    let can_be = (1..=7).contains(&nodes) && !nodes.is_multiple_of(2);
    can_be.then_some(nodes).ok_or_else(|| format!("{nodes} nodes are none of 1, 3, 5, 7"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn bug(name: &str) -> Result<Bug, String> {
    if !cfg!(feature = "planted-bugs") {
        return Err("this build has no planted bugs".to_string());
    }
    Bug::named(name).ok_or_else(|| {
        let known: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        format!("there is no bug {name:?}; there are:\n  {}", known.join("\n  "))
    })
}

/// Does what the command line says. `program` starts this same command line again, for the
/// processes to be killed; people do so by the words of `caller`. The exit code: 0 if nothing was
/// found wrong, 1 if something was, 2 if the command line makes no sense.
pub fn run(caller: Caller, program: &[OsString], arguments: &[String]) -> u8 {
    match arguments {
        [command, dir, engine] if command == writer::COMMAND => {
            return writer::run(Path::new(dir), engine);
        }
        [command, rest @ ..] if command == hostile::COMMAND => return hostile::attack(rest),
        [list] if list == "--list" => {
            return list_specs(&Spec::all());
        }
        _ => {}
    }
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        show(USAGE);
        return 0;
    }
    match parse(arguments, None) {
        Ok(Arguments {
            hostile:
                Hostile { attackers: Some(attackers), seconds, attacks: kinds, engine, at_most },
            seed,
            ..
        }) => {
            let time = Duration::from_secs(seconds);
            let engine = engine.name().to_owned();
            let siege = hostile::Siege { attackers, time, kinds, engine, seed, at_most };
            besiege(caller, program, &siege)
        }
        Ok(Arguments { kills: Some(rounds), nodes: Some(nodes), seed, .. }) if nodes > 1 => {
            kill_nodes(caller, program, (nodes, rounds), seed)
        }
        Ok(Arguments { kills: Some(rounds), seed, .. }) => kill(caller, program, rounds, seed),
        Ok(arguments) => simulate(caller, arguments),
        Err(what) => {
            tell(format_args!("{what}\n\n{USAGE}"));
            2
        }
    }
}

/// The same for a program that brings specs of its own, which are all there are; people start it by
/// these words, such as `cargo run --`. Real processes are not killed by it. The exit code is as
/// that of [`run`].
pub fn run_own(words: &'static str, specs: &[Spec], arguments: &[String]) -> u8 {
    if arguments.iter().any(|argument| argument == "--list") {
        return list_specs(specs);
    }
    let parsed = parse(arguments, Some(specs)).and_then(|parsed| {
        match parsed.kills.or(parsed.hostile.attackers) {
            Some(_) => Err("--kills and --hostile are options of plinth sim alone".to_string()),
            None => Ok(parsed),
        }
    });
    match parsed {
        Ok(parsed) => simulate(Caller::Program(words), parsed),
        Err(what) => {
            tell(format_args!("{what}\n\n{}", options()));
            2
        }
    }
}

/// What there is to be said to a program's command line that makes no sense.
fn options() -> &'static str {
    USAGE.split_once("\n\n  --seed").map_or(USAGE, |(usage, _)| &USAGE[usage.len() + 2..])
}

/// Prints what was found. If nobody reads it any more the exit code still says how it went.
fn show(text: impl Display) {
    let _ = say(text);
}

fn list_specs(specs: &[Spec]) -> u8 {
    for spec in specs {
        show(format_args!("{:24} {}", spec.name, spec.about));
    }
    0
}

fn kill(caller: Caller, program: &[OsString], rounds: u64, seed: u64) -> u8 {
    match kill::rounds(program, rounds, seed) {
        Ok(kill::Kills { rounds, while_opening, acknowledged, tables: _ }) => {
            show(format_args!(
                "{rounds} processes killed, {while_opening} while opening; nothing of {acknowledged} commits lost"
            ));
            0
        }
        Err(what) => {
            let again = caller.command(&format!("--kills {rounds} --seed {seed}"));
            tell(format_args!("{what}\nagain: {again} (real processes: it may go another way)"));
            1
        }
    }
}

fn kill_nodes(caller: Caller, program: &[OsString], (nodes, rounds): (u64, u64), seed: u64) -> u8 {
    if caller != Caller::Plinth {
        tell(format_args!(
            "servers are what `plinth server` starts: plinth sim --kills {rounds} --nodes {nodes} --seed {seed}"
        ));
        return 2;
    }
    let heard = |round: u64| {
        if round.is_multiple_of(ROUNDS_TOLD) && round < rounds {
            tell(format_args!("{round} of {rounds}: all clients are served"));
        }
    };
    match kill_nodes::rounds(&program[..1], nodes as usize, rounds, seed, &heard) {
        Ok(judged) => {
            show(judged.to_string().trim_end());
            0
        }
        Err(what) => {
            let again = caller.command(&format!("--kills {rounds} --nodes {nodes} --seed {seed}"));
            tell(format_args!("{what}\nagain: {again} (real processes: it may go another way)"));
            1
        }
    }
}

fn besiege(caller: Caller, program: &[OsString], siege: &hostile::Siege) -> u8 {
    let hostile::Siege { attackers, time, kinds, engine, seed, at_most } = siege;
    let attacks = if kinds.is_empty() { String::new() } else { format!(" --attacks {kinds}") };
    let bound = at_most.map(|[attacked, after]| format!(" --at-most {attacked},{after}"));
    let line = format!(
        "--hostile {attackers} --seconds {}{attacks} --engine {engine} --seed {seed}{}",
        time.as_secs(),
        bound.unwrap_or_default()
    );
    let (Caller::Plinth, Some(first)) = (caller, program.first()) else {
        tell(format_args!("servers are what `plinth server` starts: plinth sim {line}"));
        return 2;
    };
    tell(format_args!(
        "{attackers} hostile connections and ten good clients for {} seconds ...",
        time.as_secs()
    ));
    let judged = hostile::besiege(first, program, siege).and_then(|judged| {
        show(judged.to_string().trim_end());
        let beyond = judged.beyond();
        if beyond.is_empty() { Ok(()) } else { Err(beyond.join("\n")) }
    });
    match judged {
        Ok(()) => 0,
        Err(what) => {
            tell(format_args!(
                "{what}\nagain: {} (real processes: it may go another way)",
                caller.command(&line)
            ));
            1
        }
    }
}

fn simulate(caller: Caller, arguments: Arguments) -> u8 {
    let Arguments { seed, count, specs, jobs, faults, bug, verbose, .. } = arguments;
    let has_all = specs.len() >= BUILT_IN.len();
    let plans = (seed..seed.saturating_add(count)).flat_map(move |seed| {
        specs.clone().into_iter().map(move |spec| Plan {
            faults,
            bug,
            caller,
            ..Plan::new(spec, seed)
        })
    });
    let sum = run_many(plans, jobs, move |report| {
        let is_told = verbose || report.failure.is_some();
        !is_told || say(report).is_ok()
    });
    print(&sum, has_all);
    u8::from(!sum.failed.is_empty())
}

fn print(sum: &Sum, has_all: bool) {
    for (name, count) in sum.probes.iter().filter(|(_, count)| *count > 0) {
        show(format_args!("  {count:>9}  {name}"));
    }
    let never = sum.probes.never_reached();
    if has_all && !never.is_empty() {
        show(format_args!("never reached: {}", never.join("; ")));
    }
    if !PRODUCT_IS_COUNTED {
        show("rare paths of the product are not counted: its probes are not built in");
    }
    for report in &sum.failed {
        show(format_args!("failed: {}", report.plan.reproduction()));
    }
    let Sum { runs, committed, lives, failed, .. } = sum;
    show(format_args!("{runs} runs, {committed} commits, {lives} lives, {} failed", failed.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>(), None)
    }

    #[test]
    fn a_seed_alone_is_one_run_of_each_spec() {
        let one = parsed("--seed 7").unwrap();
        assert_eq!((one.seed, one.count, one.specs.len()), (7, 1, BUILT_IN.len()));
        let many = parsed("--spec cycle,watches --count 5 --no-faults --jobs 3").unwrap();
        assert_eq!((many.seed, many.count, many.specs.len(), many.jobs), (1, 5, 2, 3));
        assert!(!many.faults);
        let three = parsed("--spec cycle --seed 4 --nodes 3").unwrap();
        let again = Plan::new(three.specs[0].clone(), 4).reproduction();
        assert_eq!(again, "make sim ARGS='--spec cycle --seed 4 --nodes 3'");
    }

    #[test]
    fn a_program_has_its_own_specs_alone() {
        let own = [Spec::find("quiet").unwrap()];
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_string).collect() };
        let parsed = parse(&words("--seed 3"), Some(&own)).unwrap();
        let plan = Plan {
            caller: Caller::Program("cargo run --"),
            ..Plan::new(parsed.specs[0].clone(), parsed.seed)
        };
        assert_eq!(
            (parsed.specs.len(), &plan.reproduction()[..]),
            (1, "cargo run -- --spec quiet --seed 3")
        );
        let error = parse(&words("--spec cycle"), Some(&own)).err().unwrap();
        assert_eq!(error, "there is no spec \"cycle\"; there are quiet");
        assert_eq!(run_own("x", &own, &words("--kills 3")), 2);
        assert_eq!(run_own("x", &own, &words("--seed 3 --no-faults")), 0);
        assert!(options().starts_with("  --seed N "));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (line, says) in [
            ("--sed 7", "--sed"),
            ("--seed", "value"),
            ("--seed x", "number"),
            ("--spec no", "no file"),
            ("--nodes 2", "1, 3"),
            ("--at-most 10", "as 10,2"),
            ("--at-most 10,NaN", "as 10,2"),
            ("--at-most 0.5,2", "as 10,2"),
        ] {
            let error = parsed(line).err().unwrap();
            assert!(error.contains(says), "{line}: {error}");
        }
    }
}
