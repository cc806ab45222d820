//! How a second site is: what it holds, how far behind the first that is, and who works at it.
//!
//! The second has the place and the agent's last sign of life as rows; the first is asked who
//! follows whom, for its newest version, and for its size while it is copied. Where the first is
//! not named, or doesn't answer in time, the newest version is the one that the agent saw last.
//!
//! Always: nothing is written, and a site that can't be reached is given up after some seconds.

use crate::rows::{BEAT, Beat, HALF, PLACE, Place, Wanted, hex};
use crate::sites::{Direction, Sites, head};
use crate::system::{self, within};
use plinth_client::Database;
use plinth_types::{KeyRange, Result, Version, codes, version::VERSIONS_PER_SECOND};
use std::time::Duration;

/// How long the first is asked before it counts as out of reach.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a second site is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nobody has begun yet: no agent.
    Beginning,
    /// The first copy is under way.
    Copying,
    /// The first copy is done, and it follows.
    Following,
    /// It stands still, as it was told to.
    Paused,
    /// Sides are being changed.
    Switching,
    /// It ends.
    Aborting,
}

impl Phase {
    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Beginning => "beginning",
            Self::Copying => "copying",
            Self::Following => "following",
            Self::Paused => "paused",
            Self::Switching => "switching",
            Self::Aborting => "aborting",
        }
    }
}

/// How far the first copy is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Copied {
    /// Rows so far.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// About how many bytes of rows the first has, while they are copied.
    pub of_bytes: Option<u64>,
}

/// How a second site is.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// Its tag.
    pub tag: String,
    /// What names the relation, as its lock.
    pub id: String,
    /// The one that was called the second is the first.
    pub is_reversed: bool,
    /// What it is doing.
    pub phase: Phase,
    /// Everything up to this version of the first is in.
    pub position: Option<Version>,
    /// The version of the first whose rows it has; none while it isn't whole.
    pub whole_at: Option<Version>,
    /// It has a part of what is being restored or migrated into the first: until it has the end of
    /// that, it isn't whole.
    pub has_half: bool,
    /// The newest version of the first; as the agent saw it last if the first can't be reached.
    pub newest: Option<Version>,
    /// Whether the first has answered.
    pub is_first_reached: bool,
    /// How far the first copy is.
    pub copied: Copied,
    /// How long ago an agent gave its last sign of life, by the clocks of both; none if none works
    /// at it.
    pub agent_age: Option<Duration>,
    /// Why it gets no further, if it doesn't.
    pub problem: Option<String>,
    /// The last agent has ended for that, since no patience helps against it.
    pub is_given_up: bool,
}

impl Status {
    /// How far it is behind the first, in versions.
    pub fn lag_versions(&self) -> Option<Version> {
        Some((self.newest? - self.position?).max(0))
    }

    /// The same in seconds; there are about a million versions a second.
    pub fn lag_seconds(&self) -> Option<f64> {
        self.lag_versions().map(|versions| versions as f64 / VERSIONS_PER_SECOND as f64)
    }
}

/// How the second of these is, or the first, if they have changed sides. Without the first: what
/// the second alone knows.
///
/// # Errors
/// Those of the second; `timed_out` if that can't be reached.
pub async fn status(from: Option<&Database>, to: &Database) -> Result<Option<Status>> {
    let of_second = |head| Direction { from: to.clone(), to: to.clone(), head, is_reversed: false };
    let found = match from {
        Some(from) => {
            let sites = Sites::new(from.clone(), to.clone());
            match within(from, PATIENCE, sites.direction()).await {
                Ok(found) => found.map(|direction| (direction, true)),
                Err(error) if error.code() == codes::TIMED_OUT => {
                    within(to, PATIENCE, head(to)).await?.map(|head| (of_second(head), false))
                }
                Err(error) => return Err(error),
            }
        }
        None => within(to, PATIENCE, head(to)).await?.map(|head| (of_second(head), false)),
    };
    let Some((direction, is_first_reached)) = found else { return Ok(None) };
    let (_, values) =
        within(&direction.to, PATIENCE, system::read(&direction.to, &[PLACE, BEAT, HALF])).await?;
    let place = values[0].as_ref().map(|value| Place::decode(value)).transpose()?;
    let has_half = values[2].is_some();
    let beat = values[1].as_ref().and_then(|value| Beat::decode(value));
    let newest = match is_first_reached {
        true => within(&direction.from, PATIENCE, system::read_version(&direction.from)).await.ok(),
        false => beat.as_ref().map(|beat| beat.newest).filter(|newest| *newest > 0),
    };
    let is_copying = place.as_ref().is_some_and(|place| place.copying.is_some());
    let of_bytes = match is_first_reached && is_copying {
        true => size_of(&direction.from).await,
        false => None,
    };
    let head = &direction.head;
    let phase = match (head.wanted, &place) {
        (Wanted::Aborting(_), _) => Phase::Aborting,
        (Wanted::Switching(_) | Wanted::Waiting, _) => Phase::Switching,
        (Wanted::Following, _) if head.is_paused => Phase::Paused,
        (Wanted::Following, None) => Phase::Beginning,
        (Wanted::Following, Some(_)) if is_copying => Phase::Copying,
        (Wanted::Following, Some(_)) => Phase::Following,
    };
    let now = to.endpoint().env().wall_clock();
    Ok(Some(Status {
        tag: head.tag.clone(),
        id: hex(&head.id),
        is_reversed: direction.is_reversed,
        phase,
        position: place.as_ref().map(|place| place.position),
        whole_at: place.as_ref().and_then(Place::whole_at).filter(|_| !has_half),
        has_half,
        newest,
        is_first_reached,
        copied: place.as_ref().map_or(Copied::default(), |place| Copied {
            rows: place.rows,
            bytes: place.bytes,
            of_bytes,
        }),
        agent_age: beat.as_ref().map(|beat| now.saturating_sub(Duration::from_millis(beat.time))),
        is_given_up: beat.as_ref().is_some_and(|beat| beat.is_given_up),
        problem: beat.map(|beat| beat.problem).filter(|problem| !problem.is_empty()),
    }))
}

/// About how many bytes a first has that are copied.
async fn size_of(first: &Database) -> Option<u64> {
    let mut sum = 0;
    for (begin, end) in system::copied_of(first) {
        sum += first.endpoint().range_size(KeyRange::new(*begin, *end)).await.ok()?;
    }
    u64::try_from(sum).ok()
}
