//! A database that is a member of a cluster: what its program does besides, which is to bring frames from the other members.

use crate::Database;
use plinth_pipeline::cluster::{Frame, Leadership};

impl Database {
    /// A frame of another member has arrived. Where this is no member, nothing happens.
    pub fn receive(&self, frame: Frame) {
        if let Some(node) = self.node() {
            node.receive(frame);
        }
    }

    /// Who leads, as far as this member knows; nobody where it is no member.
    pub fn leadership(&self) -> Leadership {
        self.node().map(|node| node.leadership()).unwrap_or_default()
    }

    /// Gives the leader's part to another member, if this one has it: to be called before it is closed.
    pub async fn hand_over(&self) {
        if let Some(node) = self.node() {
            node.hand_over().await;
        }
    }
}
