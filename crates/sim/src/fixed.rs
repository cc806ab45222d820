//! A database that does not change, for workloads about what one transaction reads: its rows are
//! known exactly.
//!
//! Keys are short, of few different bytes, the least and the greatest among them, so that many are
//! prefixes of one another, neighbours, or just before the end of the key space.

use crate::client::Client;
use crate::history::{Rows, resolve_key};
use crate::stage::lock;
use plinth_client::KeySelector;
use plinth_types::{Bytes, Error};
use std::sync::Mutex;

/// What keys are made of.
const BYTES: [u8; 6] = [0x00, 0x01, b'a', b'b', 0x7f, 0xfe];

/// Rows that are written once.
pub(crate) struct Fixed {
    count: u64,
    rows: Mutex<Rows>,
}

impl Fixed {
    pub fn new(count: u64) -> Self {
        Self { count, rows: Mutex::default() }
    }

    /// A key that may or may not be there.
    pub fn key(&self, client: &Client) -> Bytes {
        let len = client.below(4);
        (0..len).map(|_| BYTES[client.index(BYTES.len())]).collect::<Vec<_>>().into()
    }

    /// A value of up to so many bytes.
    pub fn value(&self, client: &Client, longest: usize) -> Bytes {
        vec![client.below(4) as u8; client.index(longest)].into()
    }

    /// What the database holds.
    pub fn rows(&self) -> Rows {
        lock(&self.rows).clone()
    }

    /// Writes the rows.
    pub async fn fill(&self, client: &Client) {
        let rows: Rows =
            (0..self.count).map(|_| (self.key(client), self.value(client, 300))).collect();
        let filled = client.insist(async |tr| {
            rows.iter().for_each(|(key, value)| tr.set(key, value));
            Ok(())
        });
        filled.await;
        *lock(&self.rows) = rows;
    }

    /// The database is what it was at the beginning.
    pub async fn check(&self, client: &Client) {
        let Some(rows) = client.read_all("").await else { return };
        let (found, expected): (Rows, _) = (rows.into_iter().collect(), self.rows());
        if found != expected {
            client
                .fail(format!("nobody changed anything, and there is {found:?}, not {expected:?}"));
        }
    }
}

/// The rows between two selectors.
pub(crate) fn between(
    rows: &Rows,
    begin: &KeySelector,
    end: &KeySelector,
    limit: usize,
    reverse: bool,
) -> Vec<(Bytes, Bytes)> {
    let (begin, end) = (resolve_key(rows, begin), resolve_key(rows, end));
    if begin >= end {
        return Vec::new();
    }
    let all = rows.range(begin..end).map(|(key, value)| (key.clone(), value.clone()));
    if reverse { all.rev().take(limit).collect() } else { all.take(limit).collect() }
}

/// By which a body says that the model disagrees: an error that no fault gives.
pub(crate) fn wrong(client: &Client, what: String) -> Error {
    client.fail(format!("client {}: {what}", client.id));
    Error::unknown_error()
}
