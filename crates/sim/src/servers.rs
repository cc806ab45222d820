//! Real servers of a cluster as processes, to which things happen: killed, ended, stopped, cut off,
//! delayed, added.
//!
//! Who judges what clients see of it is not here: `kill_nodes` holds histories against strict
//! serializability, and `plinth bench` measures pauses and how fast a new member comes to have all
//! rows. The processes end with the value.

use crate::proxy::Proxies;
use plinth_client::Database;
use plinth_client::remote::{ClusterFile, RemoteEndpoint};
use plinth_env::{Env, block_on};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// What happens to a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Event {
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Ended,
    /// SIGSTOP, and SIGCONT after an election.
    Stopped,
    /// Nothing comes from it to other servers, or to it, or both.
    CutOff,
    /// What servers say to each other is late.
    Delayed,
}

/// The processes of a cluster, which end with the value.
pub struct Servers {
    env: Env,
    program: Vec<OsString>,
    /// Options of each.
    more: Vec<String>,
    place: PathBuf,
    file: PathBuf,
    listen: Vec<SocketAddr>,
    /// What stands between them, if anything does.
    proxies: Option<Proxies>,
    children: Vec<Option<Child>>,
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An error, and what it kept from happening.
pub(crate) fn told<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Addresses of this machine at which nobody listens now.
fn unused_addresses(env: &Env, count: usize) -> Result<Vec<SocketAddr>, String> {
    block_on(env.unused_addresses(count)).map_err(told("find unused ports"))
}

impl Servers {
    /// Starts servers that form a cluster, each behind a proxy if they are to be cut off or
    /// delayed. `program` is what to start, with what comes before its own options.
    ///
    /// # Errors
    /// Why they don't serve.
    pub fn form(
        env: &Env,
        program: &[OsString],
        place: &Path,
        count: usize,
        is_proxied: bool,
    ) -> Result<Self, String> {
        Self::form_told(env, program, place, (count, is_proxied), &[])
    }

    /// The same with more options for each.
    ///
    /// # Errors
    /// As those there.
    pub fn form_told(
        env: &Env,
        program: &[OsString],
        place: &Path,
        (count, is_proxied): (usize, bool),
        more: &[&str],
    ) -> Result<Self, String> {
        let listen = unused_addresses(env, count)?;
        let stand =
            || block_on(Proxies::stand(env, &listen)).map_err(told("stand between servers"));
        let proxies = is_proxied.then(stand).transpose()?;
        let file = place.join("fdb.cluster");
        let mut servers = Self {
            env: env.clone(),
            program: program.to_vec(),
            more: more.iter().map(|word| (*word).to_owned()).collect(),
            place: place.to_path_buf(),
            file,
            children: listen.iter().map(|_| None).collect(),
            listen,
            proxies,
        };
        let named: Vec<_> = (0..count).map(|at| servers.address(at).to_string()).collect();
        let line = format!("kills:nodes@{}\n", named.join(","));
        block_on(env.files().replace(&servers.file, line.as_bytes()))
            .map_err(told("write the cluster file"))?;
        (0..count).try_for_each(|at| servers.start(at))?;
        (0..count).try_for_each(|at| servers.until_ready(at))?;
        Ok(servers)
    }

    /// The world that they are in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Where clients and other servers find a server.
    pub fn address(&self, at: usize) -> SocketAddr {
        let proxied = self.proxies.as_ref().and_then(|proxies| proxies.addresses().get(at));
        proxied.copied().unwrap_or(self.listen[at])
    }

    /// Starts a server that has no process.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn start(&mut self, at: usize) -> Result<(), String> {
        let (program, before) = self.program.split_first().ok_or("no program to start")?;
        let child = Command::new(program)
            .args(before)
            .arg("server")
            .args(["--listen", &self.listen[at].to_string()])
            .args(["--public-address", &self.address(at).to_string(), "--log", "text,error"])
            .arg("--dir")
            .arg(self.place.join(format!("node-{}", at + 1)))
            .arg("--cluster-file")
            .arg(&self.file)
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        self.children[at] = Some(child.map_err(|error| format!("start a server: {error}"))?);
        Ok(())
    }

    /// Waits until a server that was started serves.
    ///
    /// # Errors
    /// What it said instead.
    pub fn until_ready(&mut self, at: usize) -> Result<(), String> {
        let output = self.children[at].as_mut().and_then(|child| child.stdout.as_mut());
        let Some(output) = output else { return Ok(()) };
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        match read.is_ok() && line.starts_with("ready ") {
            true => Ok(()),
            false => Err(format!("server {} said {line:?} when it was to be ready", at + 1)),
        }
    }

    /// Starts one more server, without a directory, that the cluster file doesn't name: it asks to
    /// be taken in. Gives its place.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn add(&mut self) -> Result<usize, String> {
        let at = self.listen.len();
        self.listen.extend(unused_addresses(&self.env, 1)?);
        self.children.push(None);
        self.start(at)?;
        Ok(at)
    }

    fn signal(&self, at: usize, signal: &str) -> Result<(), String> {
        let Some(child) = &self.children[at] else { return Ok(()) };
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("kill {signal} of server {}: {other:?}", at + 1)),
        }
    }

    /// Waits for a process that was told to end; gives its code.
    fn ended(&mut self, at: usize) -> Result<Option<i32>, String> {
        let Some(mut child) = self.children[at].take() else { return Ok(None) };
        child
            .wait()
            .map(|status| status.code())
            .map_err(|error| format!("wait for a server: {error}"))
    }

    /// Every process that wasn't ended is there.
    ///
    /// # Errors
    /// Which one isn't.
    pub fn check(&mut self) -> Result<(), String> {
        for (at, child) in self.children.iter_mut().enumerate() {
            if let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) {
                return Err(format!("server {} has ended by itself: {status}", at + 1));
            }
        }
        Ok(())
    }

    /// A client of its own.
    ///
    /// # Errors
    /// Those of reading the cluster file.
    pub fn database(&self) -> Result<Database, String> {
        let file = block_on(ClusterFile::read(&self.env, &self.file))
            .map_err(told("read the cluster file"))?;
        Ok(Database::new(Arc::new(RemoteEndpoint::connect(&self.env, file))))
    }

    /// What makes clients of one server alone.
    ///
    /// # Errors
    /// Those of a connection string.
    pub fn one(&self, at: usize) -> Result<impl Fn() -> Database + Send + use<>, String> {
        let file = ClusterFile::parse(&format!("kills:nodes@{}", self.address(at)));
        let file = file.map_err(told("name a server"))?;
        let env = self.env.clone();
        Ok(move || Database::new(Arc::new(RemoteEndpoint::connect(&env, file.clone()))))
    }

    /// The place of the server that leads, if that is known.
    pub fn leader(&self) -> Option<usize> {
        let file = block_on(ClusterFile::read(&self.env, &self.file)).ok()?;
        let located = block_on(RemoteEndpoint::connect(&self.env, file).locate()).ok()?;
        let address = located.leader_address()?.to_owned();
        (0..self.listen.len()).find(|at| self.address(*at).to_string() == address)
    }

    /// Something begins to be wrong with a server; `by` says of some events in which way, or by how
    /// many milliseconds.
    ///
    /// # Errors
    /// What went wrong besides.
    ///
    /// # Panics
    /// If it is to be cut off or delayed, and has no proxy.
    pub fn begin(&mut self, at: usize, event: Event, by: u64) -> Result<(), String> {
        match event {
            Event::Killed => {
                self.signal(at, "-KILL")?;
                self.ended(at)?;
            }
            Event::Ended => {
                self.signal(at, "-TERM")?;
                let code = self.ended(at)?;
                if code != Some(0) {
                    return Err(format!(
                        "server {} ended with {code:?} when it was asked to",
                        at + 1
                    ));
                }
            }
            Event::Stopped => self.signal(at, "-STOP")?,
            Event::CutOff => {
                let (node, ways) = (at as u64 + 1, by % 3);
                for other in (1..=self.listen.len() as u64).filter(|other| *other != node) {
                    if ways != 0 {
                        self.proxies().cut(node, other);
                    }
                    if ways != 1 {
                        self.proxies().cut(other, node);
                    }
                }
            }
            Event::Delayed => self.proxies().delay(Duration::from_millis(by)),
        }
        Ok(())
    }

    fn proxies(&self) -> &Proxies {
        self.proxies.as_ref().expect("who is to be cut off stands behind a proxy")
    }

    /// That is over: it is there again, or about to be.
    ///
    /// # Errors
    /// Those of starting a process.
    pub fn end(&mut self, at: usize, event: Event) -> Result<(), String> {
        match event {
            Event::Killed | Event::Ended => self.start(at),
            Event::Stopped => self.signal(at, "-CONT"),
            Event::CutOff | Event::Delayed => {
                self.proxies().heal();
                Ok(())
            }
        }
    }
}
