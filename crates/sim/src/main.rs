//! `plinth-sim`: runs seeds of the simulation, any number of them, and says which failed.

use plinth_sim::probes::Probes;
use plinth_sim::{Plan, Report, kill, run, workloads, writer};
use std::process::ExitCode;

const USAGE: &str = "\
Runs a whole database in a simulated world, under crashes and disk faults, and judges what its clients saw.

Usage: plinth-sim [--seed N] [--count N] [--workload NAME,...] [--no-faults] [--verbose]

  --seed N           the first seed (default 1)
  --count N          how many seeds of each workload (default 1 if --seed is given, else 100)
  --workload NAMES   these workloads, with commas between (default: all)
  --no-faults        nothing goes wrong
  --verbose          a line for each run, not only for those that fail
  --kills N          instead: kill N real processes that write to real files, at random instants

The same seed gives the same run on every machine; the trace number says so.";

struct Arguments {
    seed: u64,
    count: u64,
    workloads: Vec<String>,
    faults: bool,
    verbose: bool,
    kills: Option<u64>,
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let workloads = workloads::NAMES.iter().map(|name| (*name).to_string()).collect();
    let mut parsed = Arguments { seed: 1, count: 0, workloads, faults: true, verbose: false, kills: None };
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
            "--workload" => parsed.workloads = value()?.split(',').map(str::to_string).collect(),
            "--no-faults" => parsed.faults = false,
            "--kills" => parsed.kills = Some(number(value()?)?),
            "--verbose" => parsed.verbose = true,
            other => return Err(format!("there is no option {other:?}")),
        }
    }
    parsed.count = count.unwrap_or(100);
    match parsed.workloads.iter().find(|name| !workloads::NAMES.contains(&name.as_str())) {
        Some(name) => {
            Err(format!("there is no workload {name:?}; there are {}", workloads::NAMES.join(", ")))
        }
        None => Ok(parsed),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, dir] = &arguments[..]
        && command == writer::COMMAND
    {
        return writer::run(std::path::Path::new(dir));
    }
    if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(&arguments) {
        Ok(Arguments { kills: Some(rounds), seed, .. }) => kill(rounds, seed),
        Ok(arguments) => simulate(&arguments),
        Err(what) => {
            eprintln!("{what}\n\n{USAGE}");
            ExitCode::FAILURE
        }
    }
}

fn kill(rounds: u64, seed: u64) -> ExitCode {
    let killed = std::env::current_exe()
        .map_err(|error| error.to_string())
        .and_then(|program| kill::rounds(&program, rounds, seed));
    match killed {
        Ok(kill::Kills { rounds, while_opening, acknowledged }) => {
            println!(
                "{rounds} processes killed, {while_opening} while opening; nothing of {acknowledged} commits lost"
            );
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!(
                "{what}\nagain: plinth-sim --kills {rounds} --seed {seed} (real processes: it may go another way)"
            );
            ExitCode::FAILURE
        }
    }
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let (mut probes, mut runs, mut failed): (_, u64, Vec<Report>) = (Probes::default(), 0, Vec::new());
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.count) {
        for workload in &arguments.workloads {
            let plan = Plan { faults: arguments.faults, ..Plan::new(workload, seed) };
            let report = run(&plan);
            runs += 1;
            probes.merge(&report.probes);
            if arguments.verbose || report.failure.is_some() {
                println!("{report}");
            }
            if report.failure.is_some() {
                failed.push(report);
            }
        }
    }
    println!("{runs} runs, {} failed", failed.len());
    for (name, count) in probes.iter() {
        println!("  {count:>9}  {name}");
    }
    let never = probes.never_reached();
    if !never.is_empty() {
        println!("never reached: {}", never.join("; "));
    }
    for report in &failed {
        println!("failed: {}", report.plan.reproduction());
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
