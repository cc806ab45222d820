//! Replies under threads.
//!
//! Every answer arrives once, on whatever side the race is won, and a promise or reply that is
//! dropped is noticed by the other side.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plinth_env::reply::{Promise, Reply, promise};
use plinth_env::{Env, block_on};
use plinth_types::Error;

const ROUNDS: u64 = 20_000;

/// Runs `answer` on one thread and `ask` on another, for many promises at about the same time.
fn race(answer: impl Fn(u64, Promise<u64>) + Send + 'static, ask: impl Fn(u64, Reply<u64>)) {
    let env = Env::real();
    let slot = Arc::new(Mutex::new(Vec::<(u64, Promise<u64>)>::new()));
    let theirs = slot.clone();
    let answering = env.spawn("answering", async move {
        let mut answered = 0;
        while answered < ROUNDS {
            let batch = std::mem::take(&mut *theirs.lock().unwrap());
            if batch.is_empty() {
                std::thread::yield_now();
            }
            for (at, promise) in batch {
                answer(at, promise);
                answered += 1;
            }
        }
    });
    for at in 0..ROUNDS {
        let (promise, reply) = promise();
        slot.lock().unwrap().push((at, promise));
        // Different delays, so that each side comes first now and then.
        for _ in 0..(at * 7919) % 300 {
            std::hint::spin_loop();
        }
        ask(at, reply);
    }
    answering.wait().unwrap();
}

#[test]
fn waiting_threads_get_every_answer() {
    race(|at, promise| promise.send(Ok(at)), |at, reply| assert_eq!(reply.wait(), Ok(at)));
}

#[test]
fn awaiting_tasks_get_every_answer() {
    race(|at, promise| promise.send(Ok(at)), |at, reply| assert_eq!(block_on(reply), Ok(at)));
}

#[test]
fn polling_gets_every_answer() {
    race(
        |at, promise| promise.send(Ok(at)),
        |at, mut reply| {
            let answer = loop {
                if let Some(answer) = reply.try_take() {
                    break answer;
                }
                std::thread::yield_now();
            };
            assert_eq!(answer, Ok(at));
            assert!(reply.try_take().is_none());
        },
    );
}

#[test]
fn callbacks_are_called_once_each() {
    let sum = Arc::new(AtomicUsize::new(0));
    let count = Arc::new(AtomicUsize::new(0));
    let (their_sum, their_count) = (sum.clone(), count.clone());
    race(
        |at, promise| promise.send(Ok(at)),
        move |_, reply| {
            let (sum, count) = (their_sum.clone(), their_count.clone());
            reply.on_complete(move |answer| {
                sum.fetch_add(answer.unwrap() as usize, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
            });
        },
    );
    assert_eq!(count.load(Ordering::Relaxed) as u64, ROUNDS);
    assert_eq!(sum.load(Ordering::Relaxed) as u64, ROUNDS * (ROUNDS - 1) / 2);
}

#[test]
fn a_dropped_promise_is_a_broken_one() {
    race(
        |_, promise| drop(promise),
        |_, reply| assert_eq!(reply.wait(), Err(Error::broken_promise())),
    );
}

#[test]
fn every_dropped_reply_is_either_answered_or_cancelled() {
    let cancelled = Arc::new(AtomicUsize::new(0));
    let theirs = cancelled.clone();
    race(
        move |at, mut promise| {
            let cancelled = theirs.clone();
            promise.on_cancel(move || {
                cancelled.fetch_add(1, Ordering::Relaxed);
            });
            // Every second one stays unanswered until its reply is surely gone.
            if at % 2 == 0 {
                promise.send(Ok(at));
            } else {
                while !promise.is_cancelled() {
                    std::thread::yield_now();
                }
            }
        },
        |_, reply| drop(reply),
    );
    assert!(cancelled.load(Ordering::Relaxed) as u64 >= ROUNDS / 2);
}

#[test]
fn a_listener_takes_back_a_call_or_comes_too_late() {
    let called = Arc::new(AtomicUsize::new(0));
    let told = Arc::new(AtomicUsize::new(0));
    let (calls, tells) = (called.clone(), told.clone());
    race(
        move |_, mut promise| {
            let told = tells.clone();
            promise.on_cancel(move || {
                told.fetch_add(1, Ordering::Relaxed);
            });
            promise.send(Ok(0));
        },
        move |_, reply| {
            let Some(listener) = reply.listener() else { return };
            let called = calls.clone();
            reply.on_complete(move |_| {
                called.fetch_add(1, Ordering::Relaxed);
            });
            listener.cancel();
        },
    );
    let counts = [&called, &told].map(|count| count.load(Ordering::Relaxed) as u64);
    assert!(counts[0] <= ROUNDS && counts[1] <= ROUNDS - counts[0], "{counts:?}");
    let (promise, reply) = promise::<u64>();
    let listener = reply.listener().expect("nothing is there");
    let unwanted = Arc::new(AtomicUsize::new(0));
    let count = unwanted.clone();
    reply.on_complete(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    listener.cancel();
    assert!(promise.is_cancelled());
    promise.send(Ok(1));
    assert_eq!(
        (unwanted.load(Ordering::Relaxed), Arc::strong_count(&unwanted)),
        (0, 1),
        "the call was dropped"
    );
}

#[test]
fn whoever_gives_an_answer_up_is_called_nevertheless() {
    let (mut kept, reply) = promise::<u64>();
    let hooks = Arc::new(AtomicUsize::new(0));
    let hook = hooks.clone();
    kept.on_cancel(move || {
        hook.fetch_add(1, Ordering::Relaxed);
    });
    // What is made of an answer passes the word on.
    let mapped = reply.map(|answer| answer.map(|number| number + 1));
    let listener = mapped.listener().expect("it waits");
    let got = Arc::new(AtomicUsize::new(0));
    let call = got.clone();
    mapped.on_complete(move |answer| {
        call.store(usize::try_from(answer.unwrap()).unwrap(), Ordering::Relaxed);
    });
    assert!(listener.is_waiting() && !kept.is_cancelled());
    listener.give_up();
    listener.give_up();
    assert!(listener.is_waiting() && kept.is_cancelled());
    assert_eq!((hooks.load(Ordering::Relaxed), got.load(Ordering::Relaxed)), (1, 0));
    kept.send(Ok(41));
    assert!(!listener.is_waiting());
    listener.give_up();
    assert_eq!((hooks.load(Ordering::Relaxed), got.load(Ordering::Relaxed)), (1, 42));
}

#[test]
fn values_are_dropped_exactly_once() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let value = || Counted(drops.clone());
    let (kept, reply) = promise();
    kept.send(Ok(value()));
    drop(reply);
    let (kept, reply) = promise();
    drop(reply);
    kept.send(Ok(value()));
    let (kept, reply) = promise();
    kept.send(Ok(value()));
    drop(reply.wait());
    let (kept, reply) = promise();
    reply.on_complete(drop);
    kept.send(Ok(value()));
    drop(Reply::<_, Error>::ready(Ok(value())).wait());
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

#[test]
fn a_ready_reply_answers_at_once_and_once() {
    let mut reply = Reply::<_, Error>::ready(Ok(7));
    assert!(reply.is_ready());
    assert_eq!(reply.try_take(), Some(Ok(7)));
    assert_eq!(reply.try_take(), None);
    assert_eq!(block_on(&mut reply), Err(Error::future_released()));
    assert_eq!(reply.wait(), Err(Error::future_released()));
    let called = Arc::new(AtomicUsize::new(0));
    let theirs = called.clone();
    Reply::<_, Error>::ready(Ok(3))
        .on_complete(move |answer| theirs.store(answer.unwrap(), Ordering::Relaxed));
    assert_eq!(called.load(Ordering::Relaxed), 3);
}

#[test]
fn cancelling_is_told_at_once() {
    let (mut kept, reply) = promise::<()>();
    let told = Arc::new(AtomicUsize::new(0));
    let theirs = told.clone();
    kept.on_cancel(move || {
        theirs.fetch_add(1, Ordering::Relaxed);
    });
    assert!(!kept.is_cancelled());
    drop(reply);
    assert!(kept.is_cancelled());
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let theirs = told.clone();
    kept.on_cancel(move || {
        theirs.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(told.load(Ordering::Relaxed), 2);
    kept.send(Ok(()));
}

/// The park token is shared by everything that parks a thread: an inner wait must not swallow the
/// wake-up of an outer one.
#[test]
fn a_wait_inside_of_a_poll_keeps_the_outer_wake_up() {
    let env = Env::real();
    for _ in 0..500 {
        let (outer_kept, outer) = promise::<u32>();
        let (inner_kept, inner) = promise::<u32>();
        let sending = env.spawn("sending", async move {
            outer_kept.send(Ok(1));
            inner_kept.send(Ok(2));
        });
        let mut outer = Box::pin(outer);
        let mut inner = Some(inner);
        let sum = block_on(std::future::poll_fn(move |context| {
            let polled = outer.as_mut().poll(context);
            let waited = inner.take().map(|inner| inner.wait().unwrap());
            if let Some(waited) = waited {
                assert_eq!(waited, 2);
            }
            polled
        }));
        assert_eq!(sum, Ok(1));
        sending.wait().unwrap();
    }
}
