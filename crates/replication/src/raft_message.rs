//! Messages as `raft` has them, and as nodes send them.

use raft::CAMPAIGN_TRANSFER;
use raft::eraftpb::{Entry, EntryType, Message as RaftMessage, MessageType};

use crate::message::{MAX_ENTRIES, Message, MessageKind, TAKES_OVER};

const KINDS: [(MessageKind, MessageType); 9] = [
    (MessageKind::Append, MessageType::MsgAppend),
    (MessageKind::AppendReply, MessageType::MsgAppendResponse),
    (MessageKind::Vote, MessageType::MsgRequestVote),
    (MessageKind::VoteReply, MessageType::MsgRequestVoteResponse),
    (MessageKind::PreVote, MessageType::MsgRequestPreVote),
    (MessageKind::PreVoteReply, MessageType::MsgRequestPreVoteResponse),
    (MessageKind::Heartbeat, MessageType::MsgHeartbeat),
    (MessageKind::HeartbeatReply, MessageType::MsgHeartbeatResponse),
    (MessageKind::TakeOver, MessageType::MsgTimeoutNow),
];

/// A message as `raft` takes it.
pub(crate) fn to_raft(message: &Message) -> RaftMessage {
    let mut raft = RaftMessage::default();
    if let Some((_, kind)) = KINDS.iter().find(|(kind, _)| *kind == message.kind) {
        raft.set_msg_type(*kind);
    }
    (raft.from, raft.to, raft.term) = (message.from, message.to, message.term);
    (raft.index, raft.log_term) = (message.index, message.log_term);
    (raft.commit, raft.commit_term) = (message.commit, message.commit_term);
    (raft.reject, raft.reject_hint) = (message.reject, message.hint);
    raft.context = match message.context {
        Some(TAKES_OVER) if message.kind == MessageKind::Vote => CAMPAIGN_TRANSFER.to_vec().into(),
        Some(context) => context.to_le_bytes().to_vec().into(),
        None => Vec::new().into(),
    };
    let entry = |(at, term): (usize, &u64)| {
        let index = message.index + 1 + at as u64;
        let mut entry = Entry { index, term: *term, ..Entry::default() };
        if message.members.contains(&index) {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
        }
        entry
    };
    raft.set_entries(message.entries.iter().enumerate().map(entry).collect::<Vec<_>>().into());
    raft
}

/// A message as it is sent; `None` if it is none that nodes send each other here.
pub(crate) fn from_raft(raft: &RaftMessage) -> Option<Message> {
    let (kind, _) = KINDS.iter().find(|(_, kind)| *kind == raft.get_msg_type())?;
    let context = match &*raft.context {
        CAMPAIGN_TRANSFER => Some(TAKES_OVER),
        context => context.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
    };
    assert!(
        raft.entries.len() <= MAX_ENTRIES,
        "a message has room for as many entries as raft is told to send"
    );
    let changes = |entry: &&Entry| entry.get_entry_type() != EntryType::EntryNormal;
    Some(Message {
        kind: *kind,
        from: raft.from,
        to: raft.to,
        term: raft.term,
        index: raft.index,
        log_term: raft.log_term,
        commit: raft.commit,
        commit_term: raft.commit_term,
        reject: raft.reject,
        hint: raft.reject_hint,
        context,
        entries: raft.entries.iter().map(|entry| entry.term).collect(),
        members: raft.entries.iter().filter(changes).map(|entry| entry.index).collect(),
    })
}
