//! What may happen to real servers besides a kill: they are stopped for longer than an election
//! takes, cut off in one direction or in both, what they say comes late, and a disk fails a sync.

use super::common::scratch;
use super::{Cluster, Running, command, count, judge};
use plinth::Database;
use plinth_env::{Env, block_on};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// One after the other: whoever leads is killed, a follower is, whoever leads is ended, stopped, a
/// follower is stopped, then both are cut off, and everything is late. What clients saw is judged:
/// strictly serializable, nothing missing.
#[test]
fn servers_are_killed_stopped_and_cut_off_and_the_history_is_strictly_serializable() {
    let mut sim = Command::new(env!("CARGO_BIN_EXE_plinth"));
    let output =
        sim.args(["sim", "--kills", "20", "--nodes", "3", "--seed", "1"]).output().unwrap();
    let told = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    assert_eq!(output.status.code(), Some(0), "{told}");
    for kind in ["nothing lost", "Killed", "Ended", "Stopped", "CutOff", "Delayed"] {
        assert!(told.contains(kind), "{told}");
    }
    println!("{told}");
}

/// A library that has syncs fail in the process that is started with it, once there is a file of
/// this name.
const FAILING_SYNCS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static int sync_by(long number, int fd) {
    const char *mark = getenv("SYNCS_FAIL_ONCE_THERE_IS");
    if (mark && access(mark, F_OK) == 0) { errno = EIO; return -1; }
    return syscall(number, fd);
}
int fsync(int fd) { return sync_by(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
"#;

/// A disk fails a sync under a server of a cluster: nobody knows what is on it. The server ends,
/// says why in its last words and by its exit code, and the others go on; started again it is a
/// member as before. So it is with one that follows, and with the one that leads.
#[test]
#[cfg(target_os = "linux")]
fn a_server_whose_sync_fails_ends_and_says_why_while_the_others_go_on() {
    let place = scratch();
    let mut cluster = Cluster::form(place.path());
    let (env, db) = (Env::real(), Database::connect(&cluster.file).unwrap());
    let source = place.path().join("syncs.c");
    let (library, mark) = (place.path().join("syncs.so"), place.path().join("fail"));
    block_on(env.files().replace(&source, FAILING_SYNCS.as_bytes())).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(compiler.status().unwrap().success(), "the linker that Rust needs compiles C");
    let mut rows = 0;
    let mut commit = || {
        rows += 1;
        count(&db, &format!("row/{rows}")).unwrap();
    };
    for leads in [false, true] {
        commit();
        let at = with_library(&mut cluster, leads, (&library, &mark));
        let mut server = cluster.servers[at].take().unwrap();
        block_on(env.files().replace(&mark, b"")).unwrap();
        commit();
        let mut last_words = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut last_words).unwrap();
        assert_eq!(server.child.wait().unwrap().code(), Some(1), "{last_words}");
        let last = last_words.trim_end().lines().last().unwrap_or_default();
        for what in ["the database in", &format!("node-{at}"), "1510", "sync", "os error 5"] {
            assert!(last.contains(what), "leads: {leads}, {what:?} is missing: {last_words}");
        }
        commit();
        block_on(env.files().remove(&mark)).unwrap();
        cluster.start(at);
        // It counts again: another one may go.
        let other = (at + 1) % 3;
        cluster.servers[other].take().unwrap().kill();
        commit();
        cluster.start(other);
    }
    judge(&db, rows);
}

/// Starts a server with the library; gives which. It follows, or is brought to lead.
#[cfg(target_os = "linux")]
fn with_library(cluster: &mut Cluster, leads: bool, (library, mark): (&Path, &Path)) -> usize {
    let at = (cluster.leader() + 1) % 3;
    assert_eq!(cluster.servers[at].take().unwrap().terminate(), Some(0));
    let mut failing = command(&cluster.place, &cluster.file, &cluster.addresses[at], at);
    failing.env("LD_PRELOAD", library).env("SYNCS_FAIL_ONCE_THERE_IS", mark).stderr(Stdio::piped());
    cluster.servers[at] = Some(Running::of(&mut failing));
    let mut leader = cluster.leader();
    while leads && leader != at {
        // Whoever leads hands over to one of the two.
        assert_eq!(cluster.servers[leader].take().unwrap().terminate(), Some(0));
        cluster.start(leader);
        leader = cluster.leader();
    }
    at
}
