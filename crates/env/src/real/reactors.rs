//! Reactors: a few threads, one a core, each of which waits for sockets and runs the tasks that use
//! them.
//!
//! A network task costs an allocation, not a thread, so that ten thousand idle connections cost
//! little memory. It stays on the reactor that it was given: a socket that it uses registers there,
//! so that what arrives is handled on the thread that was told of it, without a hand-over. Network
//! tasks therefore never block their thread.
//!
//! There are two sets of them. What may take a millisecond for a turn has the second, whose threads
//! let those of the first go before them where there are too few processors.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{EnterGuard, Handle};

use super::{Precedence, Which};
use crate::failure::{IoError, IoErrorKind, IoResult};
use crate::task::Completion;

/// The most reactors there are in a set, however many cores.
const MOST: usize = 64;
/// After so many turns of tasks it is looked what the sockets bring, and after so many what other
/// threads have woken. With tokio's 61 and 31, tasks that always have more to do, of half a
/// millisecond a turn, kept all others waiting for 30.
const LOOK_AT_SOCKETS: u32 = 8;
const LOOK_AT_OTHERS: u32 = 4;
/// By how much the second set's threads are nicer.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

thread_local! {
    /// The number of the reactor that this thread is, of the first set.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Reactors {
    handles: Vec<Handle>,
    next: AtomicUsize,
}

/// The reactors of a set, started at the first call; or why there are none.
fn reactors(precedence: Precedence) -> IoResult<&'static Reactors> {
    static FIRST: OnceLock<io::Result<Reactors>> = OnceLock::new();
    static BEHIND: OnceLock<io::Result<Reactors>> = OnceLock::new();
    let reactors = match precedence {
        Precedence::First => &FIRST,
        Precedence::Behind => &BEHIND,
    };
    let reactors = reactors.get_or_init(|| {
        let handles =
            (0..count()).map(|number| start(precedence, number)).collect::<io::Result<_>>()?;
        Ok(Reactors { handles, next: AtomicUsize::new(0) })
    });
    let no_thread =
        |error| IoError::new(IoErrorKind::NoThread, format!("no thread for sockets: {error}"));
    reactors.as_ref().map_err(no_thread)
}

fn start(precedence: Precedence, number: usize) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .event_interval(LOOK_AT_SOCKETS)
        .global_queue_interval(LOOK_AT_OTHERS)
        .build()?;
    let handle = runtime.handle().clone();
    let forever = move || {
        match precedence {
            Precedence::First => NUMBER.set(Some(number)),
            Precedence::Behind => let_others_go_first(),
        }
        runtime.block_on(std::future::pending::<()>())
    };
    let name = match precedence {
        Precedence::First => format!("plinth-net-{number}"),
        Precedence::Behind => format!("plinth-behind-{number}"),
    };
    std::thread::Builder::new().name(name).spawn(forever)?;
    Ok(handle)
}

/// Where processors are short, the calling thread gets less of them than others do. A system that
/// has no such thing for threads treats it as all.
fn let_others_go_first() {
    #[cfg(target_os = "linux")]
    {
        let this = rustix::thread::gettid();
        let nice = rustix::process::getpriority_process(Some(this)).unwrap_or_default();
        let _ = rustix::process::setpriority_process(Some(this), nice.saturating_add(NICER));
    }
}

/// How many reactors there are in a set.
pub(crate) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).min(MOST))
}

/// Which reactor of the first set the calling thread is.
#[inline]
pub(crate) fn number() -> Option<usize> {
    NUMBER.get()
}

/// Lets all other tasks of the thread go first, and what its sockets bring.
pub(crate) async fn give_way() {
    tokio::task::yield_now().await;
}

/// Runs a task on a reactor of a set.
pub(crate) fn spawn(
    completion: Completion,
    (precedence, which): (Precedence, Which),
    future: impl Future<Output = ()> + Send + 'static,
) {
    let reactors = match reactors(precedence) {
        Ok(reactors) => reactors,
        Err(error) => return completion.fail(error.to_string()),
    };
    let count = reactors.handles.len();
    let number = match which {
        Which::Among(among) => {
            reactors.next.fetch_add(1, Ordering::Relaxed) % among.clamp(1, count)
        }
        Which::At(number) => number % count,
    };
    // A panic drops the completion, which then says that the task failed.
    drop(reactors.handles[number].spawn(async move {
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
    Ok(Some(reactors(Precedence::First)?.handles[0].enter()))
}

#[cfg(test)]
mod tests {
    use crate::Env;
    use crate::reply::{Promise, Unanswered};

    #[test]
    fn a_task_runs_on_the_thread_that_was_named() {
        let env = Env::real();
        let count = env.network_threads();
        assert_eq!(env.network_thread(), None);
        for number in 0..2 * count {
            let ((asked, told), theirs) =
                (Promise::<Option<usize>, Unanswered>::pair(), env.clone());
            let task = async move { asked.send(Ok(theirs.network_thread())) };
            drop(env.spawn_network_at(number, "named", task));
            assert_eq!(told.wait().unwrap(), Some(number % count));
        }
        let ((asked, told), theirs) = (Promise::<Option<usize>, Unanswered>::pair(), env.clone());
        let task = async move { asked.send(Ok(theirs.network_thread())) };
        drop(env.spawn_network_behind(1, "behind", task));
        assert_eq!(told.wait().unwrap(), None, "the others have the numbers");
    }
}
