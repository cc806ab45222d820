//! What `plinth bench` can do around a database in its own process: checkpoints, databases beside
//! it, crashes of a second process, and servers of a cluster to which things happen
//! (`plinth_sim::servers`).
//!
//! Always: what it starts ends with the value that it gives, before the workload's directory goes.

use super::serve::{self, failed};
use super::writer::Amount;
use crate::command::BENCH_WRITER;
use crate::encryption;
use plinth::backup::restore::Loader;
use plinth::{Builder, Database, EngineKind, Error, Local, Result, Version, block_on};
use plinth_bench::host::{Cluster, Crash, Host, Mishap, Server, Waits};
use plinth_env::Env;
use plinth_sim::servers::{Event, Servers};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The database that is measured, and the engine of those made beside it.
pub struct LocalHost {
    pub env: Env,
    pub local: Local,
    pub engine: EngineKind,
}

impl Host for LocalHost {
    fn checkpoint(&self) -> Result<()> {
        self.local.checkpoint().map(drop)
    }

    fn take_longest_waits(&self) -> Waits {
        let waits = self.local.take_longest_waits();
        Waits { sync: waits.sync, work: waits.work, checkpoint_step: waits.checkpoint_step }
    }

    fn crash(
        &self,
        directory: &Path,
        rows: u64,
        transactions: u64,
        memory: Option<u64>,
    ) -> Result<Crash> {
        let amount = Amount { rows, transactions };
        let program =
            std::env::current_exe().map_err(failed("cannot tell where this program is"))?;
        let mut child = Command::new(program)
            .arg(BENCH_WRITER)
            .arg(directory)
            .args([self.engine.name(), &amount.rows.to_string(), &amount.transactions.to_string()])
            .args(memory.map(|bytes| bytes.to_string()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("cannot start this program once more"))?;
        let acknowledged = listen(&mut child, transactions);
        // Whatever happened, the child must not outlive the workload, which removes the directory.
        let _ = child.kill();
        let _ = child.wait();
        let acknowledged = acknowledged?;
        let report = block_on(plinth::check(&self.env, directory))?;
        Ok(Crash {
            acknowledged,
            checkpoint_bytes: report.checkpoint_bytes + report.table_bytes,
            log_bytes: report.log_bytes,
        })
    }

    fn create(&self, directory: &Path, memory: Option<u64>) -> Result<Database> {
        if memory.is_some() && self.engine == EngineKind::Memory {
            let text =
                format!("the engine {} takes the memory that its data needs", self.engine.name());
            return Err(Error::unsupported_operation().with_detail(text));
        }
        let builder = Builder::new(directory).must_be_new().engine(self.engine);
        opened(encryption::of_environment(builder, directory)?, memory)
    }

    fn open(&self, directory: &Path, memory: Option<u64>) -> Result<Database> {
        opened(encryption::of_environment(Builder::new(directory).must_exist(), directory)?, memory)
    }

    fn loader(&self, directory: &Path, version: Version) -> Result<Box<dyn Loader>> {
        let loader = block_on(
            encryption::of_environment(Builder::new(directory).engine(self.engine), directory)?
                .loader(version),
        )?;
        Ok(Box::new(loader))
    }

    fn serve(&self, directory: &Path) -> Result<Server> {
        serve::start(directory, self.engine.name())
    }

    fn cluster(
        &self,
        directory: &Path,
        servers: usize,
        is_apart: bool,
    ) -> Result<Box<dyn Cluster>> {
        let program =
            std::env::current_exe().map_err(failed("cannot tell where this program is"))?;
        block_on(self.env.files().create_dir_all(directory))?;
        let more = ["--engine", self.engine.name()];
        let started =
            Servers::form_told(&self.env, &[program.into()], directory, (servers, is_apart), &more);
        Ok(Box::new(Processes(started.map_err(failed("cannot start a cluster"))?)))
    }
}

/// Servers as processes of this program.
struct Processes(Servers);

/// What happens to them, and how: who is cut off is so in both directions.
fn event(mishap: Mishap) -> (Event, u64) {
    match mishap {
        Mishap::Killed => (Event::Killed, 0),
        Mishap::Stopped => (Event::Stopped, 0),
        Mishap::CutOff => (Event::CutOff, 2),
        Mishap::Ended => (Event::Ended, 0),
    }
}

impl Cluster for Processes {
    fn database(&self) -> Result<Database> {
        self.0.database().map_err(failed("cannot connect"))
    }

    fn one(&self, at: usize) -> Result<Box<dyn Fn() -> Database + Send>> {
        let connect = self.0.one(at).map_err(failed("cannot connect"))?;
        Ok(Box::new(connect))
    }

    fn leader(&self) -> Option<usize> {
        self.0.leader()
    }

    fn begin(&mut self, at: usize, mishap: Mishap) -> Result<()> {
        let (event, way) = event(mishap);
        self.0.begin(at, event, way).map_err(failed("cannot do that to a server"))
    }

    fn end(&mut self, at: usize, mishap: Mishap) -> Result<()> {
        self.0.end(at, event(mishap).0).map_err(failed("cannot have a server back"))?;
        match mishap {
            Mishap::Killed | Mishap::Ended => self.until_ready(at),
            Mishap::Stopped | Mishap::CutOff => Ok(()),
        }
    }

    fn add(&mut self) -> Result<usize> {
        self.0.add().map_err(failed("cannot start a server"))
    }

    fn until_ready(&mut self, at: usize) -> Result<()> {
        self.0.until_ready(at).map_err(failed("a server does not serve"))
    }
}

/// The client's handle, which keeps the database open.
fn opened(mut builder: Builder, memory: Option<u64>) -> Result<Database> {
    if let Some(bytes) = memory {
        builder = builder.memory_bytes(bytes);
    }
    Ok(builder.open()?.into_database())
}

/// Reads what the child acknowledges, and kills it when that is enough; gives the last number it
/// told.
fn listen(child: &mut Child, transactions: u64) -> Result<u64> {
    let output = child.stdout.take().ok_or_else(|| failed("no output")("it was not asked for"))?;
    let mut acknowledged = None;
    for line in BufReader::new(output).lines() {
        // The last line may be cut off by the kill.
        let Some(number) = line.ok().and_then(|line| line.parse::<u64>().ok()) else { break };
        if acknowledged.is_none_or(|before| before < transactions) && number >= transactions {
            child.kill().map_err(failed("cannot kill the writing process"))?;
        }
        acknowledged = acknowledged.max(Some(number));
    }
    acknowledged
        .filter(|&number| number >= transactions)
        .ok_or_else(|| failed("the writing process ended too early")("see above for its reason"))
}
