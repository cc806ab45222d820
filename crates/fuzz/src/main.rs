//! `plinth-fuzz TARGET SECONDS [SEED]`: mutates a target's corpus and runs the target on it, until
//! the time is over; `all` is each target for so long.
//!
//! `plinth-fuzz seeds` writes the valid inputs of all targets into the corpus, and
//! `plinth-fuzz record LISTEN SERVER` what clients say that connect to LISTEN. What breaks a target
//! is left beside the corpus as `fuzz/found-TARGET`. A run that never ends is told by its seed:
//! nothing is printed.
#![forbid(unsafe_code)]

use plinth_env::{Env, block_on};
use plinth_fuzz::{Mutator, TARGETS, Target, seeds, target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "plinth-fuzz TARGET|all SECONDS [SEED] | plinth-fuzz seeds | plinth-fuzz record LISTEN SERVER";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["seeds"] => write_seeds(),
        ["record", listen, server] => record(listen, server),
        ["all", seconds] => fuzz_all(seconds, "1"),
        ["all", seconds, seed] => fuzz_all(seconds, seed),
        [name, seconds] => fuzz(name, seconds, "1"),
        [name, seconds, seed] => fuzz(name, seconds, seed),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("plinth-fuzz: {why}\ntargets: {}", names.join(", "));
            ExitCode::FAILURE
        }
    }
}

fn write_seeds() -> Result<(), String> {
    let env = Env::real();
    for Target { name, .. } in TARGETS {
        let dir = folder().join("corpus").join(name);
        block_on(env.files().create_dir_all(&dir)).map_err(|error| error.to_string())?;
        for (seed, bytes) in seeds(name) {
            block_on(env.files().replace(&dir.join(seed), &bytes))
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn record(listen: &str, server: &str) -> Result<(), String> {
    let address = |text: &str| text.parse().map_err(|_| format!("{text} is no address; {USAGE}"));
    let (env, corpus) = (Env::real(), folder().join("corpus"));
    let recording = plinth_fuzz::record(&env, address(listen)?, address(server)?, &corpus);
    block_on(recording).map_err(|error| error.to_string())
}

/// Each target for so long, whatever becomes of the others.
fn fuzz_all(seconds: &str, seed: &str) -> Result<(), String> {
    let runs = TARGETS.iter().map(|target| fuzz(target.name, seconds, seed));
    let broken: Vec<String> = runs.filter_map(Result::err).collect();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

fn fuzz(name: &str, seconds: &str, seed: &str) -> Result<(), String> {
    let target = target(name).ok_or_else(|| format!("there is no target {name}"))?;
    let number =
        |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number; {USAGE}"));
    let (seconds, seed) = (number(seconds)?, number(seed)?);
    let env = Env::real();
    let corpus = corpus(&env, name)?;
    let found = folder().join(format!("found-{name}"));
    let mut mutator = Mutator::new(seed);
    let (mut runs, until) = (0_u64, env.now() + Duration::from_secs(seconds));
    while env.now() < until {
        let bytes = mutator.mutate(&corpus);
        let harmless = std::panic::catch_unwind(|| (target.run)(&bytes)).is_ok();
        if !harmless {
            block_on(env.files().replace(&found, &bytes)).map_err(|error| error.to_string())?;
            return Err(format!("run {runs} of seed {seed} broke {name}: see {}", found.display()));
        }
        runs += 1;
    }
    println!("{name}: {runs} runs of seed {seed} in {seconds} s, from {} files", corpus.len());
    Ok(())
}

fn corpus(env: &Env, name: &str) -> Result<Vec<Vec<u8>>, String> {
    let dir = folder().join("corpus").join(name);
    let names = block_on(env.files().list(&dir)).map_err(|error| error.to_string())?;
    let read = |name: &String| {
        block_on(env.files().read(dir.join(name))).map_err(|error| error.to_string())
    };
    names.iter().map(read).collect()
}
