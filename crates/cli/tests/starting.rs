//! One SIGTERM *during* a start, when nothing is served yet: the server ends, with exit code 0, and
//! the next start goes on from the same files.
//!
//! A start is long where it waits for somebody: for the other servers of a cluster, for a
//! FoundationDB; and where much is read: a long log. When it is over isn't for a test to say, so
//! the signal comes sooner and later; each time the server has to end, and of a long log it must
//! have been in the middle once.

mod common;

use common::{Running, scratch};
use plinth::Database;
use plinth_env::{Env, block_on};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// What a server says first, from which on a signal is heeded.
const STARTS: &str = "plinth server starts";
/// What one says that ends before it serves anybody.
const ENDED: &str = "ended during the start, as asked";
/// How much later than that the signal comes, in milliseconds.
const DELAYS: [u64; 8] = [0, 5, 10, 20, 40, 80, 160, 320];
/// How long a server has to end. It takes no second; a busy machine may.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in the log, far less than what it takes for a checkpoint.
const LOG: usize = 96 << 20;

/// A server that has begun to start.
struct Starting {
    child: Child,
    told: BufReader<ChildStderr>,
    said: String,
}

impl Starting {
    fn of(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        command.arg("server").args(arguments).args(["--log", "text"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let told = BufReader::new(child.stderr.take().unwrap());
        Self { child, told, said: String::new() }
    }

    /// Waits until it says this.
    fn until(&mut self, words: &str) {
        while !self.said.contains(words) {
            let more = self.told.read_line(&mut self.said).unwrap();
            assert!(more > 0, "{words}: {}", self.said);
        }
    }

    /// One request to terminate: what the server has said by its end, which is a good one.
    fn terminate(mut self) -> String {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let env = Env::real();
        let until = env.now() + PATIENCE;
        let ended = loop {
            match self.child.try_wait().unwrap() {
                None if env.now() < until => block_on(env.sleep(Duration::from_millis(10))),
                ended => break ended,
            }
        };
        let mut said = std::mem::take(&mut self.said);
        let Some(ended) = ended else { panic!("one signal doesn't end it: {said}") };
        self.told.read_to_string(&mut said).unwrap();
        assert_eq!(ended.code(), Some(0), "{said}");
        said
    }
}

impl Drop for Starting {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server again and again, and ends it sooner and later; gives whether it was in the
/// middle of opening its database once.
fn ends_whenever(arguments: &[&str]) -> bool {
    let ends = DELAYS.map(|delay| {
        let mut server = Starting::of(arguments);
        server.until(STARTS);
        block_on(Env::real().sleep(Duration::from_millis(delay)));
        server.terminate()
    });
    ends.iter().any(|said| said.contains(ENDED))
}

fn path(place: &Path, name: &str) -> String {
    place.join(name).display().to_string()
}

/// How many transactions make the log.
const TRANSACTIONS: u32 = (LOG / VALUE / 10) as u32;
const VALUE: usize = 90_000;

fn key(number: u32) -> Vec<u8> {
    [b"n", &number.to_be_bytes()[..]].concat()
}

/// Makes a log of some length.
fn fill(db: &Database) {
    for number in 0..TRANSACTIONS {
        db.transact_blocking(|tr| {
            tr.set(key(number), "");
            (0..10_u8).for_each(|key| tr.set([b'v', key], [number as u8; VALUE]));
            Ok(())
        })
        .unwrap();
    }
}

/// What the log says is there.
fn check(db: &Database) {
    let are_there = db.transact_blocking(|tr| {
        let reads: Vec<_> = (0..TRANSACTIONS).map(|number| tr.get(key(number))).collect();
        reads.into_iter().map(|read| Ok(read.wait()?.is_some())).collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(are_there.unwrap(), vec![true; TRANSACTIONS as usize]);
}

#[test]
fn a_server_that_reads_a_long_log_ends_when_it_is_asked_to() {
    let place = scratch();
    let dir = path(place.path(), "data");
    let more = ["--series-resp", "127.0.0.1:0"];
    let server = Running::start(dir.as_ref(), &[&["--listen", "127.0.0.1:0"], &more[..]].concat());
    let file = server.cluster_file();
    fill(&Database::connect(&file).unwrap());
    server.kill();
    assert!(ends_whenever(&[&["--dir", &dir], &more[..]].concat()));
    let server = Running::start(dir.as_ref(), &more);
    check(&Database::connect(&file).unwrap());
    assert_eq!(server.terminate(), Some(0));
}

/// Three servers of a cluster: their directories and addresses, and the file that names them.
struct Cluster {
    file: String,
    servers: Vec<(String, String)>,
}

impl Cluster {
    fn named(place: &Path) -> Self {
        let addresses = block_on(Env::real().unused_addresses(3)).unwrap();
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let file = path(place, "fdb.cluster");
        let line = format!("test:three@{}\n", addresses.join(","));
        block_on(Env::real().files().replace(&file, line.as_bytes())).unwrap();
        let dir = |at: usize| path(place, &format!("node-{at}"));
        let servers = addresses.into_iter().enumerate().map(|(at, it)| (dir(at), it)).collect();
        Self { file, servers }
    }

    fn arguments(&self, at: usize) -> [&str; 6] {
        let (dir, address) = &self.servers[at];
        ["--dir", dir, "--listen", address, "--cluster-file", &self.file]
    }

    fn start_all(&self) -> Vec<Running> {
        let begin = |at| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
            command.arg("server").args(self.arguments(at)).args(["--log", "text,error"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let begun: Vec<_> = (0..self.servers.len()).map(begin).collect();
        begun.into_iter().map(Running::ready).collect()
    }
}

#[test]
fn a_server_that_waits_for_the_others_to_form_a_cluster_ends_when_it_is_asked_to() {
    let place = scratch();
    let cluster = Cluster::named(place.path());
    let mut server = Starting::of(&cluster.arguments(0));
    server.until("waits for");
    server.terminate();
    // Nothing of that is in the way of the cluster, nor of its members when they are alone again.
    for server in cluster.start_all() {
        server.kill();
    }
    let mut server = Starting::of(&cluster.arguments(0));
    server.until("serving clients");
    server.terminate();
}

/// A member opened its directory with deaf ears, however long its log was.
#[test]
fn a_member_that_reads_a_long_log_ends_when_it_is_asked_to() {
    let place = scratch();
    let cluster = Cluster::named(place.path());
    let servers = cluster.start_all();
    fill(&Database::connect(&cluster.file).unwrap());
    servers.into_iter().for_each(Running::kill);
    assert!([0, 1, 2].map(|at| ends_whenever(&cluster.arguments(at))).contains(&true));
    let servers = cluster.start_all();
    check(&Database::connect(&cluster.file).unwrap());
    servers.into_iter().for_each(Running::kill);
}

/// By our own library, which cargo builds beside the tests.
#[test]
fn a_server_whose_foundationdb_does_not_answer_ends_when_it_is_asked_to() {
    let place = scratch();
    let program = Path::new(env!("CARGO_BIN_EXE_plinth"));
    let library = program.with_file_name("deps").join("libfdb_c.so");
    let ends = |file: &Path| {
        let store = format!("fdb:{}?lib={}", file.display(), library.display());
        let more = ["--listen", "127.0.0.1:0", "--series-resp", "127.0.0.1:0"];
        // Whether the library waits is its own affair, and the server may be there before it ends.
        ends_whenever(&[&["--store", &store], &more[..]].concat());
    };
    // Nobody is there.
    let file = place.path().join("nobody.cluster");
    let address = block_on(Env::real().unused_addresses(1)).unwrap()[0];
    let line = format!("a:b@{address}\n");
    block_on(Env::real().files().replace(&file, line.as_bytes())).unwrap();
    ends(&file);
    // Somebody is there, and says nothing.
    let below = Running::start(&place.path().join("data"), &["--listen", "127.0.0.1:0"]);
    below.signal("-STOP");
    ends(&below.cluster_file());
}
