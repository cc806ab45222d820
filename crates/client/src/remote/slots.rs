//! Who waits for an answer: a table of slots, whose numbers are the requests' ids.
//!
//! A slot is taken until its answer has come or its connection is over, so that an id never stands
//! for two requests of one connection. It keeps the request's frame as long as the request may be
//! sent again.

use super::counting::{Count, Wanted};
use super::token::Token;
use super::waits::Waits;
use crate::endpoint::{Newest, ReadVersionReply};
use plinth_env::reply::Promise;
use plinth_proto::frame::{self, Kind};
use plinth_proto::reply;
use plinth_proto::request::WHOLE_KEYS;
use plinth_types::{
    Bytes, Changes, CommitReply, Error, Located, RangeResult, Result, Standing, Version,
};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Who waits, and for what.
pub(super) enum Answer {
    /// All transactions that share one request.
    ReadVersions(Vec<Promise<ReadVersionReply>>, Wanted),
    /// The same, where this client asks itself whether the server leads.
    Counted(Arc<Count>),
    /// Whom the server follows.
    Standing(Promise<Standing>),
    /// The values of so many keys; of many keys those of the first ones, one at least.
    Values(Promise<Vec<Option<Bytes>>>, usize),
    /// The values of so many keys, and of which version they are.
    Newest(Promise<Newest>, usize),
    Key(Promise<Bytes>),
    Range(Promise<RangeResult>),
    Commit(Promise<CommitReply>),
    Watch(Promise<Version>),
    /// A number, in a reply of this kind.
    Number(Promise<i64>, Kind),
    Keys(Promise<Vec<Bytes>>),
    /// Texts, in a reply of this kind.
    Texts(Promise<Vec<String>>, Kind),
    Pinned(Promise<reply::Pinned>),
    Released(Promise<()>),
    Text(Promise<String>),
    Located(Promise<Located>),
    Changes(Promise<Changes>),
    /// Nobody: the connection itself wants to know whether the server is there.
    Ping,
}

impl Answer {
    /// Keeps the promise with what a reply of `kind` says.
    pub(super) fn complete(self, kind: u8, body: &[u8]) {
        let is = |expected: Kind| is_kind(kind, expected);
        let shared = || Bytes::copy_from_slice(body);
        match self {
            Self::ReadVersions(promises, _) => {
                let answer = is(Kind::ReadVersionReply).and_then(|()| version(&shared()));
                promises.into_iter().for_each(|promise| promise.send(answer.clone()));
            }
            Self::Counted(count) => {
                let answer =
                    is(Kind::CountedVersionReply).and_then(|()| reply::counted_version(&shared()));
                count.answered(answer.map(|(answer, quorum)| (begins_at(answer), quorum)));
            }
            Self::Standing(promise) => {
                promise.send(is(Kind::StandingReply).and_then(|()| reply::standing(body)));
            }
            Self::Values(promise, count) => {
                let values = is(Kind::GetManyReply).and_then(|()| reply::get_many(&shared()));
                let least = if count > WHOLE_KEYS { 1 } else { count };
                promise.send(values.and_then(|values| of_keys(values, least..=count)));
            }
            Self::Newest(promise, count) => {
                let newest = is(Kind::GetNewestReply).and_then(|()| reply::get_newest(&shared()));
                promise.send(
                    newest.and_then(|(at, values)| {
                        Ok((begins_at(at), of_keys(values, count..=count)?))
                    }),
                );
            }
            Self::Key(promise) => promise.send(is(Kind::GetKeyReply).map(|()| shared())),
            Self::Range(promise) => {
                promise.send(is(Kind::GetRangeReply).and_then(|()| reply::get_range(&shared())));
            }
            Self::Commit(promise) => {
                let outcome = is(Kind::CommitReply).and_then(|()| reply::commit(body));
                // What can't be read says nothing about the commit.
                promise.send(outcome.map_err(|error| unknown(&error)));
            }
            Self::Watch(promise) => {
                promise.send(is(Kind::WatchReply).and_then(|()| reply::number(body)))
            }
            Self::Number(promise, kind) => {
                promise.send(is(kind).and_then(|()| reply::number(body)))
            }
            Self::Keys(promise) => {
                promise.send(is(Kind::SplitPointsReply).and_then(|()| reply::list(&shared())));
            }
            Self::Texts(promise, kind) => {
                let list = is(kind).and_then(|()| reply::list(&shared()));
                promise.send(list.map(|list| list.iter().map(|bytes| text(bytes)).collect()));
            }
            Self::Pinned(promise) => {
                promise.send(is(Kind::PinReply).and_then(|()| reply::pin(&shared())))
            }
            Self::Released(promise) => promise.send(is(Kind::ReleaseReply)),
            Self::Text(promise) => {
                promise.send(is(Kind::StatusReply).map(|()| text(body)));
            }
            Self::Located(promise) => {
                promise.send(is(Kind::LocateReply).and_then(|()| reply::located(body)))
            }
            Self::Changes(promise) => {
                promise.send(is(Kind::ChangesReply).and_then(|()| reply::changes(body)))
            }
            Self::Ping => {}
        }
    }

    /// Keeps the promise with an error.
    pub(super) fn fail(self, error: &Error) {
        let error = error.clone();
        match self {
            Self::ReadVersions(promises, _) => {
                promises.into_iter().for_each(|promise| promise.send(Err(error.clone())));
            }
            Self::Counted(count) => count.answered(Err(error)),
            Self::Standing(promise) => promise.send(Err(error)),
            Self::Values(promise, _) => promise.send(Err(error)),
            Self::Newest(promise, _) => promise.send(Err(error)),
            Self::Key(promise) => promise.send(Err(error)),
            Self::Range(promise) => promise.send(Err(error)),
            Self::Commit(promise) => promise.send(Err(error)),
            Self::Watch(promise) => promise.send(Err(error)),
            Self::Number(promise, _) => promise.send(Err(error)),
            Self::Keys(promise) => promise.send(Err(error)),
            Self::Texts(promise, _) => promise.send(Err(error)),
            Self::Pinned(promise) => promise.send(Err(error)),
            Self::Released(promise) => promise.send(Err(error)),
            Self::Text(promise) => promise.send(Err(error)),
            Self::Located(promise) => promise.send(Err(error)),
            Self::Changes(promise) => promise.send(Err(error)),
            Self::Ping => {}
        }
    }

    /// Whether it depends on who asks what is answered.
    pub(super) fn is_for_somebody(&self) -> bool {
        !matches!(self, Self::Ping | Self::Standing(_) | Self::Located(_) | Self::Released(_))
    }

    /// Whether nobody waits any more.
    pub(super) fn is_cancelled(&self) -> bool {
        match self {
            Self::ReadVersions(promises, _) => promises.iter().all(Promise::is_cancelled),
            Self::Counted(count) => count.is_cancelled(),
            Self::Standing(promise) => promise.is_cancelled(),
            Self::Values(promise, _) => promise.is_cancelled(),
            Self::Newest(promise, _) => promise.is_cancelled(),
            Self::Key(promise) => promise.is_cancelled(),
            Self::Range(promise) => promise.is_cancelled(),
            Self::Commit(promise) => promise.is_cancelled(),
            Self::Watch(promise) => promise.is_cancelled(),
            Self::Number(promise, _) => promise.is_cancelled(),
            Self::Keys(promise) => promise.is_cancelled(),
            Self::Texts(promise, _) => promise.is_cancelled(),
            Self::Pinned(promise) => promise.is_cancelled(),
            Self::Released(promise) => promise.is_cancelled(),
            Self::Text(promise) => promise.is_cancelled(),
            Self::Located(promise) => promise.is_cancelled(),
            Self::Changes(promise) => promise.is_cancelled(),
            Self::Ping => true,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a reply is of the kind that answers what was asked.
fn is_kind(kind: u8, expected: Kind) -> Result<()> {
    match kind == expected as u8 {
        true => Ok(()),
        false => Err(strange(format!("a reply of kind {kind} answers another request"))),
    }
}

fn version(body: &Bytes) -> Result<ReadVersionReply> {
    reply::read_version(body).map(begins_at)
}

/// The values that were asked for, if there are as many as there have to be.
fn of_keys(values: Vec<Option<Bytes>>, many: RangeInclusive<usize>) -> Result<Vec<Option<Bytes>>> {
    match many.contains(&values.len()) {
        true => Ok(values),
        false => Err(strange(format!("{} values for {} keys", values.len(), many.end()))),
    }
}

fn begins_at(answer: reply::ReadVersion) -> ReadVersionReply {
    let reply::ReadVersion { version, metadata_version, range_locks } = answer;
    ReadVersionReply { version, metadata_version, range_locks }
}

/// What a lost connection makes of a commit that may have reached the server.
pub(super) fn unknown(why: &Error) -> Error {
    Error::commit_unknown_result().with_detail(why.to_string())
}

fn strange(what: String) -> Error {
    Error::client_invalid_operation()
        .with_detail(format!("the server's answer makes no sense: {what}"))
}

/// A request without an answer.
pub(super) struct Pending {
    pub(super) answer: Answer,
    /// The request, to be sent again over another connection; empty if it must not be.
    pub(super) frame: Vec<u8>,
    /// Tells it from an earlier request in the same slot.
    pub(super) serial: u64,
    /// The token that is shown with it, if it has one.
    pub(super) token: Option<Token>,
    /// Whether others are asked when this server doesn't answer.
    pub(super) is_direct: bool,
    /// When somebody has looked at it first, who looks for what waits for too long.
    pub(super) seen: Option<Duration>,
    /// Whether the server has said that it waits for a quota.
    pub(super) waits: bool,
    /// Who else is told.
    pub(super) noted: Option<Waits>,
}

impl Pending {
    /// Whether a server that speaks this version of the protocol can be asked that.
    ///
    /// # Errors
    /// `unsupported_operation`, with both versions.
    pub(super) fn can_be_asked_in(&self, version: u16) -> Result<()> {
        let kind = self.frame.get(frame::KIND).and_then(|code| Kind::from_code(*code));
        let since = kind.map_or(0, Kind::since);
        if since <= version {
            return Ok(());
        }
        Err(Error::unsupported_operation().with_detail(format!(
            "the server speaks version {version} of the protocol, and this came with version {since}: it must be upgraded first"
        )))
    }
}

#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Option<Pending>>,
    free: Vec<u32>,
    serial: u64,
}

impl Slots {
    /// Takes a slot for a request that `encode` writes once it knows the id. Gives id and serial.
    pub(super) fn insert(
        &mut self,
        answer: Answer,
        token: Option<&Token>,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) -> (u32, u64) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.serial += 1;
        let mut frame = Vec::new();
        encode(&mut frame, id);
        let (serial, token) = (self.serial, token.cloned());
        let (is_direct, seen, waits, noted) = (false, None, false, None);
        let pending = Pending { answer, frame, serial, token, is_direct, seen, waits, noted };
        self.slots[id as usize] = Some(pending);
        (id, self.serial)
    }

    /// Frees a slot; `None` if nobody waits under this id.
    pub(super) fn take(&mut self, id: u32) -> Option<Pending> {
        let pending = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(pending)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Pending> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    /// Frees the slots for which `f` says so, and gives what they held.
    pub(super) fn extract(&mut self, mut f: impl FnMut(u32, &Pending) -> bool) -> Vec<Pending> {
        let chosen = |(id, slot): (usize, &Option<Pending>)| {
            let id = id as u32;
            slot.as_ref().is_some_and(|pending| f(id, pending)).then_some(id)
        };
        let ids: Vec<_> = self.slots.iter().enumerate().filter_map(chosen).collect();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// The requests without an answer, in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Pending)> {
        self.slots.iter().enumerate().filter_map(|(id, slot)| Some((id as u32, slot.as_ref()?)))
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.slots.iter_mut().flatten()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}
