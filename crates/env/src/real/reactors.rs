//! Reactors: a few threads, one a core, each of which waits for sockets and runs the tasks that use
//! them.
//!
//! A network task costs an allocation, not a thread, so that ten thousand idle connections cost
//! little memory. It stays on the reactor that it was given: a socket that it uses registers there,
//! so that what arrives is handled on the thread that was told of it, without a hand-over. Network
//! tasks therefore never block their thread.

use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{EnterGuard, Handle};

use crate::failure::{IoError, IoErrorKind, IoResult};
use crate::task::Completion;

/// The most reactors there are, however many cores.
const MOST: usize = 64;

struct Reactors {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

/// The reactors, started at the first call; or why there are none.
fn reactors() -> IoResult<&'static Reactors> {
    static REACTORS: OnceLock<io::Result<Reactors>> = OnceLock::new();
    let reactors = REACTORS.get_or_init(|| {
        let handles = (0..count()).map(start).collect::<io::Result<_>>()?;
        Ok(Reactors { handles, next: AtomicUsize::new(0) })
    });
    let no_thread =
        |error| IoError::new(IoErrorKind::NoThread, format!("no thread for sockets: {error}"));
    reactors.as_ref().map_err(no_thread)
}

fn start(number: usize) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let handle = runtime.handle().clone();
    let forever = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name(format!("plinth-net-{number}")).spawn(forever)?;
    Ok(handle)
}

/// How many reactors there are.
pub(crate) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST))
}

/// Lets all other tasks of the thread go first, and what its sockets bring.
pub(crate) async fn give_way() {
    tokio::task::yield_now().await;
}

/// Runs a task on one of the first `among` reactors, in turn.
pub(crate) fn spawn(
    completion: Completion,
    among: usize,
    future: impl Future<Output = ()> + Send + 'static,
) {
    let reactors = match reactors() {
        Ok(reactors) => reactors,
        Err(error) => return completion.fail(error.to_string()),
    };
    let among = among.clamp(1, reactors.handles.len());
    let next = reactors.next.fetch_add(1, Ordering::Relaxed) % among;
    // A panic drops the completion, which then says that the task failed.
    drop(reactors.handles[next].spawn(async move {
        future.await;
        completion.finish();
    }));
}

/// Has sockets register with the calling thread's reactor; with the first one if the thread is
/// none.
pub(crate) fn enter() -> IoResult<Option<EnterGuard<'static>>> {
    if Handle::try_current().is_ok() {
        return Ok(None);
    }
    Ok(Some(reactors()?.handles[0].enter()))
}
