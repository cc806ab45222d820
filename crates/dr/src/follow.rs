//! Following: rounds of the first copy, batches of changes, until something else is wanted.
//!
//! ```text
//!   stream ──▶ batches (the next ones are asked for before these are committed)
//!          ──▶ whole versions gathered up to 2 MiB ──▶ one transaction: mutations and the place they lead to
//!          ──▶ once a second: the stream is told up to where nothing is needed any more
//! ```
//! Always: `place` is what the second has, `reached` what was read besides; between them nothing is
//! to be applied but `pending`.

use crate::capture::Reader;
use crate::lease::{Run, taken_over};
use crate::rows::{First, HALF, HEAD, HEADS, Head, PLACE, Place, first_key, stream_name};
use crate::sites::{Direction, identity};
use crate::{apply, capture, system};
use plinth_client::{ChangeStream, Database, Filling};
use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_env::sync::{First as Either, race};
use plinth_types::{
    Bytes, Changes, ChangesRequest, Error, MutationList, MutationType, Result, Version, codes,
    planted, system::METADATA_VERSION,
};
use std::time::Duration;

/// About how many bytes of mutations are read at a time.
const READ_BYTES: usize = 4 << 20;
/// Versions are gathered into a transaction up to so many bytes; a version alone may be larger.
const GROUP_BYTES: usize = 2 << 20;
/// What a mutation counts beside its parameters, in a transaction's size.
const MUTATION_BYTES: usize = 35;
/// An idle stream answers once a second: after this time something is wrong.
const PATIENCE: Duration = Duration::from_secs(5);
/// How soon a first that isn't as far as it said is asked again.
const AGAIN: Duration = Duration::from_millis(5);
/// How often a place is noted to which nothing but time has led.
const NOTE: Duration = Duration::from_millis(500);
/// How often the stream is told what isn't needed any more.
const ACKNOWLEDGE: Duration = Duration::from_secs(1);
/// Failed reads in a row until that is told.
const FAILURES: usize = 20;

/// A run that follows.
pub(crate) struct Follower<'r> {
    pub run: &'r Run,
    pub from: Database,
    /// What the second has.
    pub place: Place,
    /// Everything up to here was read from the stream.
    pub reached: Version,
    /// Where what is left to be copied may be cut.
    pub cuts: Vec<plinth_types::Bytes>,
    pending: MutationList,
    seen: Option<Version>,
    stream: Stream,
    /// Where the first is no Plinth.
    captured: Option<Reader>,
    /// Where the first copy is at its end.
    end: &'static [u8],
    noted: Duration,
    acknowledged: Acknowledged,
}

/// What is asked of the first's stream, and how that goes.
#[derive(Default)]
struct Stream {
    coming: Option<Reply<Changes>>,
    /// How long it has said nothing.
    silent: Duration,
    /// Reads in a row that failed.
    failures: usize,
}

/// What the stream is told that isn't needed any more.
#[derive(Default)]
struct Acknowledged {
    under_way: Option<Reply<()>>,
    last: Duration,
}

impl Acknowledged {
    /// Whether it is time for the next.
    fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) >= ACKNOWLEDGE
    }

    fn is_under_way(&self) -> bool {
        self.under_way.as_ref().is_some_and(|reply| !reply.is_ready())
    }
}

impl<'r> Follower<'r> {
    /// Goes on where the second is, or begins: registers the stream before anything is read.
    pub async fn begin(run: &'r Run, direction: &Direction, head: &Head) -> Result<Self> {
        let from = direction.from.clone();
        let place = match system::read_one(&run.to, PLACE).await? {
            Some(value) => Place::decode(&value)?,
            None => {
                let Some((stream, position, half)) = Box::pin(begin_at_first(&from, head)).await?
                else {
                    return Err(Box::pin(ended_at_first(run, head)).await?);
                };
                let copying = Some(crate::rows::Copying::default());
                let place = Place { stream, position, copying, ..Place::default() };
                run.transact(|tr| {
                    let (value, half) = (place.encode(), half.clone());
                    async move {
                        tr.set(PLACE, value);
                        if let Some(half) = half {
                            tr.set(HALF, half);
                        }
                        Ok(())
                    }
                })
                .await?;
                place
            }
        };
        let captured = capture::of(&from).is_some().then(|| Reader::new(&head.id, place.stream));
        let end = system::copied_of(&from).last().map_or(&b""[..], |(_, end)| end);
        Ok(Self {
            run,
            from,
            reached: place.position,
            place,
            captured,
            end,
            cuts: Vec::new(),
            pending: MutationList::new(),
            seen: None,
            stream: Stream::default(),
            noted: Duration::ZERO,
            acknowledged: Acknowledged::default(),
        })
    }

    pub fn env(&self) -> &Env {
        self.run.to.endpoint().env()
    }

    /// Whether the first is no Plinth.
    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Takes what comes next from the stream.
    ///
    /// # Errors
    /// `version_invalid` or `client_invalid_operation` if the stream is lost; those of the
    /// databases.
    pub async fn step(&mut self) -> Result<()> {
        if self.captured.is_some() {
            return self.step_captured().await;
        }
        self.step_of_stream(true).await
    }

    /// The same where the first is a Plinth; `wait` says whether what comes next is waited for, or
    /// the stream tells at once how far it is.
    async fn step_of_stream(&mut self, wait: bool) -> Result<()> {
        let mut coming = self.stream.coming.take().unwrap_or_else(|| self.ask(self.reached, wait));
        match race(&mut coming, self.env().sleep(PATIENCE)).await {
            Either::Left(Ok(changes)) => {
                self.stream.failures = 0;
                self.run.note_problem(String::new());
                // A round that isn't there yet would be waited for by nobody.
                self.stream.coming = Some(self.ask(changes.upto.max(self.reached), wait));
                self.apply(&changes).await?;
            }
            Either::Left(Err(error))
                if may_get_better(&error) && self.stream.failures < FAILURES =>
            {
                self.stream.failures += 1;
                self.env().sleep(system::PAUSE).await;
            }
            Either::Left(Err(error)) => return Err(error),
            Either::Right(()) => {
                self.run.note_problem("the first site gives no answer".into());
                self.stream.coming = Some(coming);
            }
        }
        self.acknowledge();
        Ok(())
    }

    /// The same where the first is no Plinth: nothing is asked for before what came is applied,
    /// since a consumer has one operation at a time, and what has been given to it is what it
    /// acknowledges.
    async fn step_captured(&mut self) -> Result<()> {
        let Some(mut reader) = self.captured.take() else { return Ok(()) };
        let stepped = self.step_of(&mut reader).await;
        self.captured = Some(reader);
        stepped
    }

    async fn step_of(&mut self, reader: &mut Reader) -> Result<()> {
        let asked = match self.stream.coming.take() {
            Some(coming) => Ok(coming),
            None => reader.ask(&self.from, self.place.position).await,
        };
        let answer = match asked {
            Ok(mut coming) => match race(&mut coming, self.env().sleep(capture::QUIET)).await {
                Either::Left(answer) => answer,
                Either::Right(()) => {
                    self.stream.coming = Some(coming);
                    self.stream.silent += capture::QUIET;
                    let nudged =
                        system::within(&self.from, PATIENCE, capture::nudge(&self.from)).await;
                    if nudged.is_err() || self.stream.silent >= PATIENCE {
                        self.run.note_problem("the first site gives no answer".into());
                    }
                    return Ok(());
                }
            },
            Err(error) => Err(error),
        };
        match answer {
            Ok(changes) => {
                (self.stream.failures, self.stream.silent) = (0, Duration::ZERO);
                self.run.note_problem(String::new());
                if planted!("dr: what is captured is acknowledged before it is applied") {
                    reader.acknowledge(&self.from).await;
                    self.env().sleep(system::PAUSE).await;
                }
                self.apply(&changes).await?;
                let now = self.env().now();
                if self.place.position == self.reached && self.acknowledged.is_due(now) {
                    self.acknowledged.last = now;
                    reader.acknowledge(&self.from).await;
                }
                Ok(())
            }
            Err(error)
                if error == Error::version_invalid() || error == Error::unsupported_operation() =>
            {
                Err(error)
            }
            Err(error) => {
                // FoundationDB has one number for a stream that is gone and for one that somebody
                // else reads: the next attempt looks.
                reader.start_over();
                self.stream.failures += 1;
                let detail = format!("reading the stream of the first site: {error}");
                self.run.note_problem(detail.clone());
                if self.stream.failures >= FAILURES {
                    return Err(Error::operation_failed().with_detail(detail));
                }
                self.env().sleep(system::PAUSE).await;
                Ok(())
            }
        }
    }

    /// Asks for what comes behind a version, or for what of it is there.
    fn ask(&self, behind: Version, wait: bool) -> Reply<Changes> {
        let request = ChangesRequest {
            stream: self.place.stream,
            from: behind.saturating_add(1),
            bytes: READ_BYTES,
            wait,
        };
        self.from.read_changes(request)
    }

    async fn apply(&mut self, changes: &Changes) -> Result<()> {
        for batch in &changes.batches {
            if batch.version <= self.reached {
                continue;
            }
            if !self.pending.is_empty()
                && size(&self.pending) + size(&batch.mutations) > GROUP_BYTES
            {
                self.flush().await?;
            }
            apply::push(
                self.place.copying.as_ref(),
                batch.version,
                &batch.mutations,
                &mut self.pending,
            );
            self.reached = batch.version;
        }
        self.reached = self.reached.max(changes.upto);
        let round = self.place.copying.as_ref().and_then(|copying| copying.round.as_ref());
        let is_round_over = round.is_some_and(|round| self.reached >= round.version);
        let is_due = self.env().now().saturating_sub(self.noted) >= NOTE
            && self.reached > self.place.position;
        if !self.pending.is_empty() || is_round_over || is_due {
            self.flush().await?;
        }
        Ok(())
    }

    /// Commits what is pending, and the place that it leads to.
    pub async fn flush(&mut self) -> Result<()> {
        let mut place = self.place.clone();
        place.position = self.reached;
        if let Some(copying) = place.copying.as_mut()
            && let Some(round) = copying.round.take_if(|round| place.position >= round.version)
        {
            copying.copied = round.upto;
            if copying.copied[..] >= *self.end {
                place.copying = None;
                // Whoever caches metadata of a layer reads it again.
                self.pending.push(MutationType::SetVersionstampedValue, METADATA_VERSION, &[0; 14]);
            }
        }
        let pending = std::mem::take(&mut self.pending);
        self.noted = self.env().now();
        if planted!("dr: the position comes behind what leads to it") {
            self.run.commit(pending, (&self.place, &self.place), &mut self.seen).await?;
            return self.move_to(MutationList::new(), place).await;
        }
        self.move_to(pending, place).await
    }

    /// Commits mutations that lead to a place.
    pub async fn move_to(&mut self, mutations: MutationList, place: Place) -> Result<()> {
        self.run.commit(mutations, (&self.place, &place), &mut self.seen).await?;
        self.place = place;
        Ok(())
    }

    /// Follows up to a version of the first, which has an entry at or behind it.
    pub async fn follow_upto(&mut self, version: Version) -> Result<()> {
        if self.captured.is_none() {
            // What there is already isn't waited for: a stream says how far it is once a second if
            // nothing of it comes, and nobody can write meanwhile where sides are changed.
            self.stream.coming = None;
        }
        while self.reached < version {
            if self.captured.is_some() {
                self.step_captured().await?;
                continue;
            }
            let before = self.reached;
            self.step_of_stream(false).await?;
            if self.reached == before {
                self.env().sleep(AGAIN).await;
            }
        }
        if self.place.position < version {
            self.flush().await?;
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        let now = self.env().now();
        if !self.acknowledged.is_under_way() && self.acknowledged.is_due(now) {
            self.acknowledged.last = now;
            // Whether it can be done shows with the next read. It is a commit, too: an idle stream
            // goes on behind it.
            self.acknowledged.under_way =
                Some(self.from.acknowledge_changes(self.place.stream, self.place.position));
        }
    }
}

/// The stream of a relation at its first, if that still knows of it, the version behind which it
/// begins, and what was noted there of what was being brought in.
async fn begin_at_first(
    first: &Database,
    head: &Head,
) -> Result<Option<(u64, Version, Option<Bytes>)>> {
    match capture::of(first) {
        Some(capture) => {
            let registered = capture::register(first, capture, head).await?;
            Ok(registered.map(|(stream, position)| (stream, position, None)))
        }
        None => Ok(register_at_first(first, head)
            .await?
            .map(|(stream, half)| (stream.id, stream.registered, half))),
    }
}

/// Registers the stream of a relation at its first, if that still knows of it: the row there comes
/// before the stream, and goes with it. Gives besides what is noted there of what is being brought
/// in; what comes behind the stream tells.
pub(crate) async fn register_at_first(
    first: &Database,
    head: &Head,
) -> Result<Option<(ChangeStream, Option<Bytes>)>> {
    let half = system::transact(first, |tr| async move {
        let follows =
            tr.get(first_key(&head.tag)).await?.map(|value| First::decode(&value)).transpose()?;
        if follows.is_none_or(|follows| follows.id != head.id) {
            return Ok(None);
        }
        tr.register_all_changes(stream_name(&head.id), head.log_bytes).await?;
        let noted = HEADS.map(|head| tr.get(head));
        let [restore, migration] = noted;
        Ok(Some(restore.await?.or(migration.await?)))
    })
    .await?;
    let Some(half) = half else { return Ok(None) };
    let name = stream_name(&head.id);
    let streams = first.list_changes().await?;
    let found = streams.into_iter().find(|stream| stream.name == name.as_bytes());
    Ok(found.map(|stream| (stream, half)))
}

/// The first knows nothing of this second: why, unless somebody else has found that out and ended
/// it.
async fn ended_at_first(run: &Run, head: &Head) -> Result<Error> {
    let is_as_it_was = run.transact(|tr| async move {
        let found = tr.get(HEAD).await?.map(|value| Head::decode(&value)).transpose()?;
        Ok(found.is_some_and(|found| found.id == head.id))
    });
    if !is_as_it_was.await? {
        return Ok(taken_over());
    }
    let detail = "the first site doesn't know of this second one: it was ended there; plinth dr abort, then start";
    Ok(Error::client_invalid_operation().with_detail(detail))
}

/// Notes at the first to whom its changes go.
///
/// # Errors
/// `client_invalid_operation` if they go to another database under this tag; `database_locked` if
/// the first has a part of something by now.
pub(crate) async fn claim(from: &Database, to: &Database, head: &Head) -> Result<()> {
    let first = First { id: head.id, to: identity(to), since: 0 };
    let refused = system::transact(from, |tr| {
        let first = first.clone();
        async move {
            if let Some(value) = tr.get(first_key(&head.tag)).await? {
                let other = First::decode(&value)?;
                return Ok((other.id != first.id).then(|| claimed(&head.tag, &other)));
            }
            // Not an error of the transaction: that would be tried again.
            if let Some(filling) = Filling::find(&tr).await? {
                return Ok(Some(filling.refusal("the first site")));
            }
            tr.set(first_key(&head.tag), first.encode());
            Ok(None)
        }
    })
    .await?;
    refused.map_or(Ok(()), Err)
}

fn claimed(tag: &str, other: &First) -> Error {
    let detail = format!(
        "the first site is followed already under the tag {tag}, by the database {}; abort that, or take another tag",
        other.to
    );
    Error::client_invalid_operation().with_detail(detail)
}

fn size(mutations: &MutationList) -> usize {
    mutations.as_bytes().len() + MUTATION_BYTES * mutations.len()
}

/// A node that is gone, or behind: another one, or the same one later, has the answer.
fn may_get_better(error: &Error) -> bool {
    error.is_retryable()
        || matches!(
            error.code(),
            codes::ALL_ALTERNATIVES_FAILED
                | codes::CONNECTION_FAILED
                | codes::SHUTDOWN_IN_PROGRESS
                | codes::BROKEN_PROMISE
        )
}
