//! Sideband: a commit of which somebody is told by other means is visible to whatever he begins
//! afterwards.
//!
//! Half of the clients write keys and pass on key and version once the commit is acknowledged; the
//! others take such a message, begin a transaction, and must find the key, at a read version that
//! is not older. Now and then they name the read version themselves, one that is yet to come: the
//! read waits for it, and must find the key all the same.

use super::{Work, Workload};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::stage::lock;
use plinth_types::Version;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Versions that a read may be ahead of the commit it looks for: more than a read waits for.
const FURTHEST_AHEAD: u64 = 2_000_000;

#[derive(Default)]
pub struct Sideband {
    next: AtomicU64,
    messages: Mutex<VecDeque<(u64, Version)>>,
}

impl Sideband {
    pub fn new(_draw: &mut Draw<'_>) -> Self {
        Self::default()
    }

    async fn write(&self, client: &Client) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let written = client.attempt(async |tr| {
            tr.set(key(number), b"told");
            Ok(())
        });
        if let Outcome::Committed((), version) = written.await {
            lock(&self.messages).push_back((number, version));
        }
    }

    async fn read(&self, client: &Client) {
        let Some((number, version)) = lock(&self.messages).pop_front() else { return };
        if client.chance(0.1) {
            self.read_ahead(client, number, version).await;
        }
        let read = client
            .insist(async |tr| Ok((tr.get(key(number)).await?, tr.get_read_version().await?)));
        let Some(((value, read_version), _)) = read.await else { return };
        if value.as_deref() != Some(b"told") {
            client.fail(format!(
                "commit {number} at version {version} is not seen at {read_version}: {value:?}"
            ));
        }
        if read_version < version {
            client.fail(format!(
                "read version {read_version} was given after a commit at {version} was told of"
            ));
        }
    }
}

impl Sideband {
    async fn read_ahead(&self, client: &Client, number: u64, version: Version) {
        let ahead = version + 1 + client.below(FURTHEST_AHEAD) as Version;
        let read = client.look(async |tr| {
            tr.set_read_version(ahead);
            tr.get(key(number)).await
        });
        // What waits in vain, or so long that the version is too old again, is refused.
        let Some(value) = read.await else { return };
        if value.as_deref() != Some(b"told") {
            client.fail(format!(
                "commit {number} at version {version} is not seen at {ahead}: {value:?}"
            ));
        }
    }
}

fn key(number: u64) -> String {
    format!("told/{number:08}")
}

impl Workload for Sideband {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.id.is_multiple_of(2) {
                    self.write(&client).await;
                    client.pause(4_000).await;
                } else {
                    self.read(&client).await;
                    client.pause(1_000).await;
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            while !lock(&self.messages).is_empty() {
                self.read(&client).await;
            }
        })
    }
}
