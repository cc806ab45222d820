//! The process that the workload `restart` kills: loads rows, writes a checkpoint, then overwrites
//! random rows and tells how many of its commits were acknowledged.

use super::open;
use crate::failure::Failure;
use clap::ArgMatches;
use plinth::Transaction;
use plinth_bench::host::{COMMITS, CRASH_WRITES};
use plinth_bench::{Bench, Client, Plan, Progress, Settings, Work, drive, set_random};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Clients that write at once.
const CLIENTS: usize = 100;
/// Telling of each commit would measure the pipe.
const TELL_EVERY: u64 = 50;
/// Longer than it will be left alive.
const LIFE: Duration = Duration::from_secs(3_600);

/// How much it writes before it may be killed.
pub struct Amount {
    /// Rows loaded.
    pub rows: u64,
    /// Transactions after the checkpoint.
    pub transactions: u64,
}

/// Writes until the process is killed, or nobody listens any more.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let path = options.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let number = |name| options.get_one::<u64>(name).copied().unwrap_or_default();
    let engine = options.get_one::<String>("engine").cloned().unwrap_or_default();
    let amount = Amount { rows: number("rows"), transactions: number("transactions") };
    let memory = options.get_one::<u64>("memory").copied();
    let local = open(&path, &engine, memory)?;
    let settings = Settings { rows: amount.rows, memory, ..Settings::default() };
    let bench =
        Bench::prepare(local.database().clone(), path, settings, Progress::Silent, Arc::default())?;
    // An engine without checkpoints has its own way of being quick at the next start.
    let _ = local.checkpoint();
    let plan = Plan { title: String::new(), clients: CLIENTS, threads: 1, time: LIFE, slices: 0 };
    let acknowledged = Arc::default();
    drive(&bench, &plan, Writes { acknowledged, tell: amount.transactions })?;
    Ok(0)
}

/// Writes random keys and counts its commits in the database, and those that were acknowledged on
/// the standard output.
#[derive(Clone)]
struct Writes {
    acknowledged: Arc<AtomicU64>,
    /// This one is told of however far apart the others are.
    tell: u64,
}

impl Work for Writes {
    async fn once(&self, transaction: &Transaction, client: &mut Client) -> plinth::Result<u64> {
        set_random(transaction, client, CRASH_WRITES);
        transaction.add(COMMITS, 1_u64.to_le_bytes());
        transaction.commit().await?;
        let number = self.acknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(TELL_EVERY) || number == self.tell {
            let told = writeln!(std::io::stdout(), "{number}");
            told.map_err(|error| plinth::Error::io_error().with_detail(error.to_string()))?;
        }
        Ok(CRASH_WRITES)
    }
}
