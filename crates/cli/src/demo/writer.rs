//! The process that the tour kills: it writes as fast as it can, and says what was acknowledged.
//!
//! Each transaction adds a row of its own and one to a counter of all rows, so that half a
//! transaction would show. After the commit, and not before, it prints the row's writer and number.
//! What is read from that pipe was acknowledged; what was acknowledged must be there after the
//! crash.

use super::open;
use crate::failure::Failure;
use clap::ArgMatches;
use plinth::Transaction;
use plinth_env::{Env, reply};
use std::io::Write;
use std::path::PathBuf;

/// Writers at once.
pub const WRITERS: u64 = 8;
/// How many rows there are, as a little-endian number that atomic additions count up.
pub const COUNT: &[u8] = b"count";

/// The key of a writer's row number `number` in this round.
pub fn row_key(round: u64, writer: u64, number: u64) -> String {
    format!("row/{round:02}/{writer}/{number:08}")
}

/// What that row holds.
pub fn row_value(writer: u64, number: u64) -> String {
    format!("written by {writer}: {}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Writes until the process is killed, or nobody listens any more.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let path = options.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let round = options.get_one::<u64>("round").copied().unwrap_or_default();
    let database = open(&path)?;
    let env = Env::real();
    let replies: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (promise, reply) = reply::promise::<()>();
            let database = database.clone();
            env.spawn("demo-writer", async move {
                let mut number = 0;
                let result = loop {
                    let write = |transaction: &Transaction| {
                        transaction.set(row_key(round, writer, number), row_value(writer, number));
                        transaction.add(COUNT, 1_u64.to_le_bytes());
                        Ok(())
                    };
                    if let Err(error) = database.transact_blocking(write) {
                        break Err(error);
                    }
                    if writeln!(std::io::stdout(), "{writer} {number}").is_err() {
                        break Ok(());
                    }
                    number += 1;
                };
                promise.send(result);
            });
            reply
        })
        .collect();
    for reply in replies {
        reply.wait().map_err(|error| Failure::of("cannot write", error))?;
    }
    Ok(0)
}
