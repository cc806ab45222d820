//! The corpus of every target, and some mutations of it, with every run of the tests: what a fuzzer
//! found once stays found.
//!
//! A target that breaks says which file it was, or which mutation of which seed.

use plinth_env::{Env, block_on};
use plinth_fuzz::{Mutator, TARGETS, seeds};
use plinth_proto::{Frame, Request};
use std::path::Path;

/// Most bytes of a file of the corpus: a fuzzer's minimised ones are far smaller.
const MOST_BYTES: usize = 4096;

fn files(target: &str) -> Vec<(String, Vec<u8>)> {
    let env = Env::real();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let names = block_on(env.files().list(&dir))
        .unwrap_or_else(|error| panic!("no corpus of {target}: {error}"));
    let read = |name: String| {
        let bytes = block_on(env.files().read(dir.join(&name))).unwrap();
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// Says what was being tried when a target broke.
struct Trying<'a>(&'a str, String);

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("target {} broke on {}", self.0, self.1);
        }
    }
}

#[test]
fn each_file_of_the_corpus_does_no_harm() {
    for target in TARGETS {
        let files = files(target.name);
        assert!(files.len() >= seeds(target.name).len() && !files.is_empty(), "{}", target.name);
        for (name, bytes) in files {
            assert!(bytes.len() <= MOST_BYTES, "{}/{name} has {} bytes", target.name, bytes.len());
            let _trying = Trying(target.name, name);
            (target.run)(&bytes);
        }
    }
}

#[test]
fn the_corpus_has_every_valid_message_as_it_is_now() {
    for target in TARGETS {
        let files = files(target.name);
        for (name, bytes) in seeds(target.name) {
            let kept = files.iter().find(|(file, _)| *file == name);
            assert!(
                kept.is_some_and(|(_, kept)| *kept == bytes),
                "{}/{name} is another: cargo run -p plinth-fuzz -- seeds",
                target.name
            );
        }
    }
}

/// What the official bindings were heard to say: watches and reads of the system's keys, too.
#[test]
fn what_was_recorded_has_watches_and_system_keys() {
    let recorded = |target| files(target).into_iter().filter(|(name, _)| is_recorded(name));
    let (mut watches, mut of_system) = (0, 0);
    for (name, bytes) in recorded("requests") {
        match Request::decode(&Frame { id: 1, kind: bytes[0], body: &bytes[1..] }) {
            Ok(Request::Watch { .. }) => watches += 1,
            Ok(Request::GetMany { keys, .. }) => {
                of_system += usize::from(keys.iter().any(|key| key.starts_with(b"\xff")));
            }
            Ok(_) => {}
            Err(error) => panic!("{name}: {error}"),
        }
    }
    assert!(watches > 0 && of_system > 0, "{watches} watches, {of_system} of the system");
    assert!(recorded("connection").count() > 3, "whole connections");
}

fn is_recorded(name: &str) -> bool {
    name.starts_with("recorded-")
}

#[test]
fn mutations_of_the_corpus_do_no_harm() {
    for target in TARGETS {
        let corpus: Vec<_> = files(target.name).into_iter().map(|(_, bytes)| bytes).collect();
        let runs = match target.name {
            // A world of its own for each.
            "connection" | "http" => 150,
            // Certificates are read for each, or files are written.
            "tls_peers" => 300,
            "series_parquet" => 3_000,
            _ => 20_000,
        };
        for seed in 0..runs {
            let bytes = Mutator::new(seed).mutate(&corpus);
            let _trying = Trying(target.name, format!("mutation {seed} of its corpus: {bytes:?}"));
            (target.run)(&bytes);
        }
    }
}
