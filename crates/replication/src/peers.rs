//! What a member needs of the world around it: how frames get to other nodes ([`Peers`]), and where
//! it is written down who is a member ([`Records`]).

use std::pin::Pin;
use std::sync::Arc;

use plinth_log::{Entry, EntryKind, LogResult};

use crate::NodeId;
use crate::members::Members;
use crate::message::Message;
use crate::parcel::Parcel;
use crate::spoken::Spoken;

/// Whoever speaks this version of the members' protocol takes frames with a checksum of the entry
/// before theirs.
const CHECKSUMS_SINCE: u16 = 5;

/// What one node sends another: a message, and the entries that it speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The message.
    pub message: Message,
    /// The entries of an append, whole: as many as the message has terms.
    pub entries: Vec<Entry>,
    /// An append: the checksum of the entry before those, if the sender has it at hand.
    pub before: Option<u32>,
}

impl Frame {
    /// A message with these entries, and no checksum of the one before.
    pub fn new(message: Message, entries: Vec<Entry>) -> Self {
        Self { message, entries, before: None }
    }

    /// Leaves out what came later than this version of the members' protocol: whoever is to get it
    /// speaks no later one.
    pub fn speak(&mut self, version: u16) {
        if version < CHECKSUMS_SINCE {
            self.before = None;
        }
    }

    /// Whether the entries are those of the message.
    pub(crate) fn is_whole(&self) -> bool {
        let Message { index, entries, .. } = &self.message;
        let ids = (index + 1..).zip(entries.iter().copied());
        self.entries.len() == entries.len()
            && self.entries.iter().zip(ids).all(|(entry, id)| {
                let is_of_kind =
                    (entry.kind == EntryKind::Members) == self.message.members.contains(&id.0);
                (entry.index, entry.term) == id && is_of_kind
            })
    }
}

/// How frames get to other nodes.
pub trait Peers: Send + Sync {
    /// Sends a frame to the node that its message names, without waiting, as that node speaks: see
    /// [`Frame::speak`]. It may be lost, doubled, or overtaken.
    fn send(&self, frame: Frame);

    /// Sends a parcel to the node that it names, without waiting. It may be lost, doubled, or
    /// overtaken.
    fn send_parcel(&self, parcel: Parcel);

    /// What another node says that its program speaks, while it is connected.
    fn spoken(&self, node: NodeId) -> Option<Spoken> {
        let _ = node;
        None
    }

    /// These are the members from now on: frames go to the others of them, at their addresses.
    fn members(&self, members: &Arc<Members>) {
        let _ = members;
    }
}

/// Something that is done when it is done.
pub type Doing<'a> = Pin<Box<dyn Future<Output = LogResult<()>> + Send + 'a>>;

/// Where a node writes down who is a member.
pub trait Records: Send + Sync {
    /// Writes down that these are the members as of the entry with this index; durable when ready.
    fn keep<'a>(&'a self, members: &'a Members, index: u64) -> Doing<'a>;
}
