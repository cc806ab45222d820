//! What the tests of the program share: a server as a process, which ends with the test.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod counting;

use plinth_env::{Env, TemporaryDir, block_on};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server as a process of its own.
pub struct Running {
    pub child: Child,
    /// The first line that it printed.
    pub ready: String,
}

impl Running {
    /// Starts a server and waits until it is ready.
    #[track_caller]
    pub fn start(dir: &Path, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
        Self::of(command.arg("server").arg("--dir").arg(dir).args(more))
    }

    /// Starts a server by a command, and waits until it is ready.
    #[track_caller]
    pub fn of(command: &mut Command) -> Self {
        Self::ready(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until a server that was started is ready.
    #[track_caller]
    pub fn ready(mut child: Child) -> Self {
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready 127.0.0.1:"), "{ready:?}");
        Self { child, ready }
    }

    /// The file by which clients find it.
    pub fn cluster_file(&self) -> PathBuf {
        PathBuf::from(self.ready.trim_end().splitn(3, ' ').nth(2).unwrap())
    }

    /// Sends a signal, such as `-STOP`.
    pub fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.id()]).status().unwrap().success());
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A request to terminate; gives the exit code.
    pub fn terminate(self) -> Option<i32> {
        self.signal("-TERM");
        self.ended()
    }

    /// The process's number.
    pub fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits for its end; gives the exit code.
    pub fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    /// A test that fails leaves no server behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that goes with the value.
pub fn scratch() -> TemporaryDir {
    block_on(Env::real().files().temporary_dir("plinth-server-test")).unwrap()
}
