//! A database that is a member of a cluster: what its program does besides, which is to bring
//! frames from the other members.

use crate::Database;
use plinth_pipeline::cluster::{Frame, Leadership, Membership, Parcel};
use plinth_types::{Error, Result};

impl Database {
    /// A frame of another member has arrived. Gives the answer if there is one that is known at
    /// once, which is for whoever sent the frame. Where this is no member, nothing happens.
    #[must_use = "somebody waits for the answer"]
    pub fn receive(&self, frame: Frame) -> Option<Frame> {
        self.member()?.receive_and_answer(frame)
    }

    /// A parcel of another member has arrived: something about rows that one of both lacks. Where
    /// this is no member, nothing happens.
    pub fn receive_parcel(&self, parcel: Parcel) {
        if let Some(member) = self.member() {
            member.receive_parcel(parcel);
        }
    }

    /// Whether this is a member that serves nothing, because it takes in rows or entries that it
    /// lacks.
    pub fn is_catching_up(&self) -> bool {
        self.member().is_some_and(|member| member.is_catching_up())
    }

    /// Who leads, as far as this member knows; nobody where it is no member.
    pub fn leadership(&self) -> Leadership {
        self.member().map(|member| member.leadership()).unwrap_or_default()
    }

    /// Who the members of the cluster are; `None` where this is none.
    pub fn membership(&self) -> Option<Membership> {
        self.member()?.membership()
    }

    /// Takes a new node in, at this address: see [`plinth_pipeline::Node::take_in`].
    ///
    /// # Errors
    /// As there.
    pub async fn take_in(&self, address: &str) -> Result<Membership> {
        match self.member() {
            Some(node) => node.take_in(address).await,
            None => Err(Error::unsupported_operation().with_detail("this database is no cluster")),
        }
    }

    /// Others of the cluster have proven that this node is no member any more.
    pub fn be_removed(&self) {
        if let Some(node) = self.member() {
            node.be_removed();
        }
    }

    /// A member is at another address than it was.
    pub fn note_move(&self, member: u64, address: &str) {
        if let Some(node) = self.member() {
            node.note_move(member, address);
        }
    }

    /// Gives the leader's part to another member, if this one has it: to be called before it is
    /// closed.
    pub async fn hand_over(&self) {
        if let Some(member) = self.member() {
            member.hand_over().await;
        }
    }
}
