//! The server that is attacked: a process with all doors open on loopback, and a bound on its
//! memory.
//!
//! The bound is the system's, `ulimit -v`: an allocation beyond it fails, and with it the process.
//! It is twice the sum of what the server's own bounds allow. The processes end with the value.

use super::Siege;
use super::attacks::{COMMAND, Doors, database};
use crate::servers::told;
use plinth_client::Database;
use plinth_client::remote::ClusterFile;
use plinth_env::{Env, block_on};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Mebibytes that rows may take, and series that are written to.
const ROWS: u64 = 256;
const SERIES: u64 = 64;
/// Connections that it lets in, to each door.
const CONNECTIONS: u64 = 4000;
/// Mebibytes of what `docs/security.md` and `docs/operations.md` bound, one by one.
const BOUNDS: [(&str, u64); 9] = [
    ("rows, by --memory", ROWS),
    ("commits that wait", 256),
    ("what clients cost together", 256),
    ("16 KiB for each connection of a client", CONNECTIONS * 16 / 1024),
    ("series that are written to, by --series-memory", SERIES),
    ("points that came and aren't saved", 256),
    ("what queries of series hold", 1024),
    ("names that senders remember", 512),
    ("32 KiB for each sender", CONNECTIONS * 32 / 1024),
];
/// The process may have so many times their sum.
const TIMES: u64 = 2;
/// Runs the rest of its arguments with so many kibibytes of address space.
const BOUNDED: &str = "ulimit -v \"$1\" && shift && exec \"$@\"";

/// By which attackers run only while nobody else wants a processor, and what comes closest where
/// the system has no such program.
const WHEN_IDLE: [&str; 3] = ["chrt", "--idle", "0"];
const LEAST_PRIORITY: [&str; 3] = ["nice", "-n", "19"];

/// A server, which ends with the value.
pub(super) struct Arena {
    env: Env,
    pub(super) doors: Doors,
    file: PathBuf,
    server: Child,
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Mebibytes that the server may have.
fn allowed() -> u64 {
    TIMES * BOUNDS.iter().map(|(_, bound)| bound).sum::<u64>()
}

impl Arena {
    /// Starts it, and waits until it serves.
    pub(super) fn open(
        env: &Env,
        program: &OsString,
        place: &Path,
        engine: &str,
    ) -> Result<Self, String> {
        let doors = Doors::unused(env)?;
        let file = place.join("fdb.cluster");
        let mut server = Command::new("/bin/sh")
            .args(["-c", BOUNDED, "sh", &(allowed() << 10).to_string()])
            .arg(program)
            .args(["server", "--engine", engine, "--memory", &format!("{ROWS}MiB")])
            .args(["--series-memory", &format!("{SERIES}MiB"), "--log", "text,error"])
            .args(["--connections", &CONNECTIONS.to_string()])
            .args(doors.options())
            .arg("--dir")
            .arg(place.join("db"))
            .arg("--cluster-file")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(told("start a server"))?;
        let mut line = String::new();
        if let Some(output) = server.stdout.as_mut() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let arena = Self { env: env.clone(), doors, file, server };
        match line.starts_with("ready ") {
            true => Ok(arena),
            false => Err(format!("the server said {line:?} when it was to be ready")),
        }
    }

    fn cluster_file(&self) -> Result<ClusterFile, String> {
        block_on(ClusterFile::read(&self.env, &self.file)).map_err(told("read the cluster file"))
    }

    /// A client of its own, by one connection.
    pub(super) fn database(&self) -> Result<Database, String> {
        Ok(database(&self.env, &self.cluster_file()?))
    }

    /// Has another process attack it until its time is over. Gives a line for each kind.
    pub(super) fn attack(
        &self,
        attacker: &[OsString],
        siege: &Siege,
    ) -> Result<Vec<String>, String> {
        let figures = [siege.seed, siege.attackers, siege.time.as_secs()];
        let cluster_file = self.cluster_file()?;
        let start = |way: &[&str]| {
            Command::new(way[0])
                .args(&way[1..])
                .args(attacker)
                .arg(COMMAND)
                .args(figures.map(|figure| figure.to_string()))
                .arg(&siege.kinds)
                .args(self.doors.words())
                .arg(cluster_file.connection_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut child = start(&WHEN_IDLE)
            .or_else(|_| start(&LEAST_PRIORITY))
            .map_err(told("start the attackers"))?;
        let mut said = String::new();
        let read = child.stdout.take().map(|mut output| output.read_to_string(&mut said));
        let status = child.wait().map_err(told("wait for the attackers"))?;
        match (read, status.success()) {
            (Some(Ok(_)), true) => Ok(said.lines().map(str::to_owned).collect()),
            _ => Err(format!("the attackers ended with {status}")),
        }
    }

    /// It has not ended.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match self.server.try_wait() {
            Ok(None) => Ok(()),
            other => Err(format!("the server has ended under attack: {other:?}")),
        }
    }

    /// Mebibytes of its address space at most, of what it may have, and of memory at most.
    #[expect(
        clippy::disallowed_methods,
        reason = "what the system says of a process is no file of a node's"
    )]
    pub(super) fn memory(&self) -> Result<[u64; 3], String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.server.id()))
            .map_err(told("ask what the server takes"))?;
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            number.map(|kibibytes: u64| kibibytes >> 10).ok_or(format!("no {name}"))
        };
        Ok([of("VmPeak:")?, allowed(), of("VmHWM:")?])
    }

    /// It ends cleanly when it is asked to.
    pub(super) fn end(mut self) -> Result<(), String> {
        let sent = Command::new("kill").arg(self.server.id().to_string()).status();
        let ended = self.server.wait().map_err(told("wait for the server"))?;
        match sent.is_ok_and(|sent| sent.success()) && ended.success() {
            true => Ok(()),
            false => Err(format!("the server ended with {ended} when it was asked to")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = include_str!("../../../../docs/security.md");

    /// The kibibytes that a cell adds up to, with the settings of here.
    fn kibibytes(cell: &str) -> u64 {
        let number = |text: &str| text.replace(',', "").parse::<u64>();
        let terms = cell.split(" + ").map(|term| match term.split_once(" × ") {
            Some((each, "`--connections`")) => match each.strip_suffix(" KiB").map(number) {
                Some(Ok(each)) => each * CONNECTIONS,
                _ => panic!("what is {term:?}?"),
            },
            _ if term == "`--memory`" => ROWS << 10,
            _ if term == "`--series-memory`" => SERIES << 10,
            _ => match term.strip_suffix(" MiB").map(number) {
                Some(Ok(all)) => all << 10,
                _ => panic!("what is {term:?}?"),
            },
        });
        terms.sum()
    }

    #[test]
    fn the_bounds_are_those_that_users_are_told() {
        let (_, table) = TABLE.split_once("| memory of it |").expect("there is a table");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = rows.map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            assert_eq!(cells.len(), 6, "{row}");
            (cells[1], cells[3])
        });
        let told: Vec<_> = cells.filter(|(_, cell)| !cell.is_empty()).collect();
        let (last, each) = told.split_last().expect("it has rows");
        assert_eq!(last.0, "**together**");
        let sum: u64 = each.iter().map(|(_, cell)| kibibytes(cell)).sum();
        assert_eq!(kibibytes(last.1), sum, "the table adds up");
        // One by one, since mebibytes are whole here.
        let mut told: Vec<_> = each.iter().flat_map(|(_, cell)| cell.split(" + ")).collect();
        told.sort_by_key(|term| kibibytes(term));
        let mut bounds = BOUNDS.map(|(_, bound)| bound);
        bounds.sort_unstable();
        let told: Vec<_> = told.iter().map(|term| kibibytes(term) >> 10).collect();
        assert_eq!(told, bounds, "of {BOUNDS:?}");
    }
}
