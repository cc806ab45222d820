//! What becomes of a request that one of several servers was asked directly, and doesn't answer.
//!
//! Nearly all that is asked is answered by the server that was asked first, so most requests are
//! left with its link as they would be with the only server there is: whoever wants to know waits
//! for the slot itself. Only when that server is lost, refuses, or is silent for long does the
//! request become an [operation](super::cluster) that others are asked for. Until then its slot has
//! all that is needed for that: the promise, and the frame, which any server understands.
//!
//! ```text
//!   slot: promise, frame ── answer ──────────────────────────────────▶ promise
//!      └─ failure, silence ─▶ Orphan: promise, frame ─▶ operation ───▶ promise
//!                               and a promise of its own stays in the slot: the first server may answer yet
//! ```

use super::RemoteEndpoint;
use super::counting::Wanted;
use super::slots::{Answer, Pending};
use super::token::Token;
use crate::endpoint::{Newest, ReadVersionReply};
use plinth_env::reply::{Promise, Reply, promise};
use plinth_proto::frame::{Kind, set_id};
use plinth_types::{Bytes, RangeResult};
use std::mem::{replace, take};

/// Takes over what a server doesn't answer.
pub(super) trait Fallback: Send + Sync {
    /// Has others asked.
    fn take(&self, orphan: Orphan);

    /// The server has answered something.
    fn has_answered(&self);

    /// Something waits that was left for a moment where nobody could see it.
    fn watches(&self);
}

/// A request that others are to be asked for.
pub(super) struct Orphan {
    pub(super) waits: Waits,
    pub(super) frame: Vec<u8>,
    pub(super) token: Option<Token>,
    /// Whether the server is silent; otherwise it has failed, and says so next.
    pub(super) is_silent: bool,
}

/// Who waits for an answer, and the answer that the server which was asked first may give yet.
pub(super) type Waiting<T> = (Promise<T>, Reply<T>);

/// The same, by what is waited for; with what is needed to wait for it again.
pub(super) enum Waits {
    Versions(Vec<Promise<ReadVersionReply>>, Reply<ReadVersionReply>, Wanted),
    Values(Waiting<Vec<Option<Bytes>>>, usize),
    Newest(Waiting<Newest>, usize),
    Key(Waiting<Bytes>),
    Range(Waiting<RangeResult>),
    Number(Waiting<i64>, Kind),
    Keys(Waiting<Vec<Bytes>>),
}

impl Waits {
    /// Takes those who wait out of a slot, which tells whoever takes over from now on; `None` if
    /// nobody else can be asked that.
    pub(super) fn out_of(answer: &mut Answer) -> Option<Self> {
        fn replaced<T: Send>(slot: &mut Promise<T>) -> Waiting<T> {
            let (next, reply) = promise();
            (replace(slot, next), reply)
        }
        Some(match answer {
            Answer::ReadVersions(waiting, wanted) => {
                let (next, reply) = promise();
                Self::Versions(replace(waiting, vec![next]), reply, wanted.clone())
            }
            Answer::Counted(count) => {
                let (next, reply) = promise();
                let (waiting, wanted) = count.replace(next)?;
                Self::Versions(waiting, reply, wanted)
            }
            Answer::Values(slot, count) => Self::Values(replaced(slot), *count),
            Answer::Newest(slot, count) => Self::Newest(replaced(slot), *count),
            Answer::Key(slot) => Self::Key(replaced(slot)),
            Answer::Range(slot) => Self::Range(replaced(slot)),
            Answer::Number(slot, kind) => Self::Number(replaced(slot), *kind),
            Answer::Keys(slot) => Self::Keys(replaced(slot)),
            _ => return None,
        })
    }
}

impl Orphan {
    /// Takes those out who wait for this request, if others can be asked, and haven't been.
    pub(super) fn of(pending: &mut Pending) -> Option<Self> {
        if !take(&mut pending.is_direct) {
            return None;
        }
        let waits = Waits::out_of(&mut pending.answer)?;
        let (frame, token) = (pending.frame.clone(), pending.token.clone());
        Some(Self { waits, frame, token, is_silent: false })
    }

    /// The same of a request for a version, which is made anew.
    pub(super) fn of_version(answer: &mut Answer) -> Option<Self> {
        let waits = Waits::out_of(answer)?;
        Some(Self { waits, frame: Vec::new(), token: None, is_silent: false })
    }
}

/// Asks a server by a frame that was made for another one. `answer` makes of a promise what waits
/// in the slot.
pub(super) fn by_frame<T: Send + 'static>(
    frame: Vec<u8>,
    token: Option<Token>,
    answer: impl Fn(Promise<T>) -> Answer + Send + Sync + 'static,
) -> impl Fn(&RemoteEndpoint) -> Reply<T> + Send + Sync + 'static {
    move |server| {
        let (promise, reply) = promise();
        let asked_by = (token.as_ref(), server.waits.as_ref());
        server.link().submit_noting(asked_by, answer(promise), |out, id| {
            out.extend_from_slice(&frame);
            set_id(out, id);
        });
        reply
    }
}

/// Asks a server for a version.
pub(super) fn by_request(
    wanted: Wanted,
) -> impl Fn(&RemoteEndpoint) -> Reply<ReadVersionReply> + Send + Sync + 'static {
    move |server| {
        let (promise, reply) = promise();
        server.link().gather(Wanted { is_direct: false, ..wanted.clone() }, promise);
        reply
    }
}
