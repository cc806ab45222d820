//! Futures raced by threads: whatever comes first, each callback runs once, each value is dropped
//! once, nobody waits for ever.
//!
//! Miri runs these too (with fewer rounds), and looks at every access to the slot.

use super::call::NETWORK;
use super::held::Held;
use super::{FutureCore, behind};
use crate::network::{Due, Parameter};
use crate::value::Value;
use plinth_client::Database;
use plinth_env::reply::{Reply, promise};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_types::{Bytes, Error};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, yield_now};

const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };

/// A handle as C has it, which goes to any thread.
#[derive(Clone, Copy)]
struct Raw(*mut FutureCore);

// SAFETY: C's handles may be used on any thread.
unsafe impl Send for Raw {}

impl Raw {
    fn on<R>(self, f: impl FnOnce(&Held) -> R) -> R {
        // SAFETY: the tests destroy a handle once, when no thread uses it any more.
        f(&unsafe { behind(self.0) }.expect("a handle"))
    }

    fn destroy(self) {
        // SAFETY: as above.
        drop(unsafe { Held::from_raw(self.0) }.cancel());
    }

    fn int(self) -> Result<i64, i32> {
        let int = |value: &Value| if let Value::Int(value) = value { Some(*value) } else { None };
        self.on(|future| future.get(int)).map_err(|error| error.code())
    }
}

unsafe extern "C-unwind" fn count(future: *mut FutureCore, counter: *mut c_void) {
    // SAFETY: the parameter is a counter that outlives the network, and the future lives through
    // the call.
    let (counter, future) =
        unsafe { (&*counter.cast::<AtomicUsize>(), behind(future).expect("a handle")) };
    assert!(future.is_ready());
    counter.fetch_add(1, Ordering::Relaxed);
}

fn counter_of(counter: &AtomicUsize) -> Parameter {
    Parameter(std::ptr::from_ref(counter).cast_mut().cast())
}

/// Answer, cancelling, callbacks, waiting and asking, all at once.
fn race(counter: &AtomicUsize, of: fn(Reply<()>) -> Held) {
    let (promise, reply) = promise();
    let future = Raw(of(reply).into_raw());
    scope(|threads| {
        threads.spawn(move || promise.send(Ok(())));
        threads.spawn(move || drop(future.on(Held::cancel)));
        threads.spawn(move || {
            for _ in 0..3 {
                let due = future.on(|future| future.call_back(count, counter_of(counter)));
                due.into_iter().for_each(Due::run);
            }
        });
        threads.spawn(move || {
            while !future.on(Held::is_ready) {
                // It may be answered or cancelled between the two questions.
                let code = future.on(Held::error).map_or_else(|error| error.code(), |()| 0);
                assert!(matches!(code, 0 | 1101 | 2015), "{code}");
                yield_now();
            }
        });
        assert!(future.on(Held::block).is_ok());
        let code = future.on(Held::error).map_or_else(|error| error.code(), |()| 0);
        let got =
            future.on(|future| future.get(|value| matches!(value, Value::Nothing).then_some(())));
        assert_eq!(got.map_err(|error| error.code()), if code == 0 { Ok(()) } else { Err(1101) });
    });
    future.destroy();
}

/// Ends the network when a test does, by a panic too: the panic is told then, instead of waiting
/// for the network's thread.
struct StopsNetwork;

impl Drop for StopsNetwork {
    fn drop(&mut self) {
        NETWORK.stop().expect("it was set up");
    }
}

#[test]
fn each_callback_runs_once_whatever_comes_first() {
    NETWORK.set_up().expect("no other test sets it up");
    let counter = AtomicUsize::new(0);
    scope(|threads| {
        threads.spawn(|| NETWORK.run().expect("the only network thread"));
        let _stops = StopsNetwork;
        for _ in 0..ROUNDS {
            race(&counter, FutureCore::start);
            race(&counter, FutureCore::of_reply);
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 6 * ROUNDS);
}

#[test]
fn a_cancelled_future_tells_whoever_would_answer_it() {
    for of in [FutureCore::start, FutureCore::of_reply] {
        let (promise, reply) = promise::<()>();
        let future = Raw(of(reply).into_raw());
        assert!(!promise.is_cancelled());
        drop(future.on(Held::cancel));
        assert!(promise.is_cancelled());
        promise.send(Ok(()));
        assert_eq!(future.on(Held::error).map_err(|error| error.code()), Err(1101));
        future.destroy();
    }
}

struct Counted(Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        b"value"
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_value_is_dropped_once_by_the_last_release_or_with_its_future() {
    let drops = Arc::new(AtomicUsize::new(0));
    for round in 0..ROUNDS {
        let future = Raw(FutureCore::done(Bytes::from_owner(Counted(drops.clone()))).into_raw());
        let releases = round % 3;
        scope(|threads| {
            for _ in 0..3 {
                threads.spawn(move || {
                    let length = |value: &Value| match value {
                        Value::Bytes(bytes) => {
                            Some(bytes.iter().filter(|byte| **byte == b'v').count())
                        }
                        _ => None,
                    };
                    assert!(matches!(future.int(), Err(2000 | 1102)));
                    let got = future.on(|future| future.get(length)).map_err(|error| error.code());
                    assert!(matches!(got, Ok(1) | Err(1102)), "{got:?}");
                    // More releases than getters that succeeded, or fewer: neither may free what is
                    // looked at.
                    (0..releases).for_each(|_| future.on(|future| future.release()));
                });
            }
        });
        assert!(drops.load(Ordering::Relaxed) <= round + 1);
        future.destroy();
        assert_eq!(drops.load(Ordering::Relaxed), round + 1);
    }
}

#[test]
fn a_read_that_nobody_wanted_is_sent_once_by_many_that_want_it() {
    if cfg!(miri) {
        return; // a whole store is too much there
    }
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).expect("a store");
    let tr = Database::new(Arc::new(node.endpoint())).create_transaction();
    tr.get_read_version().wait().expect("a version");
    for round in 0..ROUNDS {
        let get = tr.get("k");
        assert!(get.is_settled());
        let future = Raw(FutureCore::of_get(get).into_raw());
        scope(|threads| {
            for _ in 0..2 {
                threads.spawn(move || assert!(future.on(Held::block).is_ok()));
            }
            if round % 2 == 0 {
                threads.spawn(move || drop(future.on(Held::cancel)));
            }
        });
        let outcome = future.on(Held::error).map_or_else(|error| error.code(), |()| 0);
        assert!(outcome == 0 || (outcome == 1101 && round % 2 == 0), "round {round}: {outcome}");
        future.destroy();
    }
    // One that is destroyed unasked leaves nothing that commit would wait for.
    Raw(FutureCore::of_get(tr.get("k")).into_raw()).destroy();
    tr.set("k", "v");
    assert_eq!(tr.commit().wait(), Ok(()));
}

#[test]
fn errors_stay_after_any_release() {
    let future = Raw(FutureCore::failed(Error::not_committed()).into_raw());
    future.on(|future| future.release());
    assert_eq!(future.int(), Err(1020));
    assert_eq!(future.on(Held::error).map_err(|error| error.code()), Err(1020));
    future.destroy();
    let never = Raw(FutureCore::never().into_raw());
    assert_eq!(never.int(), Err(2015));
    drop(never.on(Held::cancel));
    assert_eq!(never.int(), Err(1101));
    never.destroy();
}
