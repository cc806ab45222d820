//! Batches in flight against the order in which the log commits them.

use super::*;
use plinth_env::simulated::Random;
use std::future::Future;
use std::task::Context;

#[derive(PartialEq, Eq, Debug)]
struct Batch(u64);

impl Appended for Batch {
    fn position(&self) -> Option<Position> {
        Some(Position::from_sequence(self.0))
    }

    fn version(&self) -> Version {
        self.0 as Version
    }
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn next(in_flight: &InFlight<Batch>, committed: u64) -> Poll<Option<Settling<'_, Batch>>> {
    poll(in_flight.next_committed(Some(Position::from_sequence(committed))))
}

fn settled(in_flight: &InFlight<Batch>, committed: u64) -> Option<u64> {
    match next(in_flight, committed) {
        Poll::Ready(settling) => settling.map(|settling| settling.done().0),
        Poll::Pending => panic!("it waits though nothing is being settled"),
    }
}

/// Whatever order commits are learned in, batches take effect in the order of their positions, and
/// none that isn't committed does.
#[test]
fn batches_settle_in_order_and_only_once_committed() {
    let mut random = Random::new(7);
    let in_flight = InFlight::default();
    let (mut appended, mut committed, mut effect) = (0, 0, 0);
    for _ in 0..10_000 {
        match random.index(3) {
            0 => {
                appended += 1;
                in_flight.push(Batch(appended)).expect("it is open");
            }
            1 if committed < appended => {
                committed += 1 + random.index((appended - committed) as usize) as u64;
            }
            _ => {
                // Somebody may be late with an older position.
                let told = committed - random.index(3).min(committed as usize) as u64;
                match settled(&in_flight, told) {
                    Some(batch) => {
                        effect += 1;
                        assert_eq!(batch, effect);
                    }
                    None => assert!(effect >= told, "committed batches are left"),
                }
                assert!(effect <= committed);
            }
        }
        in_flight.check_invariants();
        assert_eq!(in_flight.len() as u64, appended - effect);
    }
    assert!(effect > 1000);
}

#[test]
fn one_batch_settles_at_a_time_and_the_next_is_woken() {
    let in_flight = InFlight::default();
    for at in 1..=2 {
        in_flight.push(Batch(at)).expect("it is open");
    }
    let Poll::Ready(Some(first)) = next(&in_flight, 2) else { panic!("the first is committed") };
    assert!(next(&in_flight, 2).is_pending(), "the first one is being settled");
    assert_eq!(in_flight.len(), 2);
    in_flight.check_invariants();
    drop(first);
    assert_eq!(settled(&in_flight, 2), Some(2));
    assert!(in_flight.is_empty());
}

/// A leader that resigns answers what is in flight; what is appended afterwards comes back too.
#[test]
fn closing_hands_out_what_is_in_flight() {
    let in_flight = InFlight::default();
    for at in 1..=3 {
        in_flight.push(Batch(at)).expect("it is open");
    }
    let Poll::Ready(Some(settling)) = next(&in_flight, 1) else { panic!("the first is committed") };
    let cause = NodeError::Displaced("the directory".into());
    assert_eq!(in_flight.close(&cause), [Batch(2), Batch(3)]);
    assert_eq!(settling.done(), Batch(1), "it is settled to its end");
    let (batch, why) = in_flight.push(Batch(4)).expect_err("it is closed");
    assert_eq!((batch, why), (Batch(4), cause));
    assert_eq!(settled(&in_flight, 4), None);
    in_flight.check_invariants();
}
