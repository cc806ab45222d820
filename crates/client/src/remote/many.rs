//! Point reads of more keys than one request takes: several requests, whose answers are put together.

use plinth_env::reply::{Promise, Reply, promise};
use plinth_proto::request::MAX_KEYS;
use plinth_types::{Bytes, Error, KeyList, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// What `read` gives for each piece of the keys, in the keys' order.
pub(super) fn in_pieces(
    keys: &KeyList,
    read: impl Fn(&KeyList) -> Reply<Vec<Option<Bytes>>>,
) -> Reply<Vec<Option<Bytes>>> {
    let (promise, reply) = promise();
    let pieces = keys.len().div_ceil(MAX_KEYS);
    let gathered = Arc::new(Mutex::new(Gathered {
        values: vec![Vec::new(); pieces],
        missing: pieces,
        promise: Some(promise),
    }));
    let mut piece = KeyList::new();
    for number in 0..pieces {
        piece.clear();
        let end = keys.len().min((number + 1) * MAX_KEYS);
        for at in number * MAX_KEYS..end {
            piece.push(keys.get(at));
        }
        let gathered = gathered.clone();
        read(&piece).on_complete(move |values| Gathered::note(&gathered, number, values));
    }
    reply
}

struct Gathered {
    values: Vec<Vec<Option<Bytes>>>,
    missing: usize,
    promise: Option<Promise<Vec<Option<Bytes>>>>,
}

impl Gathered {
    fn note(gathered: &Mutex<Self>, number: usize, values: Result<Vec<Option<Bytes>>, Error>) {
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

    #[test]
    fn pieces_come_together_in_order_and_an_error_ends_all() {
        let mut keys = KeyList::new();
        for number in 0..2 * MAX_KEYS + 7 {
            keys.push(&(number as u32).to_be_bytes());
        }
        let echo = |keys: &KeyList| {
            assert!(keys.len() <= MAX_KEYS);
            Reply::ready(Ok(keys.iter().map(|key| Some(Bytes::copy_from_slice(key))).collect()))
        };
        let values = in_pieces(&keys, echo).wait().unwrap();
        assert!(values.iter().flatten().map(|value| &value[..]).eq(keys.iter()));
        let fails = |keys: &KeyList| match keys.len() {
            MAX_KEYS => echo(keys),
            _ => Reply::ready(Err(Error::transaction_too_old())),
        };
        assert_eq!(in_pieces(&keys, fails).wait(), Err(Error::transaction_too_old()));
    }
}
