//! The store behind the listeners: opened in the background, and again after it was lost, so that
//! keys are served whatever becomes of series.
//!
//! ```text
//!   opening --> open --> lost: somebody else owns the series, or their rows were cleared
//!      |                   |
//!      +--> unavailable <--+   the database is locked, or rows of series are damaged: tried again every second
//! ```
//!
//! Whoever sends points or asks for some gets the store, or why there is none. While it is opened
//! for the first time they wait: that takes as long as reading the tail does.
//!
//! Where several servers share the series ([`Among`]) one of them at a time owns them, by a lease:
//!
//! ```text
//!   opening --> open, as long as the lease is renewed --> elsewhere
//!      ^  \___________________________________________________/  |
//!      +---------- it was given up, or has run out --------------+
//! ```
//!
//! Points are taken all the time there: without a store of its own a server posts them to the
//! owner's inbox, whoever that is. Who asks for points is passed on to the owner.
//!
//! Where the series are divided each part has an owner, and every server answers for all of them
//! (`parts.rs`). Whether they are is looked up again when the place turns out to be another one:
//! somebody else made it first, or made it anew after it was cleared.

use super::opened::Opened;
use super::parts::{Having, Parts};
use super::pass::{Ways, hex};
use super::{Hub, balance, events};
use crate::config::Among;
use crate::token::is_same;
use plinth_client::Database;
use plinth_env::Signal;
use plinth_env::sync::{First, race};
use plinth_peers::Mesh;
use plinth_series::{
    Candidate, Claim, Division, Error, Holder, Look, Result, SeriesStore, Settings,
};
use plinth_types::Error as DatabaseError;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How often opening is tried again, and an open store looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The same of one that has a lease.
const GLANCE: Duration = Duration::from_millis(100);

/// From this version of the servers' protocol on all members know where series are.
const PROTOCOL_WITH_PLACE: u16 = 3;

/// The store, or why there is none.
#[derive(Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    /// Given once it is known for the first time, and by everybody to the next.
    decided: Signal,
    pub(super) stop: Signal,
    /// With whom the series are shared, if they are.
    among: OnceLock<Among>,
    /// How points get to whoever owns the series, where that may be another server; or how the
    /// series are divided, which goes before. One of them is there once that is known.
    posting: Mutex<Option<Arc<Opened>>>,
    parts: Mutex<Option<Arc<Parts>>>,
    /// Given once one of them is there, and by everybody to the next.
    takes: Signal,
    /// Connections to those with whom they are shared.
    pub(super) ways: Ways,
}

#[derive(Default)]
enum State {
    #[default]
    Opening,
    Open(Arc<Opened>),
    /// Another server owns the series.
    Elsewhere(Holder),
    Unavailable(Error),
}

/// Who answers questions.
pub(super) enum Asked {
    Here(Arc<Opened>),
    There(Holder),
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store, as soon as it is known whether there is one.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn opened(&self) -> Result<Arc<Opened>> {
        loop {
            if let Some(parts) = self.parts() {
                return Ok(parts.whole());
            }
            match &*self.lock() {
                State::Open(opened) => return Ok(opened.clone()),
                State::Elsewhere(_) => return Err(Error::NotOwner),
                State::Unavailable(why) => return Err(why.clone()),
                State::Opening => {}
            }
            self.until_decided().await;
        }
    }

    async fn until_decided(&self) {
        self.decided.wait().await;
        // What was known once may be open again: then the next one would have nothing to wait for.
        if self.parts().is_some() || !matches!(&*self.lock(), State::Opening) {
            self.decided.notify();
        }
    }

    /// Whoever answers questions, as soon as that is known.
    ///
    /// # Errors
    /// Why nobody does.
    pub(super) async fn asks(&self) -> Result<Asked> {
        loop {
            if let Some(parts) = self.parts() {
                return Ok(Asked::Here(parts.whole()));
            }
            match &*self.lock() {
                State::Open(opened) => return Ok(Asked::Here(opened.clone())),
                State::Elsewhere(holder) => return Ok(Asked::There(holder.clone())),
                State::Unavailable(why) => return Err(why.clone()),
                State::Opening => {}
            }
            self.until_decided().await;
        }
    }

    /// Who owns the series instead of this server, if that is known.
    pub(crate) fn holder(&self) -> Option<Holder> {
        match &*self.lock() {
            State::Elsewhere(holder) => Some(holder.clone()),
            _ => None,
        }
    }

    /// The store that takes points, as soon as it is known: at once where they can be posted.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn takes(&self) -> Result<Arc<Opened>> {
        if self.among().is_none() {
            return self.opened().await;
        }
        while self.posting().is_none() && self.parts().is_none() {
            self.takes.wait().await;
            self.takes.notify();
            if let Some(why) = self.unavailable() {
                return Err(why);
            }
        }
        self.takes_now()
    }

    /// The store that takes points now.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn takes_now(&self) -> Result<Arc<Opened>> {
        if let Some(parts) = self.parts() {
            return Ok(parts.whole());
        }
        let Some(posting) = self.posting() else { return self.now() };
        match &*self.lock() {
            State::Open(opened) if opened.store.failure().is_none() => Ok(opened.clone()),
            State::Unavailable(why) => Err(why.clone()),
            State::Open(_) | State::Opening | State::Elsewhere(_) => Ok(posting),
        }
    }

    /// Why there is none, and none that could be asked, if so.
    pub(crate) fn unavailable(&self) -> Option<Error> {
        if let Some(parts) = self.parts() {
            return parts.unavailable();
        }
        match &*self.lock() {
            State::Unavailable(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// With whom the series are shared.
    pub(super) fn among(&self) -> Option<&Among> {
        self.among.get()
    }

    /// Commits all that was taken, and lets others have the series, if they are shared.
    pub(super) async fn finish(&self) {
        if let (Some(parts), Some(among)) = (self.parts(), self.among()) {
            return parts.finish(&among.name).await;
        }
        // A database that fails has told those who asked; nobody is left to be told here.
        if let Some(posting) = self.posting() {
            let _ = posting.store.sync().await;
        }
        if let Ok(opened) = self.now() {
            let _ = opened.store.give_up().await;
        }
    }

    /// Whether this is the secret of the lease that this server has.
    pub(super) fn is_secret(&self, told: &str) -> bool {
        if let Some(parts) = self.parts() {
            return parts.is_secret(told);
        }
        let secret = self.now().ok().and_then(|opened| opened.store.lease_secret());
        secret.is_some_and(|secret| is_same(told, &hex(&secret)))
    }

    /// How the series are divided, if they are.
    pub(super) fn parts(&self) -> Option<Arc<Parts>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn posting(&self) -> Option<Arc<Opened>> {
        self.posting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes where points go from now on. What is left of before goes nowhere: nobody was told that
    /// it is durable.
    fn are_in(&self, parts: Option<Arc<Parts>>, posting: Option<SeriesStore>) {
        let posting = posting.map(Opened::new);
        *self.posting.lock().unwrap_or_else(PoisonError::into_inner) = posting;
        *self.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
        self.takes.notify();
        self.decided.notify();
    }

    /// The store of what this server owns, if that is anything now.
    ///
    /// # Errors
    /// Why it isn't.
    pub(crate) fn own(&self) -> Result<Arc<Opened>> {
        self.parts().map_or_else(|| self.now(), |parts| parts.own())
    }

    /// The store of all series, if this server is the one that looks after what is kept beside
    /// them.
    ///
    /// # Errors
    /// Why it isn't.
    pub(super) fn of_first(&self) -> Result<Arc<Opened>> {
        self.parts().map_or_else(|| self.now(), |parts| parts.of_first())
    }

    /// How many parts there are, and how many this server owns.
    pub(crate) fn count(&self) -> (usize, usize) {
        self.parts().map_or_else(|| (1, usize::from(self.now().is_ok())), |parts| parts.count())
    }

    /// Who has each part, if the series are shared.
    pub(crate) fn having(&self) -> Vec<Having> {
        let (Some(parts), Some(among)) = (self.parts(), self.among()) else {
            return Vec::new();
        };
        parts.having(among)
    }

    /// Whether nobody can write or ask for some of the series.
    pub(crate) fn is_closed(&self) -> bool {
        match self.parts() {
            Some(parts) => !parts.are_known() || parts.unavailable().is_some(),
            None => self.now().is_err() && self.holder().is_none(),
        }
    }

    /// The store, if it is open now.
    ///
    /// # Errors
    /// Why it isn't.
    pub(crate) fn now(&self) -> Result<Arc<Opened>> {
        match &*self.lock() {
            State::Open(opened) => Ok(opened.clone()),
            State::Elsewhere(_) => Err(Error::NotOwner),
            State::Unavailable(why) => Err(why.clone()),
            State::Opening => Err(DatabaseError::process_behind()
                .with_detail("the series are being opened")
                .into()),
        }
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.decided.notify();
    }

    /// Notes why there is no store; tells it if that is news.
    fn note(&self, why: &Error) {
        let known = matches!(&*self.lock(), State::Unavailable(known) if known.to_string() == why.to_string());
        if !known {
            events::unavailable(why);
            self.set(State::Unavailable(why.clone()));
        }
    }
}

fn settings(hub: &Hub) -> Settings {
    let (limits, prefix) = (hub.bounds.limits.clone(), hub.bounds.prefix.clone());
    let parts = hub.bounds.parts;
    Settings { limits, prefix, parts, ..Settings::default() }
}

/// Notes with whom the series are shared.
pub(super) fn is_among(hub: &Hub, among: &Among) {
    let _ = hub.slot.among.set(among.clone());
}

/// How the series are divided; `None` if the server stops before it is known.
async fn division(hub: &Hub, among: &Among, peers: Option<&Mesh>) -> Option<Division> {
    let slot = &hub.slot;
    let mut settings = settings(hub);
    loop {
        if peers.is_some_and(|mesh| mesh.protocol() < PROTOCOL_WITH_PLACE) {
            settings.parts = 1;
        }
        match race(slot.stop.wait(), Division::of(&among.database, settings.clone())).await {
            First::Left(()) => return None,
            First::Right(Ok(division)) => return Some(division),
            First::Right(Err(why)) => slot.note(&why),
        }
        slot.takes.notify();
        if race(slot.stop.wait(), hub.env.sleep(LOOK)).await == First::Left(()) {
            return None;
        }
    }
}

/// Takes points from now on, and owns the series whenever nobody else does, or as much of them as
/// this server should, until it stops; `address` is where it answers questions. In a cluster
/// nothing is moved to the place of the series before all members know of that.
pub(super) async fn share(hub: Arc<Hub>, among: Among, address: String, peers: Option<Arc<Mesh>>) {
    // Where nobody here wants them divided, points are taken before the database has said so: if
    // they are, nothing is committed.
    let mut takes_already = settings(&hub).parts == 1;
    if takes_already {
        hub.slot.are_in(None, Some(SeriesStore::post_undivided(&among.database, settings(&hub))));
    }
    while let Some(division) = division(&hub, &among, peers.as_deref()).await {
        let takes_already = std::mem::take(&mut takes_already);
        if division.parts() > 1 {
            let parts = Parts::new(&hub, division);
            hub.slot.are_in(Some(parts.clone()), None);
            balance::share(hub.clone(), among.clone(), address.clone(), parts).await;
        } else {
            if !takes_already {
                let posting = SeriesStore::post_undivided(&among.database, settings(&hub));
                hub.slot.are_in(None, Some(posting));
            }
            share_undivided(&hub, &among, &address, peers.as_deref()).await;
        }
        if hub.is_stopping() {
            return;
        }
        // Whoever made the place divided it otherwise: it was not there yet, or it was cleared.
        events::divided_otherwise();
        hub.slot.set(State::Opening);
    }
}

/// The same as long as the series are not divided.
async fn share_undivided(hub: &Arc<Hub>, among: &Among, address: &str, peers: Option<&Mesh>) {
    let slot = &hub.slot;
    let claim = Claim::new(among.name.clone(), address);
    let mut candidate = Candidate::new(&among.database, settings(hub), claim);
    loop {
        let protocol = peers.map(Mesh::protocol);
        candidate.hold_back(protocol.is_some_and(|protocol| protocol < PROTOCOL_WITH_PLACE));
        match race(slot.stop.wait(), candidate.look()).await {
            First::Left(()) => return,
            First::Right(Ok(Look::Ours(store))) => {
                events::ours();
                slot.set(State::Open(Opened::new(store.clone())));
                while store.failure().is_none() {
                    if race(slot.stop.wait(), hub.env.sleep(GLANCE)).await == First::Left(()) {
                        return;
                    }
                }
                // Who has them now the next look says.
                events::lost();
                slot.set(State::Opening);
                continue;
            }
            First::Right(Ok(Look::Held(holder))) => {
                if slot.holder().as_ref() != Some(&holder) {
                    events::elsewhere(&holder.name, &holder.address);
                    slot.set(State::Elsewhere(holder));
                }
            }
            First::Right(Ok(Look::Free)) => {}
            // A takeover that was lost in the middle says nothing against posting: whoever has them
            // now the next look says.
            First::Right(Err(Error::NotOwner)) => {
                if is_divided(hub, among).await {
                    return;
                }
            }
            First::Right(Err(why)) => slot.note(&why),
        }
        if race(slot.stop.wait(), candidate.wait()).await == First::Left(()) {
            return;
        }
    }
}

/// Whether the series are divided by now, or it isn't known: then it has to be found out anew. A
/// lease that was lost in the middle of a takeover is told by the same error.
async fn is_divided(hub: &Hub, among: &Among) -> bool {
    match race(hub.slot.stop.wait(), Division::of(&among.database, settings(hub))).await {
        First::Left(()) => true,
        First::Right(found) => found.map_or(true, |division| division.parts() > 1),
    }
}

/// Keeps the store open until the server stops.
pub(super) async fn keep_open(hub: Arc<Hub>, database: Database) {
    let slot = &hub.slot;
    let settings = settings(&hub);
    let go_on = async || race(slot.stop.wait(), hub.env.sleep(LOOK)).await != First::Left(());
    loop {
        match race(slot.stop.wait(), SeriesStore::open_with(&database, settings.clone())).await {
            First::Left(()) => return,
            First::Right(Ok(store)) => {
                events::opened();
                slot.set(State::Open(Opened::new(store.clone())));
                while store.failure().is_none() {
                    if !go_on().await {
                        return;
                    }
                }
                slot.note(&store.failure().unwrap_or(Error::NotOwner));
                // Somebody who has taken them over keeps them. If nobody has, their rows were
                // cleared.
                while SeriesStore::has_owner(&database, &settings).await.unwrap_or(true) {
                    if !go_on().await {
                        return;
                    }
                }
            }
            First::Right(Err(why)) => slot.note(&why),
        }
        if !go_on().await {
            return;
        }
    }
}
