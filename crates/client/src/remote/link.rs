//! One connection's memory: what waits to be sent, and who waits for answers.
//!
//! Whoever asks for something leaves it here under the lock and wakes the task, unless the task is
//! at work and will look anyway. Nothing foreign (promises, wakers) is called under the lock.
//!
//! The life of a request: left while there is no connection, its frame waits in its slot; once
//! there is one, all frames are in `output`; when the task takes the output, commits among it may
//! reach the server and are never sent again.

use super::RemoteOptions;
use super::cluster_file::Address;
use super::counting::{Asker, Count, Wanted, Witnesses};
use super::fallback::{Fallback, Orphan};
use super::identity::Identity;
use super::refusal::{self, Failed};
use super::scout::Lost;
use super::slots::{Answer, Pending, Slots, unknown};
use super::target::Target;
use super::token::{Shown, Token};
use super::waits::{Says, Waits};
use crate::endpoint::ReadVersionReply;
use plinth_env::reply::Promise;
use plinth_env::{Env, Signal};
use plinth_proto::frame::{COUNTED, Kind};
use plinth_proto::hello::NEWEST;
use plinth_proto::{MOST_TOGETHER, ReadVersion, reply, request};
use plinth_types::{CommitReply, CommitRequest, Error, Result, Version};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

pub(super) struct Link {
    pub(super) env: Env,
    pub(super) target: Arc<Target>,
    pub(super) options: Arc<RemoteOptions>,
    /// Its place among the links of its endpoint.
    pub(super) number: usize,
    /// The database of its endpoint, which all links share.
    database: Arc<Identity>,
    state: Mutex<State>,
    /// Rung when there is something to connect for, or the link is closed.
    pub(super) wanted: Signal,
    /// What becomes of what waits when there is no connection.
    lost: Lost,
    /// Where the server is one of several: who can agree that it leads.
    pub(super) witnesses: OnceLock<Box<dyn Witnesses>>,
    /// Read versions for which that is counted, oldest first.
    counts: Mutex<VecDeque<Arc<Count>>>,
    /// Where the server is one of several: who asks others.
    pub(super) fallback: OnceLock<Box<dyn Fallback>>,
}

#[derive(Default)]
struct State {
    slots: Slots,
    /// Transactions that want a read version with the next output.
    gathered: Vec<Gathered>,
    /// Frames for the task to send.
    output: Vec<u8>,
    /// Commits whose frames are in `output`.
    unsent_commits: Vec<u32>,
    connected: bool,
    /// The version of the protocol that the connection speaks.
    version: u16,
    /// The token that was shown before what is in `output`, and the one that is shown at its end.
    sent: Shown,
    shown: Shown,
    closed: bool,
    /// The task's, while it sleeps in a conversation.
    waker: Option<Waker>,
    /// Why the last attempt to connect failed.
    failure: Option<Failed>,
    /// What the server says of requests that wait.
    says: Says,
}

/// Transactions that share a request for a read version.
struct Gathered {
    wanted: Wanted,
    promises: Vec<Promise<ReadVersionReply>>,
    /// Whether it is for the server to prove that it leads.
    by_proof: bool,
    /// When somebody has looked at it first, who looks for what waits for too long.
    seen: Option<Duration>,
}

impl Gathered {
    fn orphan(&mut self) -> Option<Orphan> {
        if !self.wanted.is_direct || self.promises.is_empty() {
            return None;
        }
        let promises = std::mem::take(&mut self.promises);
        let mut answer = Answer::ReadVersions(promises, self.wanted.clone());
        let orphan = Orphan::of_version(&mut answer)?;
        if let Answer::ReadVersions(promises, _) = answer {
            self.promises = promises;
        }
        self.wanted.is_direct = false;
        Some(orphan)
    }
}

impl State {
    /// Puts a request that was just left into the output, if there is a connection that it can
    /// leave by.
    fn queue(&mut self, id: u32) {
        if self.connected
            && let Some(pending) = self.slots.get_mut(id)
        {
            if pending.answer.is_for_somebody() {
                self.shown.put(&mut self.output, pending.token.as_ref(), self.version);
            }
            self.output.extend_from_slice(&pending.frame);
            if matches!(pending.answer, Answer::Commit(_)) {
                self.unsent_commits.push(id);
            }
        }
    }

    /// Takes a request out that the server is too old for, and says so.
    #[inline]
    fn unaskable(&mut self, id: u32) -> Option<(Pending, Error)> {
        if !self.connected || self.version == NEWEST {
            return None;
        }
        let error = self.slots.get_mut(id)?.can_be_asked_in(self.version).err()?;
        Some((self.slots.take(id)?, error))
    }

    fn is_idle(&self) -> bool {
        self.slots.is_empty() && self.gathered.is_empty()
    }
}

impl Link {
    pub(super) fn new(
        env: Env,
        target: Arc<Target>,
        options: Arc<RemoteOptions>,
        number: usize,
        database: Arc<Identity>,
        lost: Lost,
    ) -> Self {
        Self {
            env,
            target,
            options,
            number,
            database,
            state: Mutex::default(),
            wanted: Signal::new(),
            lost,
            witnesses: OnceLock::new(),
            counts: Mutex::default(),
            fallback: OnceLock::new(),
        }
    }

    /// The server refuses a request, by a failure with this body. One that doesn't lead says so
    /// that way: others are looked for then.
    #[cold]
    pub(super) fn is_refused(&self, failure: &[u8]) {
        if let Lost::Waits(Some(scout)) = &self.lost
            && reply::failure(failure) == Error::process_behind()
        {
            scout.go();
        }
    }

    /// There is a connection, and a server that may know of others.
    pub(super) fn looks_for_others(&self) {
        if let Lost::Waits(Some(scout)) = &self.lost {
            scout.go();
        }
    }

    fn gives_up(&self) -> bool {
        matches!(self.lost, Lost::GivesUp)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the task look at what was left.
    fn ring(&self, mut state: MutexGuard<'_, State>) {
        let waker = state.waker.take();
        let connected = state.connected;
        drop(state);
        match waker {
            Some(waker) => waker.wake(),
            None if !connected => self.wanted.notify(),
            None => {}
        }
    }

    /// Leaves a request.
    #[inline]
    pub(super) fn submit(
        &self,
        token: Option<&Token>,
        answer: Answer,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) {
        self.leave((token, None), answer, encode, false);
    }

    /// The same, for one who wants to know whether it waits at the server.
    #[inline]
    pub(super) fn submit_noting(
        &self,
        asked_by: (Option<&Token>, Option<&Waits>),
        answer: Answer,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) {
        self.leave(asked_by, answer, encode, false);
    }

    /// Leaves a request that others are asked for when this server doesn't answer it.
    #[inline]
    pub(super) fn submit_directly(
        &self,
        token: Option<&Token>,
        answer: Answer,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) {
        self.leave((token, None), answer, encode, true);
    }

    #[inline]
    fn leave(
        &self,
        (token, noted): (Option<&Token>, Option<&Waits>),
        answer: Answer,
        encode: impl FnOnce(&mut Vec<u8>, u32),
        is_direct: bool,
    ) {
        let mut state = self.lock();
        let (id, _) = state.slots.insert(answer, token, encode);
        if (is_direct || noted.is_some())
            && let Some(pending) = state.slots.get_mut(id)
        {
            (pending.is_direct, pending.noted) = (is_direct, noted.cloned());
        }
        if let Some((pending, error)) = state.unaskable(id) {
            drop(state);
            return self.give_up(pending, &error);
        }
        state.queue(id);
        self.ring(state);
    }

    /// A request comes to nothing here: others are asked, or whoever waits is told why.
    #[cold]
    pub(super) fn give_up(&self, mut pending: Pending, why: &Error) {
        if let Some(fallback) = self.fallback.get()
            && let Some(orphan) = Orphan::of(&mut pending)
        {
            fallback.take(orphan);
        }
        pending.answer.fail(why);
    }

    /// The same, of a version that wasn't asked for yet.
    fn give_up_gathered(&self, mut gathered: Gathered, why: &Error) {
        if let Some(fallback) = self.fallback.get()
            && let Some(orphan) = gathered.orphan()
        {
            fallback.take(orphan);
        }
        Answer::ReadVersions(gathered.promises, gathered.wanted).fail(why);
    }

    /// Has others asked for what has waited since it was looked at first, `patience` ago. Says
    /// whether anything waits that others can be asked for.
    pub(super) fn look_for_silence(&self, now: Duration, patience: Duration) -> bool {
        let Some(fallback) = self.fallback.get() else { return false };
        let mut waits = false;
        let mut is_late = |seen: &mut Option<Duration>| {
            waits = true;
            now.saturating_sub(*seen.get_or_insert(now)) >= patience
        };
        let mut orphans = Vec::new();
        let is_unread;
        {
            let mut guard = self.lock();
            let State { slots, gathered, says, .. } = &mut *guard;
            is_unread = says.excuses(now, false);
            for pending in slots.iter_mut().filter(|pending| pending.is_direct) {
                if is_late(&mut pending.seen) && !says.excuses(now, pending.waits) {
                    orphans.extend(Orphan::of(pending));
                }
            }
            for gathered in gathered.iter_mut().filter(|gathered| gathered.wanted.is_direct) {
                if is_late(&mut gathered.seen) && !is_unread {
                    orphans.extend(gathered.orphan());
                }
            }
        }
        // Of those whose server has answered, and others are to agree.
        for count in self.counts().iter() {
            let Some(began) = count.waits_directly() else { continue };
            if is_late(&mut Some(began)) && !is_unread {
                orphans.extend(Orphan::of_version(&mut Answer::Counted(count.clone())));
            }
        }
        for orphan in orphans {
            fallback.take(Orphan { is_silent: true, ..orphan });
        }
        waits
    }

    /// The server says that requests wait for a quota, each with whether nothing more is read.
    /// Without an id: that those wait still of which it said so.
    #[cold]
    pub(super) fn hear_waits(&self, said: impl Iterator<Item = (u32, bool)>) {
        let now = self.env.now();
        let mut state = self.lock();
        for (id, is_unread) in said {
            state.says.hear(now, is_unread);
            if let Some(pending) = state.slots.get_mut(id) {
                pending.waits = true;
                pending.noted.iter().for_each(Waits::note);
            }
        }
    }

    /// Whether the server needn't answer yet what it was asked: `waits` if it said so of that.
    pub(super) fn excuses(&self, now: Duration, waits: bool) -> bool {
        self.lock().says.excuses(now, waits)
    }

    /// Leaves a commit. It may be large, so it is not encoded under the lock.
    pub(super) fn submit_commit(
        &self,
        (token, noted): (Option<&Token>, Option<&Waits>),
        promise: Promise<CommitReply>,
        commit: &CommitRequest,
    ) {
        let mut frame = Vec::new();
        request::put_commit(&mut frame, 0, commit);
        let mut state = self.lock();
        let (id, _) = state.slots.insert(Answer::Commit(promise), token, |out, id| {
            plinth_proto::frame::set_id(&mut frame, id);
            *out = frame;
        });
        if let Some(pending) = state.slots.get_mut(id) {
            pending.noted = noted.cloned();
        }
        state.queue(id);
        self.ring(state);
    }

    /// Leaves a watch, which is taken back when nobody waits for it any more.
    pub(super) fn submit_watch(
        this: &Arc<Self>,
        token: Option<&Token>,
        mut promise: Promise<Version>,
        encode: impl FnOnce(&mut Vec<u8>, u32),
    ) {
        // Nobody can give up before this returns, so the place is known when it is asked for.
        let place = Arc::new(OnceLock::new());
        let (weak, known) = (Arc::downgrade(this), place.clone());
        promise.on_cancel(move || {
            if let (Some(link), Some((id, serial))) = (weak.upgrade(), known.get()) {
                link.cancel(*id, *serial);
            }
        });
        let mut state = this.lock();
        let (id, serial) = state.slots.insert(Answer::Watch(promise), token, encode);
        let _ = place.set((id, serial));
        state.queue(id);
        this.ring(state);
    }

    /// Takes a watch back.
    fn cancel(&self, id: u32, serial: u64) {
        let mut state = self.lock();
        if state.slots.get_mut(id).is_none_or(|pending| pending.serial != serial) {
            return;
        }
        if !state.connected {
            let pending = state.slots.take(id);
            drop(state);
            drop(pending);
            return;
        }
        request::empty(&mut state.output, id, Kind::Cancel);
        self.ring(state);
    }

    /// Leaves a request for a read version, to be shared with others of the same kind.
    pub(super) fn gather(&self, wanted: Wanted, promise: Promise<ReadVersionReply>) {
        let mut state = self.lock();
        let alike = |gathered: &&mut Gathered| {
            let (request, theirs) = (&wanted.request, &gathered.wanted);
            let ReadVersion { priority, lock_aware, causal_risky, tags, count } = &theirs.request;
            (&theirs.token, theirs.is_direct) == (&wanted.token, wanted.is_direct)
                && (*priority, *lock_aware, *causal_risky)
                    == (request.priority, request.lock_aware, request.causal_risky)
                && *tags == request.tags
                && !gathered.by_proof
                && count.saturating_add(request.count) <= MOST_TOGETHER
        };
        match state.gathered.iter_mut().find(alike) {
            Some(shared) => {
                shared.wanted.request.count += wanted.request.count;
                shared.promises.push(promise);
            }
            None => {
                let (promises, by_proof, seen) = (vec![promise], false, None);
                state.gathered.push(Gathered { wanted, promises, by_proof, seen });
            }
        }
        self.ring(state);
    }

    /// Ends the link; who waits is told that nobody will answer.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wanted.notify();
        self.ring(state);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.lock().connected
    }

    /// Why the last attempt to connect failed, if it did.
    pub(super) fn failure(&self) -> Option<Failed> {
        self.lock().failure.clone()
    }
}

impl Asker for Link {
    fn now(&self) -> Duration {
        self.env.now()
    }

    fn witnesses(&self) -> Option<&dyn Witnesses> {
        self.witnesses.get().map(Box::as_ref)
    }

    fn ask_for_proof(&self, wanted: Wanted, promises: Vec<Promise<ReadVersionReply>>) {
        let mut state = self.lock();
        let is_direct = wanted.is_direct;
        state.gathered.push(Gathered { wanted, promises, by_proof: true, seen: None });
        self.ring(state);
        // Between the count and here nobody saw it.
        if let Some(fallback) = self.fallback.get().filter(|_| is_direct) {
            fallback.watches();
        }
    }
}

/// What the conversation's side does.
impl Link {
    /// Moves what is to be sent to the end of `output`. If that is nothing, `waker` will be woken
    /// by what comes; says whether the link was closed.
    pub(super) fn collect(self: &Arc<Self>, output: &mut Vec<u8>, waker: &Waker) -> bool {
        let mut state = self.lock();
        if !state.gathered.is_empty() {
            let (gathered, version) = (std::mem::take(&mut state.gathered), state.version);
            let asks = |it| self.asked(it, version);
            let asked: Vec<_>;
            let was_out_of_sight = self.witnesses.get().is_some();
            if was_out_of_sight {
                // Whoever is asked whether this server leads has a link, and a lock, of its own.
                drop(state);
                asked = gathered.into_iter().map(asks).collect();
                state = self.lock();
            } else {
                asked = gathered.into_iter().map(asks).collect();
            }
            // They go before what else waits, so that a first read behind them is of a version that
            // is no older.
            let mut shown = state.sent.clone();
            for (answer, kind, Wanted { request, token, is_direct }) in asked {
                let put = |out: &mut Vec<u8>, id| {
                    request::put_read_version(out, id, kind, &request);
                };
                let (id, _) = state.slots.insert(answer, token.as_ref(), put);
                shown.put(output, token.as_ref(), version);
                if let Some(pending) = state.slots.get_mut(id) {
                    pending.is_direct = is_direct;
                    output.extend_from_slice(&pending.frame);
                }
            }
            // What waits was left behind another one.
            shown.go_back(output, &state.sent, version);
            // While others were asked nobody saw it.
            if let Some(fallback) = self.fallback.get().filter(|_| was_out_of_sight) {
                drop(state);
                fallback.watches();
                state = self.lock();
            }
        }
        let state = &mut *state;
        for id in state.unsent_commits.drain(..) {
            if let Some(pending) = state.slots.get_mut(id) {
                pending.frame = Vec::new();
            }
        }
        if output.is_empty() {
            std::mem::swap(output, &mut state.output);
        } else {
            output.append(&mut state.output);
        }
        state.sent.clone_from(&state.shown);
        if output.is_empty() && state.waker.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        state.closed
    }

    /// Who waits for a read version, and how it is asked for: those who can agree that this server
    /// leads are asked at once, if there are any.
    fn asked(self: &Arc<Self>, gathered: Gathered, version: u16) -> (Answer, Kind, Wanted) {
        let Gathered { wanted, promises, by_proof, .. } = gathered;
        let may_count = !by_proof && !wanted.request.causal_risky && version >= COUNTED;
        let witnesses = self.witnesses.get().filter(|_| may_count);
        let Some(asked) = witnesses.and_then(|witnesses| witnesses.ask()) else {
            return (Answer::ReadVersions(promises, wanted.clone()), Kind::ReadVersion, wanted);
        };
        let asker: Arc<dyn Asker> = self.clone();
        let count = Count::begin(&asker, wanted.clone(), promises, asked);
        self.counts().push_back(count.clone());
        (Answer::Counted(count), Kind::CountedVersion, wanted)
    }

    /// Whether versions are waited for that somebody is still to agree to; for those that have
    /// waited for long the server itself is asked.
    pub(super) fn look_at_counts(&self) -> bool {
        let now = self.env.now();
        let counts: Vec<_> = self.counts().iter().cloned().collect();
        let done: Vec<_> = counts.iter().map(|count| count.look(now)).collect();
        let mut counts = self.counts();
        let mut done = done.into_iter();
        // What has come since stands behind.
        counts.retain(|_| !done.next().unwrap_or(false));
        !counts.is_empty()
    }

    /// Whether [`Link::look_at_counts`] has to be called in a while.
    pub(super) fn has_counts(&self) -> bool {
        self.witnesses.get().is_some() && !self.counts().is_empty()
    }

    fn counts(&self) -> MutexGuard<'_, VecDeque<Arc<Count>>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The task is at work and will collect again: nobody needs to wake it.
    pub(super) fn at_work(&self) {
        let waker = self.lock().waker.take();
        drop(waker);
    }

    /// Those who wait for the replies with these ids.
    pub(super) fn take(&self, ids: impl Iterator<Item = u32>, waiting: &mut Vec<Option<Pending>>) {
        let mut state = self.lock();
        waiting.extend(ids.map(|id| state.slots.take(id)));
    }

    /// Asks the server for a sign of life.
    pub(super) fn ping(&self) {
        let mut state = self.lock();
        let (id, _) =
            state.slots.insert(Answer::Ping, None, |out, id| request::empty(out, id, Kind::Ping));
        state.queue(id);
    }

    /// Whether answers are awaited.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lock().is_idle()
    }

    /// There is a connection: everything that waits goes into the output.
    pub(super) fn connected(&self, version: u16) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.failure = None;
        state.connected = true;
        state.version = version;
        state.says = Says::default();
        state.slots.iter_mut().for_each(|pending| pending.waits = false);
        (state.sent, state.shown) = (Shown::default(), Shown::default());
        let ids: Vec<_> = state.slots.iter().map(|(id, _)| id).collect();
        let mut unaskable = Vec::new();
        for id in ids {
            match state.unaskable(id) {
                Some(pending) => unaskable.push(pending),
                None => state.queue(id),
            }
        }
        drop(guard);
        unaskable.into_iter().for_each(|(pending, error)| self.give_up(pending, &error));
    }

    /// The connection is lost: commits that may have reached the server have an unknown fate,
    /// everything else waits.
    pub(super) fn disconnected(&self, why: &Error) {
        let mut state = self.lock();
        let state_ref = &mut *state;
        state_ref.connected = false;
        state_ref.output.clear();
        let unsent = std::mem::take(&mut state_ref.unsent_commits);
        let waker = state_ref.waker.take();
        let ended = state_ref.slots.extract(|id, pending| match pending.answer {
            Answer::Commit(_) => !unsent.contains(&id),
            Answer::Ping | Answer::Number(_, Kind::RebootReply) => true,
            _ => self.gives_up() || pending.answer.is_cancelled(),
        });
        let unsent: Vec<_> = match self.gives_up() {
            true => unsent.into_iter().filter_map(|id| state_ref.slots.take(id)).collect(),
            false => Vec::new(),
        };
        let gathered =
            if self.gives_up() { std::mem::take(&mut state_ref.gathered) } else { Vec::new() };
        if !state_ref.is_idle() {
            self.wanted.notify();
        }
        drop(state);
        drop(waker);
        let error = unknown(why);
        for pending in ended {
            match pending.answer {
                Answer::Commit(_) => pending.answer.fail(&error),
                // Whoever ends because of it may not have answered. Said twice, it would end twice.
                answer @ Answer::Number(_, Kind::RebootReply) => answer.fail(&unanswered(why)),
                answer if self.gives_up() => {
                    self.give_up(Pending { answer, ..pending }, &unasked(why))
                }
                answer => drop(answer),
            }
        }
        unsent.into_iter().for_each(|pending| pending.answer.fail(&unasked(why)));
        gathered.into_iter().for_each(|gathered| self.give_up_gathered(gathered, &unasked(why)));
    }

    /// No connection could be made: who has given up is forgotten, and if another attempt can't
    /// help either, all are told.
    pub(super) fn refused(&self, failed: &Failed) {
        let why = &failed.why;
        let is_final = self.gives_up() || refusal::is_final(why);
        let mut state = self.lock();
        let state_ref = &mut *state;
        state_ref.failure = Some(failed.clone());
        let ended = state_ref.slots.extract(|_, pending| {
            let is_now_or_never = matches!(pending.answer, Answer::Number(_, Kind::RebootReply));
            is_final || is_now_or_never || pending.answer.is_cancelled()
        });
        let mut gathered = Vec::new();
        if is_final {
            gathered = std::mem::take(&mut state_ref.gathered);
        } else {
            for Gathered { promises, by_proof, .. } in &mut state_ref.gathered {
                gathered.push(Gathered {
                    wanted: Wanted::default(),
                    promises: promises.extract_if(.., |p| p.is_cancelled()).collect(),
                    by_proof: *by_proof,
                    seen: None,
                });
            }
            state_ref.gathered.retain(|gathered| !gathered.promises.is_empty());
        }
        if !state_ref.is_idle() {
            self.wanted.notify();
        }
        drop(state);
        let why = match why.code() {
            2100 | 2104 | 2107 => why.clone(),
            _ if self.gives_up() => unasked(why),
            _ => why.clone(),
        };
        ended.into_iter().for_each(|pending| match pending.answer {
            answer @ Answer::Number(_, Kind::RebootReply) if !is_final => {
                answer.fail(&unasked(&why))
            }
            answer => self.give_up(Pending { answer, ..pending }, &why),
        });
        gathered.into_iter().for_each(|gathered| self.give_up_gathered(gathered, &why));
    }

    /// Keeps the endpoint at one database: whether the server at this address may be asked.
    pub(super) async fn check_database(&self, found: String, address: &Address) -> Result<()> {
        self.database.agree(&self.env, found, address).await
    }

    /// Ends all that waits.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        let ended = state.slots.extract(|_, _| true);
        let gathered = std::mem::take(&mut state.gathered);
        drop(state);
        drop((ended, gathered));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

/// What becomes of a request that is not sent again.
fn unanswered(why: &Error) -> Error {
    Error::connection_failed()
        .with_detail(format!("the server may have heard it, and didn't answer: {why}"))
}

/// What becomes of a request that no server has heard, where others may be asked.
fn unasked(why: &Error) -> Error {
    Error::all_alternatives_failed().with_detail(why.to_string())
}
