//! Watches: a watch fires soon after the value differs from what it was, and not before.
//!
//! Clients in pairs: one changes the value of a key again and again, always to a new one; the other
//! reads, watches, and waits. A watch that does not fire although a later value was acknowledged
//! long ago, in the same life of the node, is lost; one that fires while the value is still the old
//! one lied. A watch ends with its node.

use super::{Work, Workload, number};
use crate::client::{Client, Outcome};
use crate::draw::Draw;
use crate::stage::lock;
use plinth_client::Transaction;
use plinth_env::sync::{First, race};
use plinth_types::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long after an acknowledged change a watch may take to fire: nothing on its way touches the
/// disk, and no message takes as long.
const SOON: Duration = Duration::from_millis(500);
/// The same where nodes may be cut off from each other: the one that has the watch hears of the
/// change when it is back.
const SOON_IN_A_CLUSTER: Duration = Duration::from_secs(10);

fn soon(client: &Client) -> Duration {
    if client.stage().is_cluster() { SOON_IN_A_CLUSTER } else { SOON }
}

pub struct Watches {
    keys: usize,
    /// For each key the newest value attempted, and the newest acknowledged with the life in which
    /// it was.
    written: Mutex<BTreeMap<usize, (u64, u64, u64)>>,
}

impl Watches {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        Self { keys: draw.number("keys", 1..4) as usize, written: Mutex::default() }
    }

    fn written(&self, key: usize) -> (u64, u64, u64) {
        lock(&self.written).get(&key).copied().unwrap_or_default()
    }

    async fn change(&self, client: &Client, key: usize) {
        let next = {
            let mut written = lock(&self.written);
            let (attempted, ..) = written.entry(key).or_default();
            *attempted += 1;
            *attempted
        };
        let changed = client.attempt(async |tr| {
            tr.set(name(key), next.to_le_bytes());
            Ok(client.stage().life_number())
        });
        if let Outcome::Committed(life, _) = changed.await {
            let mut written = lock(&self.written);
            let (_, acknowledged, in_life) = written.entry(key).or_default();
            (*acknowledged, *in_life) = (next, life);
        }
    }

    async fn watch(&self, client: &Client, key: usize) {
        let armed = client.attempt(async |tr: Transaction| {
            let value = tr.get(name(key)).await?;
            Ok((value, tr.watch(name(key)), client.stage().life_number()))
        });
        let Outcome::Committed((value, mut watch, life), _) = armed.await else { return };
        let seen = value.as_deref().and_then(number).unwrap_or(0);
        let mut suspicious = None;
        loop {
            let awaited = client.in_life(async |now| {
                if now.number != life {
                    return None;
                }
                Some(race(&mut watch, client.stage().env().sleep(soon(client))).await)
            });
            match awaited.await {
                None | Some(None) => return client.stage().probe("watch ended with its node"),
                Some(Some(First::Left(Ok(())))) => {
                    client.stage().probe("watch fired");
                    return self.must_differ(client, key, seen).await;
                }
                Some(Some(First::Left(Err(error)))) => {
                    if error != Error::broken_promise() && error != Error::shutdown_in_progress() {
                        client.fail(format!("the watch on key {key} ended with {error}"));
                    }
                    return;
                }
                Some(Some(First::Right(()))) => {}
            }
            let (_, acknowledged, in_life) = self.written(key);
            if client.is_stopping() {
                return;
            }
            // Seen twice in a row: then it was acknowledged at least `SOON` ago.
            if in_life == life && acknowledged > seen {
                if suspicious.is_some() {
                    let soon = soon(client);
                    let what = format!(
                        "{seen} was read, and {acknowledged} is there since more than {soon:?}"
                    );
                    return client.fail(format!("the watch on key {key} does not fire: {what}"));
                }
                suspicious = Some(acknowledged);
            }
        }
    }

    async fn must_differ(&self, client: &Client, key: usize, seen: u64) {
        let Some((now, _)) = client.insist(async |tr| tr.get(name(key)).await).await else {
            return;
        };
        let now = now.as_deref().and_then(number).unwrap_or(0);
        if now == seen {
            client.fail(format!("the watch on key {key} fired, and its value is still {seen}"));
        }
    }
}

fn name(key: usize) -> String {
    format!("watched/{key}")
}

impl Workload for Watches {
    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            // One client changes a key, so that its values never come again.
            let key = (client.id / 2) % self.keys;
            let changes = client.id.is_multiple_of(2) && client.id / 2 < self.keys;
            while !client.is_stopping() {
                if changes {
                    self.change(&client, key).await;
                    // What a watch has missed shows when nothing else comes to fire it.
                    client.pause(if client.chance(0.2) { 4_000_000 } else { 60_000 }).await;
                } else {
                    self.watch(&client, key).await;
                    client.pause(2_000).await;
                }
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            // With nobody else at work a change is seen at once.
            let key = self.keys;
            let before = self.written(key);
            self.change(&client, key).await;
            let armed = client.attempt(async |tr: Transaction| Ok(tr.watch(name(key))));
            let Outcome::Committed(watch, _) = armed.await else { return };
            self.change(&client, key).await;
            if self.written(key).1 == before.1 + 2
                && race(watch, client.stage().env().sleep(SOON)).await == First::Right(())
            {
                client.fail("a watch does not fire although nothing goes wrong any more");
            }
        })
    }
}
