//! Point reads of many keys: more than one request takes, or more than one reply brings.
//!
//! A request has at most [`MAX_KEYS`] keys, so more of them are several requests, asked at once. A
//! reply ends when it has reached [`PART_BYTES`](plinth_proto::request::PART_BYTES), so that no
//! server builds a reply of many megabytes that nobody takes; the keys that it left out are asked
//! for again. Few keys ([`WHOLE_KEYS`]) need neither.
//!
//! [`WHOLE_KEYS`]: plinth_proto::request::WHOLE_KEYS

use plinth_env::reply::{Promise, Reply, promise};
use plinth_proto::request::MAX_KEYS;
use plinth_types::{Bytes, Error, KeyList, Result};
use std::sync::{Arc, Mutex, PoisonError};

type Values = Vec<Option<Bytes>>;

/// The values of all the keys. `ask` leaves one request, and may be answered with the values of the
/// first keys alone.
pub(super) fn values(
    keys: &KeyList,
    ask: impl Fn(Promise<Values>, &KeyList) + Clone + Send + 'static,
) -> Reply<Values> {
    let ask_for = |keys: KeyList| {
        let (done, reply) = promise();
        Continued { keys, values: Vec::new(), ask: ask.clone(), done }.go_on();
        reply
    };
    if keys.len() <= MAX_KEYS { ask_for(keys.clone()) } else { in_pieces(keys, ask_for) }
}

/// A request that goes on where its last reply ended.
struct Continued<A> {
    keys: KeyList,
    values: Values,
    ask: A,
    done: Promise<Values>,
}

impl<A: Fn(Promise<Values>, &KeyList) + Send + 'static> Continued<A> {
    fn go_on(mut self) {
        let (promise, reply) = promise();
        match self.values.len() {
            0 => (self.ask)(promise, &self.keys),
            had => (self.ask)(promise, &self.keys.slice(had..self.keys.len())),
        }
        reply.on_complete(move |more| match more {
            Ok(more) => {
                self.values.extend(more);
                if self.values.len() >= self.keys.len() {
                    self.done.send(Ok(self.values));
                } else if !self.done.is_cancelled() {
                    self.go_on();
                }
            }
            Err(error) => self.done.send(Err(error)),
        });
    }
}

/// What `read` gives for each piece of the keys, in the keys' order.
fn in_pieces(keys: &KeyList, read: impl Fn(KeyList) -> Reply<Values>) -> Reply<Values> {
    let (promise, reply) = promise();
    let pieces = keys.len().div_ceil(MAX_KEYS);
    let gathered = Arc::new(Mutex::new(Gathered {
        values: vec![Vec::new(); pieces],
        missing: pieces,
        promise: Some(promise),
    }));
    for number in 0..pieces {
        let piece = keys.slice(number * MAX_KEYS..keys.len().min((number + 1) * MAX_KEYS));
        let gathered = gathered.clone();
        read(piece).on_complete(move |values| Gathered::note(&gathered, number, values));
    }
    reply
}

struct Gathered {
    values: Vec<Values>,
    missing: usize,
    promise: Option<Promise<Values>>,
}

impl Gathered {
    fn note(gathered: &Mutex<Self>, number: usize, values: Result<Values, Error>) {
        let (promise, result) = {
            let mut this = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            match values {
                Ok(values) => {
                    this.values[number] = values;
                    this.missing -= 1;
                    if this.missing > 0 {
                        return;
                    }
                    let all = std::mem::take(&mut this.values).into_iter().flatten().collect();
                    (this.promise.take(), Ok(all))
                }
                Err(error) => (this.promise.take(), Err(error)),
            }
        };
        if let Some(promise) = promise {
            promise.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> KeyList {
        let mut keys = KeyList::new();
        (0..count).for_each(|number| {
            keys.push(&(number as u32).to_be_bytes());
        });
        keys
    }

    /// Answers with the first `most` keys as values.
    fn echo(most: usize) -> impl Fn(Promise<Values>, &KeyList) + Clone + Send + 'static {
        move |promise, keys| {
            assert!(keys.len() <= MAX_KEYS);
            promise.send(Ok(keys
                .iter()
                .take(most)
                .map(|key| Some(Bytes::copy_from_slice(key)))
                .collect()));
        }
    }

    #[test]
    fn requests_go_on_where_replies_ended_and_pieces_come_together_in_order() {
        for count in [0, 1, 11, MAX_KEYS, MAX_KEYS + 1, 2 * MAX_KEYS + 7] {
            let keys = numbered(count);
            for most in [1, 10, 100, MAX_KEYS] {
                let values = values(&keys, echo(most)).wait().unwrap();
                assert!(
                    values.iter().flatten().map(|value| &value[..]).eq(keys.iter()),
                    "{count} {most}"
                );
            }
        }
    }

    #[test]
    fn an_error_ends_all() {
        let fails_after = |left: usize| {
            let fine = echo(100);
            move |promise: Promise<Values>, keys: &KeyList| match keys.len() > left {
                true => fine(promise, keys),
                false => promise.send(Err(Error::transaction_too_old())),
            }
        };
        for left in [7, 56, 156] {
            let read = values(&numbered(2 * MAX_KEYS + 7), fails_after(left));
            assert_eq!(read.wait(), Err(Error::transaction_too_old()));
        }
    }

    #[test]
    fn nothing_more_is_asked_for_when_nobody_waits() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, keys) = (asked.clone(), numbered(20));
        let read = values(&keys, move |promise, _: &KeyList| log.lock().unwrap().push(promise));
        let first = asked.lock().unwrap().pop().unwrap();
        drop(read);
        first.send(Ok(vec![None; 12]));
        assert!(asked.lock().unwrap().is_empty());
    }
}
