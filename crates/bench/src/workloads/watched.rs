//! Work that tells how far it is, done by a task of its own while people are shown that.

use crate::{Bench, Error, Result, words};
use plinth_env::block_on;
use plinth_env::reply;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(20);

/// Does something with so many bytes, of which `done` says how many it has had. Gives how long that
/// took, too.
pub fn watched<T: Send + 'static>(
    bench: &Bench,
    title: &str,
    total: u64,
    done: &AtomicU64,
    work: impl Future<Output = plinth_types::Result<T>> + Send + 'static,
) -> Result<(T, Duration)> {
    if bench.stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let task = bench.progress.counted(title, total, "bytes");
    let (promise, reply) = reply::promise();
    let env = bench.env.clone();
    drop(bench.env.spawn("bench-work", async move {
        let began = env.now();
        let result = work.await;
        promise.send(result.map(|found| (found, env.now() - began)));
    }));
    while !reply.is_ready() {
        block_on(bench.env.sleep(TICK));
        let done = done.load(Ordering::Relaxed);
        task.set(done.min(total), words::bytes(done));
    }
    reply.wait().map_err(|error| match bench.stop.load(Ordering::Relaxed) {
        true => Error::Interrupted,
        false => error.into(),
    })
}
