//! What a connection has to keep to where there are quotas, and the requests that wait for that.
//!
//! A request that reads or commits waits while a budget is overdrawn that it has to keep to: it is
//! taken from the socket and kept, so that what stands behind it is seen, pings among it. It waits
//! in a line with those that keep to the same, and nothing else of the connection waits for it:
//! neither commits for reads, nor one token's requests for another's, nor one tenant's.
//!
//! ```text
//!   frame ─▶ dues ─▶ none, or all paid ──────────────────────────────▶ carry out ─▶ charge
//!                 └▶ overdrawn, or others wait for it ─▶ line ─ alarm ─▶
//! ```
//!
//! Always: what waits is counted as held by the connection, and for its quota. Beyond [`MOST_HELD`]
//! for a quota, or [`MOST_HELD_BY_ALL`], connections that hold more than a little are not read.
//! Whoever waits is told so, of each request and again every second, lest he takes the server for
//! lost. A request waits for what it has to keep to *now*: with each change of quotas or rights it
//! finds that out anew.

use super::{Connection, Phase};
use crate::memory::REQUEST_OVERHEAD;
use crate::quotas::{Bill, Budget, Counted, Dues, Met};
use crate::rights::Identity;
use plinth_client::Newest;
use plinth_env::{Reply, Sleep};
use plinth_proto::frame::{NO_ID, WAITS, WAITS_AGAIN};
use plinth_proto::{Request, reply};
use plinth_types::quotas::Of;
use plinth_types::{
    Bytes, Changes, CommitReply, CommitRequest, Error, KeyList, RangeResult, Result,
};
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

/// Tokens for which it is remembered what has to be kept to.
const REMEMBERED: usize = 4;
/// Bytes of requests that may wait for a quota before connections are not read for it.
const MOST_HELD: usize = 16 << 20;
/// The same for all quotas together.
const MOST_HELD_BY_ALL: usize = 64 << 20;
/// Of which each connection may have so many whatever the others have.
const OWN: usize = 64 << 10;
/// Lines of a connection, before it isn't read either: each is looked at in each of its turns.
const MOST_LINES: usize = 256;

/// See the module.
#[derive(Default)]
pub(super) struct Keeping {
    /// As of which epochs, of quotas and of rights, all this was found out.
    as_of: (u64, u64),
    /// What has to be kept to by whoever shows a token, the last one first.
    known: VecDeque<(Bytes, Arc<Dues>)>,
    /// What the connection itself is counted for.
    counted: Vec<Counted>,
    /// What the request has to keep to that is being carried out.
    current: Option<Arc<Dues>>,
    lines: Vec<Line>,
    /// Bytes of what waits.
    held: usize,
    /// What the client was told last of what waits.
    told: Option<Told>,
    alarm: Option<(Duration, Pin<Box<Sleep>>)>,
}

/// When a client was told that requests wait, and whether that nothing more is read, too.
#[derive(Clone, Copy)]
struct Told {
    at: Duration,
    is_unread: bool,
}

/// Requests that wait for the same.
struct Line {
    of: Of,
    dues: Arc<Dues>,
    waiting: VecDeque<Held>,
}

/// A request that waits.
struct Held {
    id: u32,
    request: Request,
    len: usize,
    /// Who asks it.
    token: Bytes,
}

impl Held {
    fn bytes(&self) -> usize {
        self.len + REQUEST_OVERHEAD
    }
}

impl Line {
    /// When its next one may go; `None` for now.
    fn waits_until(&self, now: Duration) -> Option<Duration> {
        self.dues.wait(self.of, now).map(|wait| now.saturating_add(wait))
    }

    fn pop(&mut self) -> Option<Held> {
        let held = self.waiting.pop_front()?;
        self.dues.end_waiting(self.of, held.bytes());
        Some(held)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl Keeping {
    /// Whether requests wait.
    pub(super) fn waits(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Bytes that they hold.
    pub(super) fn bytes(&self) -> usize {
        self.held
    }

    /// Whether nothing more can be taken in before some of them are done.
    pub(super) fn is_full(&self) -> bool {
        let is_full = |line: &Line| {
            let [own, all] = line.dues.held();
            own > MOST_HELD || all > MOST_HELD_BY_ALL
        };
        self.lines.len() >= MOST_LINES || self.held > OWN && self.lines.iter().any(is_full)
    }

    /// None of them is wanted any more.
    pub(super) fn give_up(&mut self) {
        (self.lines, self.held) = (Vec::new(), 0);
        (self.told, self.alarm) = (None, None);
    }

    /// The connection has gone, and is none by anybody's quota.
    pub(super) fn count_no_more(&mut self) {
        self.counted = Vec::new();
    }

    fn has_line(&self, of: Of, dues: &Dues) -> bool {
        self.lines.iter().any(|line| line.of == of && line.dues.is_same(dues))
    }

    fn push(&mut self, of: Of, dues: Arc<Dues>, held: Held) {
        self.held += held.bytes();
        match self.lines.iter_mut().find(|line| line.of == of && line.dues.is_same(&dues)) {
            Some(line) => line.waiting.push_back(held),
            None => {
                self.lines.push(Line { of, dues, waiting: VecDeque::from([held]) });
            }
        }
    }
}

/// What a request moves, if it moves anything that is bounded.
fn moves(request: &Request) -> Option<Of> {
    match request {
        Request::GetMany { .. }
        | Request::GetNewest { .. }
        | Request::GetKey { .. }
        | Request::GetRange { .. }
        | Request::SplitPoints { .. }
        | Request::Changes(_) => Some(Of::Read),
        Request::InSnapshot { read, .. } => moves(read),
        Request::Commit(commit) if !commit.mutations.is_empty() => Some(Of::Write),
        _ => None,
    }
}

/// The keys that a request names by which it is known whose it is.
fn name(request: &Request, met: &mut Met<'_, Arc<Budget>>) {
    match request {
        Request::GetMany { keys, .. } | Request::GetNewest { keys, .. } => {
            keys.iter().for_each(|key| met.key(key));
        }
        Request::GetKey { selector, .. } => met.selector(selector),
        Request::GetRange { read, .. } => met.read(read),
        Request::SplitPoints { range, .. } => met.range(&range.begin, &range.end, false),
        Request::InSnapshot { read, .. } => name(read, met),
        Request::Commit(commit) => {
            commit.mutations.iter().for_each(|mutation| met.key(mutation.param1));
        }
        Request::Watch { key, .. } => met.key(key),
        _ => {}
    }
}

impl Connection {
    /// Who asks, by what was shown.
    pub(super) fn identity(&mut self) -> Identity {
        let token = self.access.shown().clone();
        self.access.identity_of(&self.shared.doors.rights, &token).0
    }

    /// Lets the connection in, or doesn't, by the quota of whoever is there.
    ///
    /// # Errors
    /// `connection_failed`, with the quota, if there are as many as that allows.
    pub(super) fn enter(&mut self) -> Result<()> {
        let doors = &self.shared.doors;
        self.access.dues.as_of = (doors.quotas.epoch(), doors.rights.epoch());
        if !doors.quotas.are_there() {
            return Ok(());
        }
        let who = self.identity();
        let doors = &self.shared.doors;
        // Whoever changes quotas gets in, whatever they say.
        let is_operator = doors.rights.is_operator(&who);
        let dues = doors.quotas.dues(&doors.rights, &who);
        let counted = dues.enter(Of::Connections, is_operator).map_err(|why| {
            doors.quotas.note_refused(Of::Connections);
            Error::connection_failed()
                .with_detail(format!("{why}, and so many connections are open"))
        })?;
        self.access.dues.counted = counted;
        Ok(())
    }

    /// What whoever shows a token has to keep to.
    fn dues(&mut self, token: &Bytes) -> Arc<Dues> {
        if let Some(at) = self.access.dues.known.iter().position(|(known, _)| known == token) {
            if at > 0 {
                let known = self.access.dues.known.remove(at);
                self.access.dues.known.extend(known);
                self.access.dues.known.rotate_right(1);
            }
        } else {
            let (who, is_judged) = self.access.identity_of(&self.shared.doors.rights, token);
            let doors = &self.shared.doors;
            let dues = doors.quotas.dues(&doors.rights, &who);
            if !is_judged {
                // The next request may show whose it is.
                return Arc::new(dues);
            }
            self.access.dues.known.truncate(REMEMBERED - 1);
            self.access.dues.known.push_front((token.clone(), Arc::new(dues)));
        }
        self.access.dues.known[0].1.clone()
    }

    fn dues_for(&mut self, token: &Bytes, request: &Request) -> Arc<Dues> {
        self.dues(token).naming(|met| name(request, met))
    }

    /// Carries a request out, or has it wait.
    pub(super) fn keep_to_quotas(&mut self, id: u32, request: Request, len: usize) -> Result<()> {
        let token = self.access.shown().clone();
        let dues = self.dues_for(&token, &request);
        if dues.is_nothing() {
            return self.carry_out(id, request, len);
        }
        let Some(of) = moves(&request) else {
            return self.carry_out_within(dues, id, request, len);
        };
        let now = self.shared.env.now();
        if !self.access.dues.has_line(of, &dues) && dues.wait(of, now).is_none() {
            return self.carry_out_within(dues, id, request, len);
        }
        // Nobody waits for a word that he may have at once.
        if self.is_refused(&request) {
            return self.carry_out(id, request, len);
        }
        let held = Held { id, request, len, token };
        let doors = &self.shared.doors;
        doors.quotas.note_delayed(of);
        if let Some(whose) = dues.begin_waiting(of, held.bytes(), now) {
            doors.bursts.throttled(&self.outbox.peer, whose, of.name());
        }
        self.access.dues.push(of, dues, held);
        if self.access.version >= WAITS {
            reply::put_waits(&mut self.output, id, false);
            self.access.dues.told.get_or_insert(Told { at: now, is_unread: false });
        }
        Ok(())
    }

    /// Tells the client that requests wait still, every now and then, and that nothing more is read
    /// as soon as that is so. Says when it is to be told again.
    fn tell_of_waiting(&mut self, now: Duration) -> Option<Duration> {
        let is_unread = self.access.dues.is_full();
        let Some(told) = &mut self.access.dues.told else { return None };
        let is_due = now.saturating_sub(told.at) >= WAITS_AGAIN || is_unread != told.is_unread;
        // Whoever doesn't take it isn't told more often.
        if is_due && self.output.len() - self.sent < self.shared.config.limits.output_bytes {
            reply::put_waits(&mut self.output, NO_ID, is_unread);
            *told = Told { at: now, is_unread };
        }
        let next = told.at + WAITS_AGAIN;
        Some(if next > now { next } else { now + WAITS_AGAIN })
    }

    fn carry_out_within(
        &mut self,
        dues: Arc<Dues>,
        id: u32,
        request: Request,
        len: usize,
    ) -> Result<()> {
        self.access.dues.current = Some(dues);
        let done = self.carry_out(id, request, len);
        self.access.dues.current = None;
        done
    }

    /// Carries out what needs to wait no longer; says whether that was anything. Has the
    /// connection woken when the next one may.
    pub(super) fn serve_waiting(&mut self, context: &mut Context<'_>) -> bool {
        if !self.access.dues.waits() {
            return false;
        }
        if self.phase != Phase::Open {
            self.access.dues.give_up();
            return false;
        }
        let mut lines = std::mem::take(&mut self.access.dues.lines);
        let mut moved = false;
        while self.serve_each_once(&mut lines) {
            moved = true;
        }
        // Where there wasn't room for all, the next turn begins with others.
        let len = lines.len();
        lines.rotate_left(usize::from(moved && len > 1));
        lines.retain(|line| !line.waiting.is_empty());
        let now = self.shared.env.now();
        let mut soonest = lines.iter().filter_map(|line| line.waits_until(now)).min();
        self.access.dues.lines = lines;
        match self.access.dues.waits() {
            true => {
                let again = self.tell_of_waiting(now);
                soonest = soonest.into_iter().chain(again).min();
            }
            false => self.access.dues.told = None,
        }
        self.set_alarm(soonest, context);
        moved
    }

    /// Carries out the first of each line that needs to wait no longer; says whether there was one.
    fn serve_each_once(&mut self, lines: &mut [Line]) -> bool {
        // What is under way when the server stops is answered.
        let is_stopping = self.shared.is_stopping();
        let mut moved = false;
        for line in lines {
            let now = self.shared.env.now();
            if !self.has_room() || !is_stopping && line.waits_until(now).is_some() {
                continue;
            }
            let Some(held) = line.pop() else { continue };
            self.access.dues.held -= held.bytes();
            self.carry_out_held(line.dues.clone(), held);
            moved = true;
        }
        moved
    }

    fn carry_out_held(&mut self, dues: Arc<Dues>, held: Held) {
        let Held { id, request, len, token } = held;
        let shown = self.access.shown().clone();
        self.access.show(token);
        if let Err(error) = self.carry_out_within(dues, id, request, len) {
            self.fail(id, &error);
        }
        self.access.show(shown);
    }

    fn set_alarm(&mut self, at: Option<Duration>, context: &mut Context<'_>) {
        let env = &self.shared.env;
        let alarm = &mut self.access.dues.alarm;
        match at {
            Some(at) if alarm.as_ref().is_none_or(|(known, _)| *known != at) => {
                *alarm = Some((at, Box::pin(env.sleep_until(at))));
            }
            Some(_) => {}
            None => *alarm = None,
        }
        if let Some((_, sleep)) = alarm
            && sleep.as_mut().poll(context).is_ready()
        {
            *alarm = None;
            context.waker().wake_by_ref();
        }
    }

    /// Finds out anew what has to be kept to, if quotas or rights have changed.
    pub(super) fn heed_quotas(&mut self) {
        let doors = &self.shared.doors;
        let as_of = (doors.quotas.epoch(), doors.rights.epoch());
        if self.access.dues.as_of == as_of || self.phase == Phase::Greeting {
            return;
        }
        let had_none = self.access.dues.as_of.0 == 0;
        self.access.dues.as_of = as_of;
        if had_none && !doors.quotas.are_there() {
            return;
        }
        self.access.dues.known.clear();
        let none = Bytes::new();
        let counted = self.dues(&none).enter(Of::Connections, true);
        self.access.dues.counted = counted.unwrap_or_default();
        let mut watches = std::mem::take(&mut self.watches);
        let tokens = watches.tokens();
        // Of more than are remembered each would be found out anew for every watch.
        let known: BTreeMap<_, _> =
            tokens.into_iter().map(|token| (token.clone(), self.dues(&token))).collect();
        for watch in watches.iter_mut() {
            let Some(dues) = known.get(&watch.token) else { continue };
            let dues = dues.naming(|met| met.key(&watch.key));
            watch.counted = dues.enter(Of::Watches, true).unwrap_or_default();
        }
        self.watches = watches;
        let now = self.shared.env.now();
        self.access.dues.held = 0;
        for mut line in std::mem::take(&mut self.access.dues.lines) {
            while let Some(held) = line.pop() {
                self.wait_anew(line.of, held, now);
            }
        }
    }

    /// What waited goes on waiting, for what it has to keep to now, or is refused now.
    fn wait_anew(&mut self, of: Of, held: Held, now: Duration) {
        let dues = self.dues_for(&held.token.clone(), &held.request);
        let shown = self.access.shown().clone();
        self.access.show(held.token.clone());
        let is_refused = self.is_refused(&held.request);
        self.access.show(shown);
        if is_refused {
            return self.carry_out_held(dues, held);
        }
        let _ = dues.begin_waiting(of, held.bytes(), now);
        self.access.dues.push(of, dues, held);
    }

    /// Counts something for whoever has asked for it.
    ///
    /// # Errors
    /// Whose quota has as many as may be, in words.
    pub(super) fn count(&self, of: Of) -> std::result::Result<Vec<Counted>, String> {
        let Some(dues) = &self.access.dues.current else { return Ok(Vec::new()) };
        dues.enter(of, false).inspect_err(|_| self.shared.doors.quotas.note_refused(of))
    }

    /// What a commit costs, if anybody has to keep to anything.
    pub(super) fn bill_commit(&self, request: &CommitRequest) -> Option<(Arc<Dues>, Bill)> {
        let dues = self.access.dues.current.as_ref()?;
        let written = request.mutations.iter().map(|mutation| {
            let bytes = mutation.param1.len() + mutation.param2.len();
            (mutation.param1, bytes)
        });
        Some((dues.clone(), dues.bill(written)))
    }

    /// Charges what a commit writes, unless it comes to nothing; until then it holds others back.
    /// One that grew too old while it waited comes to nothing: were it charged nevertheless,
    /// whoever has many of them would pay for all and never write anything.
    pub(super) fn charge_commit(
        &self,
        (dues, bill): (Arc<Dues>, Bill),
        answer: Reply<CommitReply>,
    ) -> Reply<CommitReply> {
        let env = self.shared.env.clone();
        dues.reserve(Of::Write, &bill);
        answer.map(move |outcome| {
            let is_nothing = match &outcome {
                Ok(CommitReply::Committed { .. }) => false,
                Ok(_) => true,
                Err(why) => !why.is_maybe_committed(),
            };
            if !is_nothing {
                dues.pay(Of::Write, env.now(), &bill);
            }
            dues.release(Of::Write, &bill);
            outcome
        })
    }

    /// Charges the values of keys, when they are answered. `is_cut`: as many as a reply has room
    /// for.
    pub(super) fn charge_values(
        &self,
        keys: &KeyList,
        is_cut: bool,
        answer: Reply<Vec<Option<Bytes>>>,
    ) -> Reply<Vec<Option<Bytes>>> {
        let Some(dues) = &self.access.dues.current else { return answer };
        let charge = move |dues: &Dues, now, keys: &KeyList, values: &Vec<_>| {
            let count = if is_cut { reply::fitting(values) } else { values.len() };
            charge_values(dues, now, keys, &values[..count])
        };
        dues.follow_of(keys, &self.shared.env, answer, charge)
    }

    /// Charges values that are there.
    pub(super) fn charge_values_now(&self, keys: &KeyList, values: &[Option<Bytes>]) {
        if let Some(dues) = &self.access.dues.current {
            charge_values(dues, self.shared.env.now(), keys, values);
        }
    }

    /// Charges values at the newest version, when they are answered.
    pub(super) fn charge_newest(&self, keys: &KeyList, answer: Reply<Newest>) -> Reply<Newest> {
        let Some(dues) = &self.access.dues.current else { return answer };
        let charge = |dues: &Dues, now, keys: &KeyList, (_, values): &Newest| {
            charge_values(dues, now, keys, values)
        };
        dues.follow_of(keys, &self.shared.env, answer, charge)
    }

    /// Charges the key that a selector found.
    pub(super) fn charge_key(&self, answer: Reply<Bytes>) -> Reply<Bytes> {
        let Some(dues) = &self.access.dues.current else { return answer };
        dues.follow(&self.shared.env, answer, |dues, now, key: &Bytes| {
            dues.charge(Of::Read, now, std::iter::once((&key[..], key.len())))
        })
    }

    /// Charges the rows of a range.
    pub(super) fn charge_rows(&self, answer: Reply<RangeResult>) -> Reply<RangeResult> {
        let Some(dues) = &self.access.dues.current else { return answer };
        dues.follow(&self.shared.env, answer, |dues, now, result: &RangeResult| {
            let rows = result.rows.iter().map(|(key, value)| (key, key.len() + value.len()));
            dues.charge(Of::Read, now, rows)
        })
    }

    /// Charges the keys that cut a range into pieces.
    pub(super) fn charge_points(&self, answer: Reply<Vec<Bytes>>) -> Reply<Vec<Bytes>> {
        let Some(dues) = &self.access.dues.current else { return answer };
        dues.follow(&self.shared.env, answer, |dues, now, points: &Vec<Bytes>| {
            dues.charge(Of::Read, now, points.iter().map(|point| (&point[..], point.len())))
        })
    }

    /// Charges a stream's changes, which are no tenant's.
    pub(super) fn charge_changes(&self, answer: Reply<Changes>) -> Reply<Changes> {
        let Some(dues) = &self.access.dues.current else { return answer };
        dues.follow(&self.shared.env, answer, |dues, now, changes: &Changes| {
            dues.charge(Of::Read, now, std::iter::once((&b""[..], changes.bytes())))
        })
    }
}

/// A key counts, also where it has no value.
fn charge_values(dues: &Dues, now: Duration, keys: &KeyList, values: &[Option<Bytes>]) -> u64 {
    let read = keys.iter().zip(values);
    dues.charge(
        Of::Read,
        now,
        read.map(|(key, value)| (key, key.len() + value.as_ref().map_or(0, Bytes::len))),
    )
}
