//! Clients that count in a row that all of them write, and leave a row for each count: one that was
//! lost, or took effect twice, shows.

use plinth::{Database, RangeOptions, Result, Transaction};
use plinth_env::{Env, Task, block_on};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Clients at work.
pub struct Counting {
    env: Env,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<Task>,
}

impl Counting {
    /// So many clients, each with a connection of its own.
    pub fn start(file: &Path, clients: usize) -> Self {
        let env = Env::real();
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let clients = (0..clients)
            .map(|client| {
                let db = Database::connect(file).unwrap();
                let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
                env.spawn("client", async move {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        count(&db, &format!("row/{client}/{number}")).unwrap();
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        Self { env, stop, acknowledged, clients }
    }

    /// Waits until so many more counts have been acknowledged, looking so often.
    pub fn await_more(&self, counts: u64, pause: Duration) {
        let before = self.acknowledged.load(Ordering::Relaxed);
        while self.acknowledged.load(Ordering::Relaxed) < before + counts {
            block_on(self.env.sleep(pause));
        }
    }

    /// Ends them. Gives how many counts were acknowledged.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.wait().unwrap());
        self.acknowledged.load(Ordering::Relaxed)
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Counts one further, and leaves a row that says so, once, whatever becomes of answers.
pub fn count(db: &Database, row: &str) -> Result<()> {
    let tr = db.create_transaction();
    loop {
        let attempt = |tr: &Transaction| {
            if tr.get(row).wait()?.is_some() {
                return Ok(());
            }
            let count = tr.get("count").wait()?.map_or(0, |value| number(&value)) + 1;
            tr.set("count", count.to_be_bytes());
            tr.set(row, count.to_be_bytes());
            tr.commit().wait()
        };
        match attempt(&tr) {
            Ok(()) => return Ok(()),
            Err(error) => tr.on_error(error).wait()?,
        }
    }
}

/// Every count that was acknowledged is there, once, and no other.
pub fn judge(db: &Database, acknowledged: u64) {
    let (count, mut rows) = db
        .transact_blocking(|tr| {
            let rows =
                block_on(tr.range(RangeOptions::from(&b"row/"[..]..&b"row0"[..])).collect())?;
            let rows: Vec<u64> = rows.iter().map(|row| number(&row.value)).collect();
            Ok((tr.get("count").wait()?.map_or(0, |value| number(&value)), rows))
        })
        .unwrap();
    rows.sort_unstable();
    assert_eq!(count, acknowledged);
    assert!(rows.iter().copied().eq(1..=count), "the count is {count}, the rows say {rows:?}");
}
