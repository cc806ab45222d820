//! Who may write a second site: one run of one agent at a time.
//!
//! ```text
//!   agent   the run: 16 random bytes, new for each. Every transaction of a run has the row among what it read, so that a run
//!           which another one has taken over from can commit nothing more, not even what is still on its way.
//!   beat    a sign of life, twice a second. An agent that waits takes over when it hasn't moved for ten seconds, or is gone.
//! ```
//! Taking over at any time is safe, as long as the head is what was looked at: a database that has
//! become free has none. The beat only keeps two agents from doing it in turns.

use crate::rows::{AGENT, BEAT, Beat, HEAD, Head, Id, PLACE, Place};
use crate::system::{self, PAUSE, read};
use plinth_client::{Database, Transaction};
use plinth_types::{
    Bytes, CommitReply, CommitRequest, Conflicts, Error, MutationList, MutationType, RangeList,
    Result, Version,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long another agent's beat must not move before it is taken for dead.
pub(crate) const DEAD: Duration = Duration::from_secs(10);
/// How often a run gives a sign of life, and looks at what is wanted.
const BEATS: Duration = Duration::from_millis(500);
/// How long the first may take to say how far it is.
const PATIENCE: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 300;

/// A run of an agent: what it needs to write the second site.
#[derive(Clone)]
pub(crate) struct Run {
    pub to: Database,
    pub holder: Id,
    run: Id,
    told: Arc<Mutex<Told>>,
}

/// What a run and its beat tell each other.
#[derive(Default)]
struct Told {
    head: Option<Head>,
    problem: String,
    /// The beat that was there before.
    before: Option<Bytes>,
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an agent remembers of another one.
#[derive(Default)]
pub(crate) struct Other {
    seen: Option<(Bytes, Duration)>,
}

impl Other {
    /// Whether nobody works at it any more, as far as its beat tells.
    pub fn is_gone(&mut self, db: &Database, holder: &Id, beat: Option<&Bytes>) -> bool {
        let now = db.endpoint().env().now();
        let Some(value) = beat else { return true };
        let is_old = |beat: &Beat| {
            let age =
                db.endpoint().env().wall_clock().checked_sub(Duration::from_millis(beat.time));
            // A clock that is wrong has them work in turns for a while, which harms nothing.
            age.is_some_and(|age| age >= DEAD)
        };
        if Beat::decode(value).is_none_or(|beat| beat.holder == *holder || is_old(&beat)) {
            return true;
        }
        match &self.seen {
            Some((seen, since)) if seen == value => now.saturating_sub(*since) >= DEAD,
            _ => {
                self.seen = Some((value.clone(), now));
                false
            }
        }
    }
}

pub(crate) fn taken_over() -> Error {
    Error::operation_cancelled().with_detail("another agent has taken over")
}

impl Run {
    /// Begins a run, from whoever has one, if the second is still what `head` says: whoever has
    /// looked at it may have waited for long since, and it may be free. With `unless`, only if the
    /// beat is still that one.
    pub async fn begin(
        to: &Database,
        holder: &Id,
        head: &Head,
        unless: Option<&Option<Bytes>>,
    ) -> Result<Option<Self>> {
        let (mut run, told) = (Id::default(), Arc::<Mutex<Told>>::default());
        to.endpoint().env().fill_random(&mut run);
        let is_ours = system::transact(to, |tr| {
            let (unless, told) = (unless.cloned(), told.clone());
            async move {
                if !head.is_in(tr.get(HEAD).await?.as_ref())? {
                    return Ok(false);
                }
                let beat = tr.get(BEAT).await?;
                if tr.get(AGENT).await?.as_deref() == Some(&run[..]) {
                    return Ok(true);
                }
                if unless.is_some_and(|seen| seen != beat) {
                    return Ok(false);
                }
                lock(&told).before = beat.clone();
                let before = beat.and_then(|value| Beat::decode(&value)).unwrap_or_default();
                let time = u64::try_from(tr.env().wall_clock().as_millis()).unwrap_or_default();
                let beat = Beat {
                    holder: *holder,
                    count: before.count + 1,
                    time,
                    is_given_up: false,
                    ..before
                };
                tr.set(AGENT, run);
                tr.set(BEAT, beat.encode());
                Ok(true)
            }
        })
        .await?;
        Ok(is_ours.then(|| Self { to: to.clone(), holder: *holder, run, told }))
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }

    /// What is wanted, as it was read last.
    pub fn head(&self) -> Option<Head> {
        self.told().head.clone()
    }

    /// This run has written it.
    pub fn note_head(&self, head: Head) {
        self.told().head = Some(head);
    }

    /// Says why it gets no further, or that it does.
    pub fn note_problem(&self, problem: String) {
        self.told().problem = problem;
    }

    /// Gives signs of life, and looks at what is wanted, until the run is over.
    pub async fn beat(&self, from: &Database) -> Error {
        let env = self.to.endpoint().env();
        loop {
            let newest = system::within(from, PATIENCE, system::read_version(from)).await.ok();
            let problem = self.told().problem.clone();
            let time = u64::try_from(env.wall_clock().as_millis()).unwrap_or_default();
            let beaten = self
                .transact(|tr| {
                    let problem = problem.clone();
                    async move {
                        let before = tr
                            .get(BEAT)
                            .await?
                            .and_then(|value| Beat::decode(&value))
                            .unwrap_or_default();
                        let count = before.count + 1;
                        let newest = newest.unwrap_or(before.newest);
                        tr.set(
                            BEAT,
                            Beat {
                                holder: self.holder,
                                count,
                                time,
                                newest,
                                is_given_up: false,
                                problem,
                            }
                            .encode(),
                        );
                        tr.get(HEAD).await
                    }
                })
                .await;
            match beaten {
                Ok(head) => match head.map(|value| Head::decode(&value)).transpose() {
                    Ok(head) => self.told().head = head,
                    Err(error) => return error,
                },
                Err(error) if error == Error::operation_cancelled() => return error,
                // The second can't be written for a while: the run finds that out, too.
                Err(_) => {}
            }
            env.sleep(BEATS).await;
        }
    }

    /// Notes for whoever asks why the run has ended.
    pub async fn tell_problem(&self, problem: &Error) -> Result<()> {
        self.transact(|tr| async move {
            let before =
                tr.get(BEAT).await?.and_then(|value| Beat::decode(&value)).unwrap_or_default();
            tr.set(
                BEAT,
                Beat {
                    is_given_up: system::is_final(problem),
                    problem: problem.to_string(),
                    ..before
                }
                .encode(),
            );
            Ok(())
        })
        .await
    }

    /// Says that nobody works at it any more, so that another one needn't wait.
    pub async fn retire(&self) {
        self.leave(None).await;
    }

    /// Ends a run that was refused, as if it hadn't been: whoever worked finds its own beat and
    /// goes on at once, and why an agent has ended for good can still be read.
    pub async fn give_back(&self) {
        let before = self.told().before.clone();
        self.leave(before).await;
    }

    async fn leave(&self, beat: Option<Bytes>) {
        // If it can't be written, the other one waits.
        let _ = self
            .transact(|tr| {
                match &beat {
                    Some(beat) => tr.set(BEAT, beat),
                    None => tr.clear(BEAT),
                }
                async { Ok(()) }
            })
            .await;
    }

    /// Runs a transaction that commits only while this run is the one that may write.
    ///
    /// # Errors
    /// `operation_cancelled` if another one is.
    pub async fn transact<T, F>(&self, mut body: impl FnMut(Transaction) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        system::transact(&self.to, |tr| {
            let done = body(tr.clone());
            async move {
                if tr.get(AGENT).await?.as_deref() != Some(&self.run[..]) {
                    return Err(taken_over());
                }
                done.await
            }
        })
        .await
    }

    /// Commits mutations, and that they lead from one place to another. `seen` is a version at
    /// which this run was known to be the one. Gives the version of the commit.
    ///
    /// # Errors
    /// `operation_cancelled` if another run may write; those of the database.
    pub async fn commit(
        &self,
        mut mutations: MutationList,
        (before, after): (&Place, &Place),
        seen: &mut Option<Version>,
    ) -> Result<()> {
        let (before, after) = (before.encode(), after.encode());
        mutations.push(MutationType::Set, PLACE, &after);
        let mut attempts = ATTEMPTS;
        loop {
            let version = match seen.take() {
                Some(version) => version,
                None => {
                    let (version, values) = read(&self.to, &[AGENT, PLACE]).await?;
                    if values[0].as_deref() != Some(&self.run[..]) {
                        return Err(taken_over());
                    }
                    match values[1].as_deref() {
                        Some(place) if place == after && before != after => {
                            *seen = Some(version);
                            return Ok(());
                        }
                        place if place == Some(&before) => version,
                        // Only this run writes it, unless somebody has cleared it.
                        _ => return Err(taken_over()),
                    }
                }
            };
            match self.try_commit(&mutations, version, true).await {
                Ok(Some(version)) => {
                    *seen = Some(version);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) if error.is_retryable() => {
                    attempts = attempts.checked_sub(1).ok_or(error)?;
                    self.to.endpoint().env().sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits rows of a round, which may be done any number of times until the place says that the
    /// round is there.
    ///
    /// # Errors
    /// As those of [`Run::commit`].
    pub async fn commit_rows(&self, mutations: &MutationList) -> Result<()> {
        let mut attempts = ATTEMPTS;
        loop {
            let (version, values) = read(&self.to, &[AGENT]).await?;
            if values[0].as_deref() != Some(&self.run[..]) {
                return Err(taken_over());
            }
            match self.try_commit(mutations, version, false).await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {
                    attempts = attempts.checked_sub(1).ok_or(error)?;
                    self.to.endpoint().env().sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The version of the commit, or none if something else was committed between.
    async fn try_commit(
        &self,
        mutations: &MutationList,
        read_version: Version,
        moves: bool,
    ) -> Result<Option<Version>> {
        // The place is read by rows of a round, too: what of them is late can't come behind
        // changes.
        let (mut reads, mut writes) = (RangeList::new(), RangeList::new());
        reads.push_single(AGENT);
        reads.push_single(PLACE);
        if moves {
            writes.push_single(PLACE);
        }
        let request = CommitRequest {
            conflicts: Conflicts { read_version, reads, writes },
            mutations: mutations.clone(),
            lock_aware: true,
            ..CommitRequest::default()
        };
        match self.to.endpoint().commit(request).await? {
            CommitReply::Committed { version, .. } => Ok(Some(version)),
            CommitReply::Conflict { .. } => Ok(None),
        }
    }
}
