//! What the C API adds to the client: the workloads of `workloads.c`, once by the C program and
//! once by the client itself.
//!
//! `cargo bench -p plinth-capi` prints nanoseconds of processor time an operation for both and
//! their ratio: of turns that the two take, the best of each, for whatever else the machine does
//! can only add to that. Under `cargo test` each runs once, shortly, to see that it runs. Each has
//! a store of its own in memory, filled alike; what only reads comes first, before there are older
//! versions to clear away. The C program is compiled here; a machine without a C compiler says so.
use plinth_client::{Database, RangeOptions, StreamingMode, Transaction};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const ROWS: u32 = 100_000;
const VALUE: [u8; 100] = [b'v'; 100];
const IN_FLIGHT: usize = 64;
const PARTS: usize = 10;
/// Names and how often each runs, relative to the rounds that are asked for: as in `workloads.c`.
const WORKLOADS: [(&str, usize, Body); 4] =
    [("get", 20, get), ("range", 4, range), ("set", 1, set), ("mixed", 1, mixed)];

type Body = fn(&mut Bench, usize) -> usize;

struct Bench {
    transactions: Vec<Transaction>,
    chance: u64,
    seen: usize,
}

impl Bench {
    fn new() -> Self {
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).expect("a store");
        let db = Database::new(Arc::new(node.endpoint()));
        let transactions = (0..IN_FLIGHT).map(|_| db.create_transaction()).collect();
        let bench = Self { transactions, chance: 1, seen: 0 };
        for first in (0..ROWS).step_by(1000) {
            let tr = bench.fresh(0);
            (first..first + 1000).for_each(|number| tr.set(key(number), VALUE));
            tr.commit().wait().expect("a commit");
        }
        bench.fresh(0);
        bench
    }

    fn chance(&mut self) -> u32 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32 % ROWS
    }

    fn key(&mut self) -> [u8; 16] {
        key(self.chance())
    }

    fn fresh(&self, number: usize) -> &Transaction {
        let tr = &self.transactions[number];
        tr.reset();
        tr
    }

    fn look(&mut self, value: Option<plinth_client::Bytes>) {
        self.seen += value.map_or(0, |value| usize::from(value[0]) + value.len());
    }
}

fn key(mut number: u32) -> [u8; 16] {
    let mut key = [b'k'; 16];
    for digit in key.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

fn get(bench: &mut Bench, round: usize) -> usize {
    if round.is_multiple_of(20) {
        bench.fresh(0);
    }
    let mut reads = Vec::with_capacity(100);
    for _ in 0..100 {
        let key = bench.key();
        reads.push(bench.transactions[0].snapshot().get(key));
    }
    for read in reads {
        let value = read.wait().expect("a read");
        bench.look(value);
    }
    100
}

fn set(bench: &mut Bench, _: usize) -> usize {
    let mut commits = Vec::with_capacity(IN_FLIGHT);
    for number in 0..IN_FLIGHT {
        bench.fresh(number);
        for _ in 0..20 {
            let key = bench.key();
            bench.transactions[number].set(key, VALUE);
        }
        commits.push(bench.transactions[number].commit());
    }
    commits.into_iter().for_each(|commit| commit.wait().expect("a commit"));
    IN_FLIGHT * 20
}

fn mixed(bench: &mut Bench, _: usize) -> usize {
    let mut reads = Vec::with_capacity(IN_FLIGHT);
    for number in 0..IN_FLIGHT {
        bench.fresh(number);
        let mut nine = Vec::with_capacity(9);
        for _ in 0..9 {
            let key = bench.key();
            nine.push(bench.transactions[number].snapshot().get(key));
        }
        reads.push(nine);
    }
    let mut commits = Vec::with_capacity(IN_FLIGHT);
    for (number, reads) in reads.into_iter().enumerate() {
        for read in reads {
            let value = read.wait().expect("a read");
            bench.look(value);
        }
        let key = bench.key();
        bench.transactions[number].set(key, VALUE);
        commits.push(bench.transactions[number].commit());
    }
    commits.into_iter().for_each(|commit| commit.wait().expect("a commit"));
    IN_FLIGHT * 10
}

fn range(bench: &mut Bench, round: usize) -> usize {
    if round.is_multiple_of(20) {
        bench.fresh(0);
    }
    let begin = key(bench.chance() / 2);
    let mut options = RangeOptions::from(&begin[..]..&b"l"[..]);
    options.limit = Some(1000);
    options.mode = StreamingMode::Exact;
    let result = bench.transactions[0].snapshot().get_range(options).wait().expect("a read");
    let looked: usize =
        result.rows.iter().map(|(key, value)| usize::from(key[15]) + value.len()).sum();
    bench.seen += looked;
    result.rows.len()
}

/// Nanoseconds of processor time an operation of each workload, by the client itself.
fn native(rounds: usize) -> Vec<f64> {
    let env = Env::real();
    let mut bench = Bench::new();
    let measured = WORKLOADS.iter().map(|(_, factor, body)| {
        let rounds = rounds * factor;
        for round in 0..rounds / 10 + 1 {
            body(&mut bench, round);
        }
        best((0..PARTS).map(|_| {
            let begun = env.cpu_time();
            let operations: usize =
                (0..rounds / PARTS + 1).map(|round| body(&mut bench, round)).sum();
            (env.cpu_time() - begun).as_nanos() as f64 / operations as f64
        }))
    });
    let measured = measured.collect();
    eprintln!("seen {}", bench.seen);
    measured
}

/// The same by the C program.
fn by_c(program: &Path, rounds: usize) -> Vec<f64> {
    let output = Command::new(program)
        .args([":memory:", &rounds.to_string()])
        .env("LD_LIBRARY_PATH", library())
        .env("DYLD_LIBRARY_PATH", library())
        .output()
        .expect("the C program starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.split_once(' ')?.1.parse().ok()).collect()
}

/// The folder with the library: cargo builds it beside the benchmarks.
fn library() -> PathBuf {
    let bench = std::env::current_exe().expect("a running benchmark has a path");
    bench.parent().expect("it lies in a folder").to_path_buf()
}

fn compile(folder: &Path) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = folder.join("workloads");
    let built = Command::new("cc")
        .args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-I"])
        .arg(here.join("include"))
        .arg(here.join("benches/workloads.c"))
        .arg("-L")
        .arg(library())
        .args(["-lfdb_c", "-lpthread", "-o"])
        .arg(&program)
        .status();
    match built {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        built => built.is_ok_and(|status| status.success()).then_some(program),
    }
}

fn best(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(f64::INFINITY, f64::min)
}

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (turns, rounds) = if measured { (27, 100) } else { (1, 1) };
    let env = Env::real();
    let folder = block_on(env.files().temporary_dir("overhead")).expect("a folder");
    let Some(program) = compile(folder.path()) else {
        return println!(
            "there is no C compiler on this machine, or it fails: nothing to compare with"
        );
    };
    let (mut c, mut rust) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        rust.push(native(rounds));
        c.push(by_c(&program, rounds));
    }
    println!("{:<8}{:>12}{:>12}{:>8}", "", "client ns", "C ns", "ratio");
    for (at, (name, ..)) in WORKLOADS.iter().enumerate() {
        let native = best(rust.iter().map(|turn| turn[at]));
        let by_c = best(c.iter().map(|turn| turn[at]));
        println!("{name:<8}{native:>12.1}{by_c:>12.1}{:>8.2}", by_c / native);
    }
}
