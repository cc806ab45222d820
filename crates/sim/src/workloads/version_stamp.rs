//! VersionStamp: stamps are what the commits say they are, unique, and in the order of real time.
//!
//! Each transaction writes a versionstamped key and a versionstamped value that name one another,
//! and asks for its stamp. What was acknowledged must lie under exactly that stamp; what is there
//! at all must be whole.

use super::{Work, Workload};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::stage::lock;
use plinth_client::Transaction;
use plinth_types::{Bytes, Result, Version, Versionstamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Known {
    acknowledged: BTreeMap<u64, Versionstamp>,
    newest: Version,
}

#[derive(Default)]
pub struct VersionStamp {
    next: AtomicU64,
    known: Mutex<Known>,
}

impl VersionStamp {
    pub fn new(_draw: &mut Draw<'_>) -> Self {
        Self::default()
    }

    async fn write(&self, client: &Client) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let newest_before = lock(&self.known).newest;
        let written = client.attempt(async |tr: Transaction| {
            let name = number.to_be_bytes();
            // The stamp's place, then where it is.
            let place = [&[0; 10][..], &4u32.to_le_bytes()].concat();
            tr.set_versionstamped_key([b"key/", &place[..]].concat(), name);
            let place = [&[0; 10][..], &0u32.to_le_bytes()].concat();
            tr.set_versionstamped_value([b"val/", &name[..]].concat(), place);
            Ok(tr.versionstamp())
        });
        let Outcome::Committed(stamp, version) = written.await else { return };
        match stamp.await {
            Ok(stamp) if stamp.version() != version => {
                client.fail(format!("{number} committed at {version}, but its stamp is {stamp:?}"));
            }
            Ok(stamp) if stamp.version() <= newest_before => {
                client.fail(format!(
                    "{stamp:?} is not newer than {newest_before}, acknowledged before it began"
                ));
            }
            Ok(stamp) => {
                let mut known = lock(&self.known);
                known.newest = known.newest.max(version);
                known.acknowledged.insert(number, stamp);
            }
            Err(error) => client.fail(format!("{number} committed, but its stamp failed: {error}")),
        }
    }
}

fn split(row: &(Bytes, Bytes)) -> (&[u8], &[u8]) {
    (&row.0[4..], &row.1)
}

fn compare(
    known: &Known,
    keys: &[(Bytes, Bytes)],
    values: &[(Bytes, Bytes)],
) -> Result<(), String> {
    let by_key: BTreeMap<&[u8], &[u8]> =
        keys.iter().map(split).map(|(stamp, name)| (name, stamp)).collect();
    let by_value: BTreeMap<&[u8], &[u8]> = values.iter().map(split).collect();
    if by_key != by_value || by_key.len() != keys.len() {
        return Err(format!("versionstamped keys and values differ: {by_key:?} and {by_value:?}"));
    }
    for (number, stamp) in &known.acknowledged {
        let found = by_key.get(&number.to_be_bytes()[..]);
        if found.copied() != Some(&stamp.as_bytes()[..]) {
            return Err(format!(
                "{number} was acknowledged with {stamp:?}, and is under {found:?}"
            ));
        }
    }
    Ok(())
}

impl Workload for VersionStamp {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                self.write(&client).await;
                client.pause(8_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let (keys, values) = (client.read_all("key/").await, client.read_all("val/").await);
            let (Some(keys), Some(values)) = (keys, values) else { return };
            if let Err(what) = compare(&lock(&self.known), &keys, &values) {
                client.fail(what);
            }
        })
    }
}
