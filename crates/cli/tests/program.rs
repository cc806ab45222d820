//! The program as its users meet it: what it prints, where, and the code it ends with.
//!
//! Each test runs the real binary, with `TMPDIR` pointing to a directory of its own, so that
//! whatever is left behind is seen.

mod common;

use common::Running;
use plinth_env::{Env, Open, TemporaryDir, block_on};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A place for temporary files, and for the databases of one test.
struct Place {
    scratch: TemporaryDir,
    work: TemporaryDir,
}

impl Place {
    fn new() -> Self {
        let make = |name| block_on(Env::real().files().temporary_dir(name)).unwrap();
        Self { scratch: make("plinth-cli-scratch"), work: make("plinth-cli-work") }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        command.args(arguments).env("TMPDIR", self.scratch.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        Ended::new(self.command(arguments).output().unwrap())
    }

    /// A path in this test's own directory.
    fn path(&self, name: &str) -> String {
        self.work.path().join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8(block_on(Env::real().files().read(self.work.path().join(name))).unwrap())
            .unwrap()
    }

    fn list(&self, name: &str) -> Vec<String> {
        block_on(Env::real().files().list(self.work.path().join(name))).unwrap()
    }

    fn left_behind(&self) -> Vec<String> {
        block_on(Env::real().files().list(self.scratch.path())).unwrap()
    }
}

/// What became of a run.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Asserts the code, and that the words appear in what it printed to standard output.
    #[track_caller]
    fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        let missing: Vec<_> = words.iter().filter(|word| !self.out.contains(**word)).collect();
        assert!(missing.is_empty(), "{missing:?} in {self:#?}");
        assert!(
            !self.out.contains('\x1b') && !self.err.contains('\x1b'),
            "colours without a terminal: {self:#?}"
        );
    }

    /// Asserts the code, and that the words appear in what it printed to standard error, and
    /// nothing on the other.
    #[track_caller]
    fn complains(&self, code: i32, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{self:#?}");
        let missing: Vec<_> = words.iter().filter(|word| !self.err.contains(**word)).collect();
        assert!(missing.is_empty(), "{missing:?} in {self:#?}");
        assert!(!self.err.contains('\x1b') && !self.err.contains("panicked"), "{self:#?}");
    }
}

/// Options for a benchmark that is over in an instant.
const TINY: &[&str] = &["--rows", "500", "--seconds", "0.02", "--rest", "0.01"];

fn bench(place: &Place, more: &[&str]) -> Ended {
    place.run(&[&["bench"], TINY, more].concat())
}

#[test]
fn version_and_help_say_what_there_is() {
    let place = Place::new();
    place.run(&["version"]).says(0, &["plinth 0.", "commit"]);
    place.run(&["--version"]).says(0, &["plinth 0."]);
    place.run(&["--help"]).says(0, &["demo", "bench", "shell", "check", "salvage", "Exit codes"]);
    place.run(&["help"]).says(0, &["demo", "bench", "shell", "check", "salvage", "Exit codes"]);
    place.run(&["help", "bench"]).says(0, &["write-1000", "90-10", "Examples:", "--json"]);
    place.run(&["bench", "--help"]).says(0, &["write-1000", "90-10", "Examples:", "--json"]);
    assert!(!place.run(&["--help"]).out.contains("demo-writer"), "the victim is not for users");
}

#[test]
fn a_command_line_without_sense_is_told_what_is_wrong_with_it() {
    let place = Place::new();
    place.run(&["dance"]).complains(2, &["dance"]);
    place.run(&["check"]).complains(2, &["DIR"]);
    place.run(&["salvage", "here"]).complains(2, &["OUT"]);
    bench(&place, &["--engine", "steam"]).complains(2, &["steam", "memory"]);
    bench(&place, &["--workload", "read,raed"]).complains(2, &["raed", "write-1000", "guide"]);
    place.run(&["bench", "--seconds", "0"]).complains(2, &["--seconds"]);
    place.run(&["bench", "--seconds", "soon"]).complains(2, &["soon"]);
    place.run(&["bench", "--rows", "0"]).complains(2, &["rows"]);
    place.run(&["bench", "--clients", "-3"]).complains(2, &["-3"]);
    place.run(&["bench", "--memory", "16777216"]).complains(2, &["--memory", "ssd"]);
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

#[test]
fn bench_prints_a_table_writes_its_files_and_leaves_nothing_else() {
    let place = Place::new();
    let (json, markdown) = (place.path("report.json"), place.path("report.md"));
    let html = place.path("report.html");
    let pictures = place.path("pictures");
    let outputs =
        ["--json", &json, "--markdown", &markdown, "--html", &html, "--pictures", &pictures];
    let ended = bench(&place, &[&["--workload", "write1,read,concurrency"][..], &outputs].concat());
    ended.says(
        0,
        &["write1", "917", "read", "305 k", "fdatasync", "500 rows", "FoundationDB's guide"],
    );
    assert!(!ended.out.contains("write3"), "only what was asked for: {}", ended.out);
    let json = place.read("report.json");
    for word in [
        "\"commit\"",
        "\"command\": \"plinth bench",
        "\"processor\"",
        "\"date\"",
        "\"write1\"",
        "\"p999_us\"",
    ] {
        assert!(json.contains(word), "no {word} in {json}");
    }
    assert!(place.read("report.md").contains("| write1"));
    let picture = place.read("pictures/throughput-by-concurrency-90-10.svg");
    assert!(
        picture.starts_with("<svg xmlns")
            && picture.contains("Throughput by concurrency")
            && picture.ends_with("</svg>\n")
    );
    let html = place.read("report.html");
    for word in ["<!doctype html>", "<svg", "Throughput by concurrency", "305 k", "</html>"] {
        assert!(html.contains(word), "no {word} in {html}");
    }
    assert!(
        !html.contains("http") && !html.contains("<script"),
        "the page needs nothing else: {html}"
    );
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// Three servers each, as processes: what happens to them once, a fourth one that takes a few rows,
/// and what they give of what one does.
#[test]
fn bench_measures_failovers_new_members_and_what_three_nodes_give() {
    let place = Place::new();
    let json = place.path("report.json");
    let ended = bench(&place, &["--workload", "failover,catch-up,three-nodes", "--json", &json]);
    ended.says(
        0,
        &[
            "leader killed",
            "leader stopped",
            "leader cut off",
            "leader ended",
            "5,000 rows",
            "rows taken in",
            "100 clients, 10 reads, of one server's",
        ],
    );
    let report: serde_json::Value = place.read("report.json").parse().unwrap();
    let figures = |name: &str| {
        let mut workloads = report["workloads"].as_array().unwrap().iter();
        let found = workloads.find(|workload| workload["name"] == name).unwrap();
        found["figures"]
            .as_array()
            .unwrap()
            .iter()
            .map(|figure| figure["value"].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(
        figures("failover").len() == 8 && figures("failover").iter().all(|seconds| *seconds > 0.0)
    );
    assert!(
        figures("catch-up").len() == 3 && figures("catch-up").iter().all(|figure| *figure > 0.0)
    );
    let of_one = figures("three-nodes");
    // Many clients are hardly through with one transaction of writes each in so short a time.
    let is_some = |at: usize| of_one[at] > 0.0;
    assert!(of_one.len() == 4 && [2, 3].into_iter().all(is_some), "{of_one:?}");
    assert_eq!(place.left_behind(), ["report.json"; 0]);
}

/// What `make bench` does: `--memory` of several engines was a mistake, and `budget` ran only where
/// one was given.
#[test]
fn bench_measures_both_engines_and_whether_the_one_keeps_to_its_memory() {
    let place = Place::new();
    let (json, dir) = (place.path("report.json"), place.path("base"));
    let both = [
        "--engine",
        "memory,ssd",
        "--workload",
        "read,budget,uncached",
        "--dir",
        &dir,
        "--json",
        &json,
    ];
    let ended = bench(&place, &both);
    ended
        .says(0, &["memory engine", "ssd engine", "10,000 rows", "memory loading, of the setting"]);
    assert!(!ended.out.contains("budget did not run"), "{}", ended.out);
    assert_eq!(place.read("report.json").matches("\"name\": \"budget\"").count(), 1);
    let mut left = place.list("base");
    left.sort_unstable();
    assert_eq!(left, ["memory", "ssd"], "a budget's rows don't stay");

    let bounded = ["--engine", "memory,ssd", "--workload", "read,budget", "--memory", "16777216"];
    let ended = bench(&place, &bounded);
    ended.says(0, &["500 rows, 0.0 times a memory of 16.0 MiB", "budget did not run"]);
}

#[test]
fn bench_keeps_a_directory_that_it_was_given_and_uses_its_rows_again() {
    let place = Place::new();
    let dir = place.path("kept");
    bench(&place, &["--workload", "read", "--dir", &dir]).says(0, &["loaded in"]);
    let again = bench(&place, &["--workload", "read,memory", "--dir", &dir]);
    again.says(0, &["read", "memory did not run"]);
    assert!(!again.out.contains("loaded in"), "{again:?}");
    let other = place.run(&[
        "bench",
        "--rows",
        "400",
        "--seconds",
        "0.01",
        "--workload",
        "read",
        "--dir",
        &dir,
    ]);
    other.complains(1, &["--rows 500"]);
}

#[test]
fn the_shell_runs_commands_of_its_command_line() {
    let place = Place::new();
    let dir = place.path("shop");
    let shell = |line: &str| place.run(&["shell", "--dir", &dir, "--exec", line]);
    shell("get a").complains(1, &["shop", "file_not_found", "--create"]);
    let made = place.run(&[
        "shell",
        "--create",
        "--dir",
        &dir,
        "--exec",
        "writemode on; set \"a b\" \\x00",
    ]);
    made.says(0, &["Committed ("]);
    shell("get \"a b\"; getrangekeys \"\"").says(0, &["`a b' is `\\x00'", "`a b'\n"]);
    shell("get").complains(1, &["plinth: get: ", "usage: get KEY"]);
    shell("set a 1").complains(1, &["set: write mode is off"]);
    shell("get \\q").complains(1, &["get: no such escape"]);
    shell("begin; exit; get a").says(0, &["Transaction started"]);
    let nowhere = place.command(&["shell"]).env("FDB_CLUSTER_FILE", place.path("none")).output();
    Ended::new(nowhere.unwrap()).complains(1, &["--dir", "--cluster-file", "none"]);
    place.run(&["shell", "--dir", ":memory:", "--exec", "status"]).says(0, &["Storage engine"]);
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// A script that asks a server which is down waited for ever.
#[test]
fn a_shell_with_a_timeout_waits_no_longer_for_a_server_that_is_down() {
    let place = Place::new();
    let env = plinth_env::Env::real();
    let address = plinth_env::block_on(env.unused_addresses(1)).unwrap()[0];
    let file = place.path("down.cluster");
    let line = format!("down:down@{address}\n");
    plinth_env::block_on(env.files().replace(&file, line.as_bytes())).unwrap();
    let shell = ["shell", "--cluster-file", &file, "--timeout", "1", "--exec", "get a; get b"];
    place.run(&shell).complains(1, &["were not done within 1 s (--timeout)"]);
}

#[test]
fn shell_and_bench_reach_a_server_by_its_cluster_file() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let dir = place.path("served");
    let served = ["server", "--dir", &dir, "--listen", "127.0.0.1:0"];
    let mut server = place.command(&served).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let file = line.split_whitespace().last().unwrap_or_default().to_owned();
    let shell = |line: &str| place.run(&["shell", "--cluster-file", &file, "--exec", line]);
    let ended = [
        shell("writemode on; begin; set a 1; get a; commit; getrange a"),
        shell("status minimal; clear a"),
        shell("writemode on; clear a"),
        bench(&place, &["--workload", "write3,read,restart", "--cluster-file", &file]),
    ];
    server.kill().unwrap();
    server.wait().unwrap();
    ended[0].says(0, &["`a' is `1'", "Committed ("]);
    assert_eq!(ended[1].code, Some(1), "{:?}", ended[1]);
    assert!(
        ended[1].out.contains("available") && ended[1].err.contains("write mode is off"),
        "{:?}",
        ended[1]
    );
    ended[2].says(0, &["Committed ("]);
    ended[3].says(0, &["write3", "read", "restart did not run", "memory (served) engine"]);
}

#[test]
fn the_shell_reads_a_pipe_until_it_ends_or_a_line_fails() {
    let place = Place::new();
    let shell = |input: &str| {
        let mut command = place.command(&["shell", "--dir", ":memory:"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may have ended before it has read all.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        Ended::new(child.wait_with_output().unwrap())
    };
    shell("writemode on\nbegin\nset a 1\nset b 2\ncommit\n\ngetrange a c")
        .says(0, &["`a' is `1'\n`b' is `2'"]);
    let failed = shell("writemode on\nset a 1\nfrobnicate\nget a\n");
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    assert!(failed.err.contains("line 3: frobnicate: there is no such command"), "{failed:#?}");
    assert!(failed.out.contains("Committed") && !failed.out.contains("`a'"), "{failed:#?}");
    shell("get a\nexit\nget b\n").says(0, &["`a': not found"]);
    shell("").says(0, &[]);
}

#[test]
fn a_place_that_cannot_be_used_is_named() {
    let place = Place::new();
    let file = place.path("file");
    block_on(Env::real().files().replace(&file, b"not a database")).unwrap();
    bench(&place, &["--dir", &file]).complains(1, &["cannot open", "file"]);
    // Not even root may make directories there.
    #[cfg(target_os = "linux")]
    bench(&place, &["--dir", "/sys/plinth"]).complains(1, &["cannot open", "/sys/plinth", "ermi"]);
    let json = place.path("no/such/dir/report.json");
    bench(&place, &["--json", &json]).complains(1, &["cannot write", "report.json"]);
    let missing = place.path("missing");
    place.run(&["check", &missing]).complains(1, &["cannot check", "missing", "no database"]);
    place
        .run(&["salvage", &missing, &place.path("out")])
        .complains(1, &["cannot copy", "missing", "no database"]);
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// Its build has no probes of the product, which were all said to be never reached; and a failure
/// named a command of the repository.
#[test]
fn plinth_sim_runs_seeds_and_kills_processes_of_its_own() {
    let place = Place::new();
    place.run(&["sim", "--list"]).says(0, &["cycle"]);
    let ended = place.run(&["sim", "--seed", "3", "--spec", "cycle,watches"]);
    ended.says(0, &["2 runs", "0 failed"]);
    let all = place.run(&["sim", "--seed", "3", "--no-faults"]);
    all.says(0, &["never reached: ", "0 failed"]);
    // A build together with the simulation's own program has them.
    let is_counted = plinth_sim::probes::PRODUCT_IS_COUNTED;
    assert_eq!(all.out.contains("its probes are not built in"), !is_counted, "{}", all.out);
    assert_eq!(all.out.contains("log: torn tail cut"), is_counted, "{}", all.out);
    place.run(&["sim", "--sed", "3"]).complains(2, &["--sed", "plinth sim"]);
    #[cfg(unix)]
    place.run(&["sim", "--kills", "4"]).says(0, &["4 processes killed"]);
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// Under `ulimit -v`, at twice what the bounds add up to; for ten minutes by hand
/// (docs/simulation.md).
#[cfg(target_os = "linux")]
#[test]
fn plinth_sim_has_a_server_stand_hostile_clients_and_serve_good_ones() {
    let place = Place::new();
    place.run(&["sim", "--hostile", "300", "--seconds", "5", "--engine", "ssd"]).says(
        0,
        &["300 hostile connections", "the server serves, nothing was lost", "99th percentile"],
    );
    place
        .run(&["sim", "--hostile", "3", "--engine", "sdd"])
        .complains(2, &["sdd", "memory and ssd"]);
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

#[cfg(unix)]
#[test]
fn bench_kills_a_writer_and_finds_all_that_it_had_acknowledged() {
    let place = Place::new();
    let ended = bench(&place, &["--workload", "restart,checkpoint"]);
    ended.says(0, &["restart", "MB/s", "until the first answer", "acknowledged commits are there"]);
    ended.says(0, &["checkpoint", "a checkpoint adds to the longest commit"]);
    assert!(!place.run(&["--help"]).out.contains("bench-writer"), "the victim is not for users");
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

#[cfg(unix)]
#[test]
fn the_tour_keeps_its_promises() {
    let place = Place::new();
    let ended = place.run(&["demo", "--short"]);
    ended.says(0, &["Transactions", "not_committed (1020)", "visits = 200", "rings", "kill -9"]);
    ended.says(
        0,
        &["nothing acknowledged is lost: 0 of", "no half transaction", "Speed", "That was it"],
    );
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

#[test]
fn a_reader_that_goes_away_ends_a_command_without_a_panic() {
    let place = Place::new();
    let sim = ["sim", "--verbose", "--spec", "quiet", "--count", "3"];
    for arguments in [&["demo", "--short"][..], &["version"], &sim] {
        let command =
            place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = command.unwrap();
        drop(child.stdout.take());
        let ended = Ended::new(child.wait_with_output().unwrap());
        // It may have printed everything before the reader went. That he went is no news.
        assert!(matches!(ended.code, Some(0 | 1)) && ended.err.is_empty(), "{ended:?}");
    }
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// It panicked, with exit code 101, or in a task that others wait for.
#[test]
fn nobody_need_listen_to_what_is_told_on_standard_error() {
    let place = Place::new();
    let bench =
        ["bench", "--workload", "read", "--rows", "500", "--seconds", "0.02", "--rest", "0.01"];
    for (arguments, code) in [(&["check", "./nowhere"][..], 1), (&bench, 0)] {
        let command =
            place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = command.unwrap();
        drop(child.stderr.take());
        let ended = Ended::new(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(code), "{ended:?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_benchmark_with_what_it_has_and_leaves_nothing_behind() {
    use std::io::{BufRead, BufReader, Read};
    let place = Place::new();
    let mut child = place
        .command(&["bench", "--rows", "500", "--seconds", "3600", "--workload", "read,write1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says when the first workload begins; only then there is something to interrupt.
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("read")));
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{out}");
    assert!(out.contains("interrupted"), "{out}");
    assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
}

/// It waited for ever, and heeded nothing but the second Ctrl-C: for one that never answers, and
/// for one that hangs in the middle.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_benchmark_that_waits_for_a_server_that_hangs() {
    let place = Place::new();
    for (name, says) in [("silent", "is waited for (Ctrl-C ends this)"), ("hung", "read")] {
        let server = Running::start(Path::new(&place.path(name)), &["--listen", "127.0.0.1:0"]);
        let file = server.cluster_file();
        let arguments = ["bench", "--rows", "500", "--seconds", "3600", "--workload", "read"];
        let mut command = place.command(&arguments);
        command.arg("--cluster-file").arg(&file).stdout(Stdio::null()).stderr(Stdio::piped());
        if name == "silent" {
            server.signal("-STOP");
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(says)));
        server.signal("-STOP");
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let rest: Vec<_> = lines.collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{name}: {rest:?}");
        server.signal("-CONT");
    }
}

#[test]
fn a_database_that_is_open_elsewhere_is_refused() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    let dir = place.path("busy");
    let mut child =
        place.command(&["demo-writer", &dir, "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let out = place.path("out");
    let refused = [
        bench(&place, &["--dir", &dir]),
        place.run(&["check", &dir]),
        place.run(&["salvage", &dir, &out]),
    ];
    child.kill().unwrap();
    child.wait().unwrap();
    for ended in refused {
        ended.complains(1, &["busy", "another process has the database open"]);
    }
}

#[test]
fn a_whole_database_passes_the_check_and_can_be_copied() {
    let place = Place::new();
    let (dir, out) = (place.path("whole"), place.path("copy"));
    bench(&place, &["--workload", "write1", "--dir", &dir]).says(0, &[]);
    place
        .run(&["check", &dir])
        .says(0, &["ok: it opens with every row, and every checksum holds", "records"]);
    // The rows, the mark that says how many there are, and what the system keeps.
    let copied = place.run(&["salvage", &dir, &out]);
    copied.says(0, &["rows", "nothing was damaged"]);
    let rows = copied.out.split_whitespace().nth(1).and_then(|rows| rows.parse::<u32>().ok());
    assert!(rows.is_some_and(|rows| (501..520).contains(&rows)), "{copied:?}");
    place.run(&["check", &out]).says(0, &["ok: it opens with every row, and every checksum holds"]);
    let again = place.run(&["salvage", &dir, &out]);
    again.complains(1, &["copy"]);
    bench(&place, &["--workload", "read", "--dir", &out]).says(0, &["read"]);
}

#[test]
fn a_flipped_bit_is_found_named_and_never_served_and_the_rest_is_saved() {
    let place = Place::new();
    let dir = place.path("hurt");
    bench(&place, &["--workload", "write1", "--dir", &dir]).says(0, &[]);
    let files = files_below(&dir);
    assert!(files.len() >= 2, "{files:?}");
    for (number, path) in files.iter().enumerate() {
        let whole = block_on(Env::real().files().read(path)).unwrap();
        if path.ends_with("DURABLE") {
            // Two notes, of which one is enough. Nothing was said of the other one.
            for at in [0, 4096] {
                let mut damaged = whole.clone();
                damaged[at + 24] ^= 4;
                overwrite(path, &damaged);
                let offset = format!("DURABLE at offset {at}");
                place.run(&["check", &dir]).says(0, &["note", &offset, "every checksum holds but"]);
            }
            overwrite(path, &whole);
            continue;
        }
        // Half way through what is used: space that is only set aside is zeros.
        let Some(used) = whole.iter().rposition(|&byte| byte != 0) else { continue };
        let mut damaged = whole.clone();
        damaged[used / 2] ^= 4;
        overwrite(path, &damaged);
        let name = path.file_name().unwrap().to_str().unwrap();
        place
            .run(&["check", &dir])
            .says(3, &["damaged", name, "offset", "expected", "found", "plinth salvage"]);
        bench(&place, &["--workload", "read", "--dir", &dir]).complains(3, &["cannot open", name]);
        let out = place.path(&format!("saved-{number}"));
        // Who the database is stands in a file of its own, which a copy has no use for.
        let holds_data = path.parent() != Some(Path::new(&dir));
        let words: &[&str] = if holds_data { &["copied", name] } else { &["copied"] };
        place.run(&["salvage", &dir, &out]).says(if holds_data { 3 } else { 0 }, words);
        place.run(&["check", &out]).says(0, &["it opens with every row, and every checksum holds"]);
        overwrite(path, &whole);
        place.run(&["check", &dir]).says(0, &["it opens with every row, and every checksum holds"]);
    }
    // It was once taken for a creation that a crash had interrupted, and made anew.
    let before = files_below(&dir);
    block_on(Env::real().files().remove(Path::new(&dir).join("IDENTITY"))).unwrap();
    place.run(&["check", &dir]).says(3, &["damaged", "IDENTITY"]);
    for opening in [
        &["shell", "--dir", &dir, "--exec", "getrange a b"][..],
        &["server", "--dir", &dir, "--listen", "127.0.0.1:0"],
    ] {
        place.run(opening).complains(3, &["cannot open", "1522", "IDENTITY"]);
    }
    assert_eq!(files_below(&dir).len(), before.len() - 1);
}

/// Writes into a file that exists, which keeps its length.
fn overwrite(path: &Path, bytes: &[u8]) {
    let written = async {
        let file = Env::real().files().open(path, Open::Write).await?;
        file.write_all_at(0, bytes).await
    };
    block_on(written).unwrap();
}

/// All files in a directory and those below it.
fn files_below(dir: &str) -> Vec<PathBuf> {
    let env = Env::real();
    let (mut found, mut ahead) = (Vec::new(), vec![PathBuf::from(dir)]);
    while let Some(path) = ahead.pop() {
        match block_on(env.files().list(&path)) {
            Ok(names) => ahead.extend(names.iter().map(|name| path.join(name))),
            Err(_) => found.push(path),
        }
    }
    found
}

/// The options of a key, from a file and from a command; a directory that was made with one; what
/// is said without it; and the environment, for commands that have no option.
#[test]
fn an_encrypted_directory_wants_its_key_of_every_command() {
    let place = Place::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = place.path(name);
        block_on(Env::real().files().replace(Path::new(&path), bytes)).unwrap();
        path
    };
    let (key, other) = (file("key", &[b'k'; 32]), file("other", &[b'o'; 32]));
    let (dir, bad) = (place.path("db"), file("bad", b"no key"));
    let shell = |more: &[&str]| place.run(&[&["shell", "--dir", &dir], more].concat());
    let exec = ["--exec", "writemode on; set planted here; get planted"];
    let with = |path| ["--encryption-key-file", path];
    shell(&[&["--create"], &with(&key)[..], &exec].concat()).says(0, &["here"]);
    shell(&exec).complains(1, &["encrypt_key_not_found", "no key was given"]);
    shell(&[&with(&other)[..], &exec].concat()).complains(1, &["the key that was given is"]);
    shell(&[&with(&bad)[..], &exec].concat()).complains(1, &["64 hexadecimal digits"]);
    let printed = format!("cat {key}");
    shell(&[&["--encryption-key-command", &printed][..], &exec].concat()).says(0, &["here"]);
    let failing = ["--encryption-key-command", "echo none; exit 4"];
    shell(&[&failing[..], &exec].concat()).complains(1, &["exit status: 4"]);
    // It was `ok`, and success.
    let unknown = ["encrypted", "checksums were compared", "--encryption-key-file", "unknown"];
    place.run(&["check", &dir]).says(1, &unknown);
    place.run(&[&["check", &dir], &with(&key)[..]].concat()).says(0, &["opens with every row"]);
    let copy = place.path("copy");
    place.run(&["salvage", &dir, &copy]).complains(1, &["encrypt_key_not_found"]);
    place.run(&[&["salvage", &dir, &copy], &with(&key)[..]].concat()).says(0, &["copied"]);
    let now = ["backup", "now", "--dir", &copy, &place.path("backup")];
    place.run(&now).complains(1, &["encrypt_key_not_found"]);
    let mut backup = place.command(&now);
    Ended::new(backup.env("PLINTH_ENCRYPTION_KEY_FILE", &key).output().unwrap()).says(0, &[]);
    // To the next key, which needs the one before no more.
    let both = [&with(&other)[..], &with(&key), &["--exec", "get planted"]].concat();
    shell(&both).says(0, &["here"]);
    place
        .run(&[&["dev", "--nodes", "3"], &with(&key)[..]].concat())
        .complains(2, &["without keys"]);
}

/// They were taken without a word, and no server listened there.
#[test]
fn servers_of_a_cluster_to_try_things_with_take_no_settings_that_they_leave_out() {
    let place = Place::new();
    let dir = place.path("cluster");
    for (setting, value) in
        [("listen", "127.0.0.1:1"), ("series-http", "127.0.0.1:1"), ("memory", "1GiB")]
    {
        let said = format!("--{setting}");
        place
            .run(&["dev", "--nodes", "3", "--dir", &dir, &said, value])
            .complains(2, &["leave out", setting, "dir and log"]);
    }
}

/// Both wrote a cluster file, of which one was left: servers listened where no client looked for
/// them.
#[test]
fn of_two_that_start_servers_in_one_directory_at_once_one_does_and_the_other_is_told() {
    let place = Place::new();
    let dir = place.path("cluster");
    let start = |_| {
        let mut command = place.command(&["dev", "--nodes", "3", "--dir", &dir]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut started: Vec<_> = (0..2).map(start).collect();
    let told: Vec<String> = started
        .iter_mut()
        .map(|child| {
            let mut output = BufReader::new(child.stdout.as_mut().unwrap());
            let mut lines = String::new();
            (0..4).for_each(|_| assert!(output.read_line(&mut lines).is_ok()));
            lines
        })
        .collect();
    let serves = told.iter().position(|told| told.starts_with("ready ")).unwrap();
    let refused = started.remove(1 - serves).wait_with_output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    let file = place.read("cluster/fdb.cluster");
    let addresses = file.trim_end().rsplit('@').next().unwrap().split(',');
    let are_there = addresses.clone().count() == 3
        && addresses.into_iter().all(|address| told[serves].contains(address));
    let mut server = started.remove(0);
    let ended = Command::new("kill").args(["-TERM", &server.id().to_string()]).status();
    assert!(ended.unwrap().success() && server.wait().unwrap().success());
    assert!(are_there, "{file} says otherwise than {told:?}");
    assert_eq!((refused.status.code(), &told[1 - serves][..]), (Some(1), ""), "{why}");
    assert!(why.contains("cannot start servers") && why.contains("LOCK is locked"), "{why}");
}
