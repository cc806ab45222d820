//! Several servers on this machine as processes of this program, which form a cluster: what
//! `plinth dev --nodes` starts, and the tour.
//!
//! Each has a directory and a port of its own, and all have one cluster file. They are ended with
//! this value, if they haven't ended by then. Who starts them holds a lock beside that file before
//! anything is written: of two that start in one directory the second is told.

use crate::CLUSTER_FILE;
use crate::failure::Failure;
use plinth::client::remote::RemoteEndpoint;
use plinth::{ClusterFile, block_on};
use plinth_env::{DirLock, Env, IoError};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// The file whose lock says that servers are started, or have been, in a directory.
const LOCK: &str = "LOCK";
/// How soon it is looked again who leads.
const TICK: Duration = Duration::from_millis(20);
/// How long servers have to end by themselves, in ticks.
const FAREWELL: u32 = 500;

/// The servers.
pub struct Nodes {
    env: Env,
    place: PathBuf,
    file: ClusterFile,
    quiet: bool,
    /// Where the first one has its console.
    console: String,
    children: Vec<Option<Child>>,
    _lock: DirLock,
}

impl Nodes {
    /// Starts so many servers in a directory; those that are there already are started again. A
    /// quiet one says nothing but that it is ready.
    pub fn start(env: &Env, place: &Path, count: usize, quiet: bool) -> Result<Self, Failure> {
        let path = place.join(CLUSTER_FILE);
        let cannot = format!("cannot use {}", path.display());
        let failed = |error: IoError| Failure::of(&cannot, error);
        let private = env.keeping_private();
        block_on(private.files().create_dir_all(place)).map_err(failed)?;
        let lock = block_on(private.files().lock(place.join(LOCK)));
        let lock = lock.map_err(|error| Failure::of("cannot start servers", error))?;
        if !block_on(env.files().exists(&path)).map_err(failed)? {
            // Others have addresses of their own on this machine, and theirs may be these one day.
            let id = env.random_u64();
            let line = format!("dev:{id:016x}@{}\n", unused_addresses(env, count)?.join(","));
            block_on(env.files().replace(&path, line.as_bytes())).map_err(failed)?;
        }
        let file =
            block_on(ClusterFile::read(env, &path)).map_err(|error| Failure::of(&cannot, error))?;
        if file.addresses().len() != count {
            let there = file.addresses().len();
            return Err(Failure::usage(format!(
                "{} has {there} servers, not {count}",
                place.display()
            )));
        }
        let console = unused_addresses(env, 1)?.remove(0);
        let children = (0..count).map(|_| None).collect();
        let (env, place) = (env.clone(), place.to_path_buf());
        let mut nodes = Self { env, place, file, quiet, console, children, _lock: lock };
        (0..count).try_for_each(|at| nodes.spawn(at))?;
        (0..count).try_for_each(|at| nodes.until_ready(at))?;
        Ok(nodes)
    }

    /// The file that clients find them by.
    pub fn cluster_file(&self) -> PathBuf {
        self.place.join(CLUSTER_FILE)
    }

    /// Where the first one has its console.
    pub fn console(&self) -> &str {
        &self.console
    }

    /// Their addresses and processes, in order.
    pub fn list(&self) -> Vec<(String, Option<u32>)> {
        let child = |child: &Option<Child>| child.as_ref().map(Child::id);
        self.file
            .addresses()
            .iter()
            .map(ToString::to_string)
            .zip(self.children.iter().map(child))
            .collect()
    }

    /// What a node is started with.
    fn arguments(&self, at: usize) -> Vec<String> {
        let dir = self.place.join(format!("node-{}", at + 1)).display().to_string();
        let address = self.file.addresses()[at].to_string();
        let file = self.cluster_file().display().to_string();
        let all = ["server", "--dir", &dir, "--listen", &address, "--cluster-file", &file];
        let mut all = all.map(ToOwned::to_owned).to_vec();
        if at == 0 && !self.quiet {
            all.extend(["--http".to_owned(), self.console.clone()]);
        }
        all
    }

    /// The command by which somebody starts a node by hand.
    pub fn command_line(&self, at: usize) -> String {
        format!("plinth {}", self.arguments(at).join(" "))
    }

    /// Starts the process of a node that has none.
    pub fn spawn(&mut self, at: usize) -> Result<(), Failure> {
        let failed = |error| Failure::of("cannot start this program once more", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(self.arguments(at)).args(["--log", "text,error"]);
        let stderr = if self.quiet { Stdio::null() } else { Stdio::inherit() };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        self.children[at] = Some(command.spawn().map_err(failed)?);
        Ok(())
    }

    /// Waits until a node serves.
    pub fn until_ready(&mut self, at: usize) -> Result<(), Failure> {
        let mut line = String::new();
        if let Some(output) = self.children[at].as_mut().and_then(|child| child.stdout.as_mut()) {
            let read = BufReader::new(output).read_line(&mut line);
            read.map_err(|error| Failure::of("cannot read from a server", error))?;
        }
        if line.starts_with("ready ") {
            return Ok(());
        }
        Err(Failure::new(format!("server {} ended before it was ready", at + 1)))
    }

    /// `kill -9`.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.children[at].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A node whose process has ended by itself, and how.
    pub fn ended(&mut self) -> Option<(usize, ExitStatus)> {
        for (at, place) in self.children.iter_mut().enumerate() {
            if let Some(status) = place.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                *place = None;
                return Some((at, status));
            }
        }
        None
    }

    /// The node that leads.
    pub fn leader(&self) -> Result<usize, Failure> {
        let endpoint = RemoteEndpoint::connect(&self.env, self.file.clone());
        loop {
            let located = block_on(endpoint.locate());
            let located = located.map_err(|error| Failure::of("cannot find the leader", error))?;
            let is_leader = |address: &str| located.leader_address() == Some(address);
            let leader =
                self.file.addresses().iter().position(|address| is_leader(&address.to_string()));
            if let Some(leader) = leader {
                return Ok(leader);
            }
            block_on(self.env.sleep(TICK));
        }
    }

    /// Asks all to end, and waits until they have.
    pub fn end(&mut self) {
        for child in self.children.iter().flatten() {
            // What doesn't end by itself is killed, which takes nothing that was acknowledged.
            let _ = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
        }
        for _ in 0..FAREWELL {
            while self.ended().is_some() {}
            if self.children.iter().all(Option::is_none) {
                return;
            }
            block_on(self.env.sleep(TICK));
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.children.len()).for_each(|at| self.kill(at));
    }
}

/// Addresses where nobody listens now.
fn unused_addresses(env: &Env, count: usize) -> Result<Vec<String>, Failure> {
    let unused = block_on(env.unused_addresses(count));
    let unused = unused.map_err(|error| Failure::of("cannot listen on loopback", error))?;
    Ok(unused.iter().map(ToString::to_string).collect())
}
