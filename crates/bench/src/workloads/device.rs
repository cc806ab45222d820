//! What an engine on a device has done, by its own counters and the kernel's, for workloads on data
//! larger than memory.

use crate::figures;
use crate::machine::FileUse;
use crate::outcome::Figure;
use crate::unit::Unit;
use plinth_client::Database;
use plinth_env::Env;
use serde_json::Value;

/// What was counted until one moment.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Reads of files that readers waited for.
    reads: f64,
    /// Keys that were looked for in files.
    uncached: f64,
    /// Bytes of rows that left the window for tables.
    flushed: f64,
    /// Bytes of tables, by flushes and merges.
    written: f64,
    /// The kernel's counts, where it has them.
    kernel: Option<FileUse>,
}

impl Device {
    /// As the status document has it; `None` if it doesn't.
    pub fn of(env: &Env, database: &Database) -> Option<Self> {
        let document: Value = database.status_json().wait().ok()?.parse().ok()?;
        let count = |name: &str| document.pointer(&format!("/cluster/plinth/ssd/{name}"))?.as_f64();
        Some(Self {
            reads: count("device_reads")?,
            uncached: count("uncached_reads")?,
            flushed: count("flushed_bytes")?,
            written: count("written_bytes")?,
            kernel: FileUse::now(env),
        })
    }

    /// What was counted since.
    #[must_use]
    pub fn since(self, then: Self) -> Self {
        let kernel = self.kernel.zip(then.kernel).map(|(now, then)| FileUse {
            read_calls: now.read_calls - then.read_calls,
            read_bytes: now.read_bytes - then.read_bytes,
            written_bytes: now.written_bytes - then.written_bytes,
        });
        Self {
            reads: self.reads - then.reads,
            uncached: self.uncached - then.uncached,
            flushed: self.flushed - then.flushed,
            written: self.written - then.written,
            kernel,
        }
    }

    /// Of a time in which nothing but reads were asked for: what a key cost that was not in memory.
    pub fn of_reads(self) -> Vec<Figure> {
        let of = |reads: f64| reads / self.uncached.max(1.0);
        let mut figures = vec![Figure::new(
            "device reads an uncached read",
            of(self.reads),
            Unit::Times,
            figures::DEVICE_READS,
        )];
        // Besides the blocks: what the process asked of the kernel about itself, and merges that
        // went on.
        figures.extend(self.kernel.map(|kernel| {
            let calls = of(kernel.read_calls as f64);
            Figure::new(
                "the same by the kernel's count of calls",
                calls,
                Unit::Times,
                figures::Target::NONE,
            )
        }));
        figures
    }

    /// Of a time with writes: bytes written for each that left the window. The engine counts what
    /// goes into tables; what the log took before is in the kernel's count alone.
    pub fn of_writes(self) -> Vec<Figure> {
        let of = |bytes: f64| bytes / self.flushed.max(1.0);
        let tables = of(self.written);
        let mut figures = vec![Figure::new(
            "bytes written to tables for each flushed, the log left out",
            tables,
            Unit::Times,
            figures::WRITE_AMPLIFICATION,
        )];
        figures.extend(self.kernel.map(|kernel| {
            let all = of(kernel.written_bytes as f64);
            Figure::new(
                "the same with the log, by the kernel's count",
                all,
                Unit::Times,
                figures::Target::NONE,
            )
        }));
        figures
    }

    /// Reads of files that readers waited for.
    pub fn reads(self) -> f64 {
        self.reads
    }

    /// Keys that were looked for in files.
    pub fn uncached(self) -> f64 {
        self.uncached
    }

    /// Bytes that the kernel had to fetch from disks; `None` where it doesn't count them.
    pub fn fetched_bytes(self) -> Option<f64> {
        self.kernel.map(|kernel| kernel.read_bytes as f64)
    }

    /// Whether anything was looked for in files.
    pub fn has_uncached(self) -> bool {
        self.uncached > 0.0
    }
}
