//! A server beside the database that is measured: a process of this program, on a port that is
//! free, for as long as it is wanted.

use plinth::{Database, Error, Result};
use plinth_bench::host::Server;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends its process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Its files are removed next: nothing of it need be kept.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An error of files and processes, and what it kept from happening.
pub fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::io_error().with_detail(format!("{what}: {error}"))
}

/// Starts a server of a new database, and waits until it serves.
pub fn start(directory: &Path, engine: &str) -> Result<Server> {
    let program = std::env::current_exe().map_err(failed("cannot tell where this program is"))?;
    let child = Command::new(program)
        .args([
            "server",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "text,error",
            "--engine",
            engine,
            "--dir",
        ])
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("cannot start this program once more"))?;
    let mut process = Process(child);
    let mut line = String::new();
    if let Some(output) = process.0.stdout.as_mut() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(failed("cannot read from the server"))?;
    }
    if !line.starts_with("ready ") {
        return Err(failed("the server ended before it was ready")("see above for its reason"));
    }
    let database = Database::connect(directory.join("fdb.cluster"))?;
    Ok(Server { database, process: Box::new(process) })
}
