//! A real process that writes to a real directory and says on its output what was acknowledged: the
//! one that is killed.
//!
//! Each transaction writes one number at both ends of the key space; each acknowledged number is a
//! line of output. The number goes on from what the database holds, so that a test may start one
//! writer after another on the same directory. The engine is one or the other, as its command line
//! says.

use plinth_client::Database;
use plinth_env::{Env, block_on};
use plinth_pipeline::{EngineKind, Node, NodeConfig, SsdSettings};
use plinth_types::{Error, Result};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The program's command for this.
pub const COMMAND: &str = "write-until-killed";

/// The window, in versions: a twentieth of a second.
const WINDOW_VERSIONS: i64 = 50_000;

/// The keys at the two ends.
pub const KEYS: [&str; 2] = ["a/number", "z/number"];

/// Settings under which checkpoints, flushes and new segments come often.
pub fn config(engine: EngineKind) -> NodeConfig {
    let mut config = NodeConfig { engine, checkpoint_bytes: 64 << 10, ..NodeConfig::default() };
    // What is older than a moment may be flushed; a process doesn't live for five seconds.
    config.window = WINDOW_VERSIONS;
    config.ssd = SsdSettings {
        table_bytes: 64 << 10,
        level_bytes: 128 << 10,
        flush_bytes: 16 << 10,
        flush_after: Duration::from_millis(10),
        ..SsdSettings::with_memory(4 << 20)
    };
    config.log.first_segment_bytes = 64 << 10;
    config.log.max_segment_bytes = 256 << 10;
    config.log.spare_bytes = 256 << 10;
    config
}

/// Opens the database in `dir`, which has this engine.
///
/// # Errors
/// Those of [`Node::open`].
pub async fn open(env: &Env, dir: &Path, engine: EngineKind) -> Result<Database> {
    let node = Node::open(env, dir, config(engine)).await?;
    Ok(Database::new(Arc::new(node.endpoint())))
}

/// The numbers at both ends.
///
/// # Errors
/// Those of a read.
pub async fn numbers(database: &Database) -> Result<[u64; 2]> {
    database
        .transact(async |tr| {
            let (low, high) = (tr.get(KEYS[0]), tr.get(KEYS[1]));
            let read = |value: Option<plinth_types::Bytes>| {
                value
                    .as_deref()
                    .and_then(|value| value.get(..8))
                    .and_then(crate::workloads::number)
                    .unwrap_or(0)
            };
            Ok([read(low.await?), read(high.await?)])
        })
        .await
}

async fn write(dir: &Path, engine: &str) -> Result<()> {
    let env = Env::real();
    let database = open(&env, dir, EngineKind::from_name(engine)?).await?;
    let [low, high] = numbers(&database).await?;
    let mut number = low;
    let mut output = std::io::stdout().lock();
    let say = |error: std::io::Error| Error::io_error().with_detail(error.to_string());
    writeln!(output, "open {low} {high}").and_then(|()| output.flush()).map_err(say)?;
    loop {
        number += 1;
        let mut value = number.to_le_bytes().to_vec();
        value.resize(8 + (number % 3_000) as usize, number as u8);
        let value = &value;
        database
            .transact(async |tr| {
                KEYS.iter().for_each(|key| tr.set(key, value));
                Ok(())
            })
            .await?;
        writeln!(output, "{number}").and_then(|()| output.flush()).map_err(say)?;
    }
}

/// Writes until it is killed; comes back only with an error, and its exit code.
pub fn run(dir: &Path, engine: &str) -> u8 {
    if let Err(error) = block_on(write(dir, engine)) {
        plinth_env::tell(error);
    }
    1
}
