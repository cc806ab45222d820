//! Cycle: a ring of keys, each holding the number of the next, stays one ring under any fault.
//!
//! A transaction follows three links and swaps the two nodes in the middle. Half of a swap, or two
//! swaps over the same links that don't see one another, cut the ring. Swaps may be applied twice,
//! so unknown results need no care; that is why this workload uses the client library's own retry
//! loop.

use super::{Work, Workload};
use crate::client::Client;
use crate::draw::Draw;
use plinth_client::{RangeOptions, StreamingMode, Transaction};
use plinth_types::{Error, Result};
use std::sync::Arc;

pub struct Cycle {
    nodes: u32,
}

impl Cycle {
    pub fn new(draw: &mut Draw<'_>) -> Self {
        Self { nodes: draw.number("nodes", 4..30).max(4) as u32 }
    }

    async fn next(&self, tr: &Transaction, node: u32) -> Result<u32> {
        let value = tr.get(key(node)).await?;
        let next = value.as_deref().and_then(|value| value.try_into().ok()).map(u32::from_be_bytes);
        next.filter(|next| *next < self.nodes)
            .ok_or_else(|| broken(format!("node {node} holds {value:?}")))
    }

    async fn swap(&self, tr: &Transaction, first: u32) -> Result<()> {
        let second = self.next(tr, first).await?;
        let third = self.next(tr, second).await?;
        let fourth = self.next(tr, third).await?;
        tr.set(key(first), third.to_be_bytes());
        tr.set(key(second), fourth.to_be_bytes());
        tr.set(key(third), second.to_be_bytes());
        Ok(())
    }

    /// Reads the whole ring at one version, and follows it.
    async fn walk(&self, tr: &Transaction) -> Result<()> {
        let all = RangeOptions::prefix("cycle/").mode(StreamingMode::WantAll);
        let rows = tr.get_range(all).await?.rows;
        let links: Vec<u32> = rows
            .iter()
            .filter_map(|(_, value)| value.try_into().ok().map(u32::from_be_bytes))
            .collect();
        if links.len() != self.nodes as usize || rows.len() != links.len() {
            return Err(broken(format!("{} of {} nodes are left", links.len(), self.nodes)));
        }
        let (mut at, mut length) = (0, 0);
        loop {
            at = links.get(at as usize).copied().unwrap_or(0);
            length += 1;
            if at == 0 || length > self.nodes {
                break;
            }
        }
        if length == self.nodes {
            Ok(())
        } else {
            Err(broken(format!("it closes after {length} steps: {links:?}")))
        }
    }

    async fn look(&self, client: &Client) {
        let walked = client.attempt(async |tr| {
            let walked = self.walk(&tr).await;
            report(client, walked)
        });
        walked.await;
    }
}

/// By which a body says that what it read can't be: an error that no fault gives.
fn broken(what: String) -> Error {
    Error::unknown_error().with_detail(what)
}

fn report(client: &Client, result: Result<()>) -> Result<()> {
    if let Err(error) = &result
        && *error == Error::unknown_error()
    {
        client.fail(format!("the ring is broken: {}", error.detail().unwrap_or_default()));
    }
    result
}

fn key(node: u32) -> Vec<u8> {
    [b"cycle/", &node.to_be_bytes()[..]].concat()
}

impl Workload for Cycle {
    fn set_up(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let filled = client.insist(async |tr| {
                for node in 0..self.nodes {
                    tr.set(key(node), ((node + 1) % self.nodes).to_be_bytes());
                }
                Ok(())
            });
            filled.await;
        })
    }

    fn run(self: Arc<Self>, client: Client, _clients: usize) -> Work {
        Box::pin(async move {
            while !client.is_stopping() {
                if client.chance(0.1) {
                    self.look(&client).await;
                } else {
                    let first = client.below(self.nodes.into()) as u32;
                    let swapped = client.transact(async |tr| {
                        let swapped = self.swap(&tr, first).await;
                        client.pause(500).await;
                        report(&client, swapped)
                    });
                    swapped.await;
                }
                client.pause(10_000).await;
            }
        })
    }

    fn check(self: Arc<Self>, client: Client) -> Work {
        Box::pin(async move {
            let walked = client.insist(async |tr| {
                let walked = self.walk(&tr).await;
                report(&client, walked)
            });
            walked.await;
        })
    }
}
