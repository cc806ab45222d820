//! A member of a cluster: a database in this process that others have too.
//!
//! What its program does besides is to bring frames from the other members, and to tell them what
//! they want to know.

use crate::{Builder, Local};
use plinth_client::Database;
use plinth_pipeline::cluster::{Frame, Leadership, Membership, Parcel, Peers};
use plinth_pipeline::{Host, Node};
use plinth_types::Result;
use std::fmt;
use std::sync::Arc;

/// A member of a cluster that is open in this process: see [`Builder::open_member`]. Cheap to
/// clone; every clone is a handle of the same one.
#[derive(Clone)]
pub struct Member {
    local: Local,
    host: Arc<Host>,
}

impl Builder {
    /// Whether the directory, if there is one, can be opened with the keys that were given: to be
    /// asked before anybody else hears of this member.
    ///
    /// # Errors
    /// `encrypt_key_not_found` if a key is lacking.
    pub async fn check_keys(&self) -> Result<()> {
        let (env, directory, config) = self.of_member()?;
        Ok(plinth_pipeline::check_keys(&env, directory, config.keys()).await?)
    }

    /// Makes the directory of a member of a cluster, unless it is one already.
    ///
    /// # Errors
    /// As [`Builder::open`]; `client_invalid_operation` if the directory is that of another node,
    /// or of a database of its own.
    pub async fn form_member(&self, membership: &Membership) -> Result<()> {
        let (env, directory, config) = self.of_member()?;
        Ok(Node::form(&env, directory, config, membership).await?)
    }

    /// Opens the directory of a member of a cluster, which takes part in it at once; `peers` brings
    /// what it says to other members. It answers reads of the versions that it has come to, and
    /// begins and commits transactions while it leads.
    ///
    /// # Errors
    /// As [`Builder::open`]; `file_not_found` if there is nothing, `client_invalid_operation` if it
    /// is a database of its own.
    pub async fn open_member(self, peers: Arc<dyn Peers>) -> Result<Member> {
        let (env, directory, config) = self.of_member()?;
        let host = Host::open(&env, directory, config.clone(), peers).await?;
        Ok(Member { local: Local::of_member(&host), host })
    }
}

impl Member {
    /// What any database in this process has: its handle, its measurements, its end.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// The handle on the database of the cluster, by way of this member.
    pub fn database(&self) -> &Database {
        self.local.database()
    }

    /// A frame of another member has arrived. Gives the answer if there is one that is known at
    /// once, which is for whoever sent the frame.
    #[must_use = "somebody waits for the answer"]
    pub fn receive(&self, frame: Frame) -> Option<Frame> {
        self.host.receive_and_answer(frame)
    }

    /// A parcel of another member has arrived: something about rows that one of both lacks.
    pub fn receive_parcel(&self, parcel: Parcel) {
        self.host.receive_parcel(parcel);
    }

    /// Whether it serves nothing, because it takes in rows or entries that it lacks.
    pub fn is_catching_up(&self) -> bool {
        self.host.is_catching_up()
    }

    /// Who leads, as far as this member knows.
    pub fn leadership(&self) -> Leadership {
        self.host.leadership()
    }

    /// Who the members of the cluster are, as far as this one knows.
    pub fn membership(&self) -> Option<Membership> {
        self.host.membership()
    }

    /// Takes a new node in, at this address: see [`plinth_pipeline::Node::take_in`].
    ///
    /// # Errors
    /// As there.
    pub async fn take_in(&self, address: &str) -> Result<Membership> {
        Ok(self.host.take_in(address).await?)
    }

    /// Others of the cluster have proven that this node is no member any more.
    pub fn be_removed(&self) {
        self.host.be_removed();
    }

    /// A member, this one or another, is at another address than it was. Where this one is has to
    /// be said when it has been opened.
    pub fn note_move(&self, member: u64, address: &str) {
        self.host.note_move(member, address);
    }

    /// Gives the leader's part to another member, if this one has it: to be called before it is
    /// closed.
    pub async fn hand_over(&self) {
        self.host.hand_over().await;
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("leadership", &self.leadership()).finish_non_exhaustive()
    }
}
