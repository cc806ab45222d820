//! The agent: does what is wanted of two databases for as long as it is let, or waits for its turn.
//!
//! It looks which of the two follows the other, begins a run, and works until that fails, is taken
//! over, or sides have changed. So whatever was left by whoever was killed is found and gone on
//! with, in either direction.

use crate::follow::Follower;
use crate::lease::{Other, Run};
use crate::rows::{BEAT, Head, Id, Wanted};
use crate::sites::{Direction, Sites, nothing};
use crate::{abort, copy, handover, sides, system};
use plinth_env::sync::{First, race, until_set};
use plinth_types::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a waiting agent looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is looked whether it is to stop.
const STOP: Duration = Duration::from_millis(20);
/// The first pause before something is tried again, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// What an agent is told.
#[derive(Clone, Default, Debug)]
pub struct Control {
    /// Set it to end the agent; another one goes on where it was.
    pub stop: Arc<AtomicBool>,
}

/// How an agent has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It was told to.
    Stopped,
    /// Neither database follows the other one any more.
    Ended,
}

/// Lets one of two databases follow the other.
pub struct Agent {
    sites: Sites,
    holder: Id,
    control: Control,
}

impl Agent {
    /// An agent for these two, whichever of them is the first.
    pub fn new(sites: Sites, control: Control) -> Self {
        let mut holder = Id::default();
        sites.to.endpoint().env().fill_random(&mut holder);
        Self { sites, holder, control }
    }

    fn is_over(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed)
    }

    /// Works until it is stopped or there is nothing left to be done.
    ///
    /// # Errors
    /// `client_invalid_operation` if neither database follows the other, or one follows a third;
    /// `version_invalid` if the stream of the first was lost; `unsupported_operation` where there
    /// are no streams, and for rows of another version of this program.
    pub async fn run(&self) -> Result<Ending> {
        let env = self.sites.to.endpoint().env().clone();
        let (mut other, mut pause, mut has_worked) = (Other::default(), PAUSES[0], false);
        while !self.is_over() {
            let turn =
                match race(self.turn(&mut other, &mut has_worked), self.until_stopped()).await {
                    First::Left(turn) => turn,
                    First::Right(()) => break,
                };
            match turn {
                Ok(Some(Done::Ended | Done::HandedOver)) => return Ok(Ending::Ended),
                Ok(Some(Done::Again)) => pause = PAUSES[0],
                Ok(None) => env.sleep(LOOK).await,
                Err(error) if system::is_final(&error) => return Err(error),
                Err(error) => {
                    tracing::warn!(error = %error, "a second site gets no further, and it is tried again");
                    if race(env.sleep(pause), self.until_stopped()).await == First::Right(()) {
                        break;
                    }
                    pause = (pause * 2).min(PAUSES[1]);
                }
            }
        }
        Ok(Ending::Stopped)
    }

    async fn until_stopped(&self) {
        until_set(&self.control.stop, self.sites.to.endpoint().env(), STOP).await;
    }

    /// A turn, if it is this agent's: a run.
    async fn turn(&self, other: &mut Other, has_worked: &mut bool) -> Result<Option<Done>> {
        let Some(direction) = self.sites.direction().await? else {
            return if *has_worked { Ok(Some(Done::Ended)) } else { Err(nothing()) };
        };
        *has_worked = true;
        let beat = system::read_one(&direction.to, BEAT).await?;
        if !other.is_gone(&direction.to, &self.holder, beat.as_ref()) {
            return Ok(None);
        }
        match Run::begin(&direction.to, &self.holder, &direction.head, Some(&beat)).await? {
            Some(run) => self.work(&direction, &run).await.map(Some),
            None => Ok(None),
        }
    }

    /// Works until it ends by itself, fails, is taken over, or is stopped.
    pub(crate) async fn work(&self, direction: &Direction, run: &Run) -> Result<Done> {
        run.note_head(direction.head.clone());
        let work = async {
            if direction.head.wanted == Wanted::Waiting {
                Box::pin(sides::take_up(run, direction)).await?;
                return Ok(Done::Again);
            }
            follow(run, direction).await
        };
        let alive = race(run.beat(&direction.from), self.until_stopped());
        let result = match race(work, alive).await {
            First::Left(result) => result,
            First::Right(First::Left(error)) => Err(error),
            First::Right(First::Right(())) => {
                let _ = system::within(&run.to, GOODBYE, async {
                    run.retire().await;
                    Ok(())
                })
                .await;
                return Ok(Done::Again);
            }
        };
        ended(run, result).await
    }
}

/// What the end of a run comes to. What has failed counts once it is told by a run that still may
/// write: the one that took over has acknowledged what this one reads on, and to this one its
/// stream looks lost.
async fn ended(run: &Run, result: Result<Done>) -> Result<Done> {
    let result = match result {
        Err(error) if error != Error::operation_cancelled() => {
            system::within(&run.to, GOODBYE, run.tell_problem(&error)).await.and(Err(error))
        }
        result => result,
    };
    match result {
        // Another agent has it, or the databases are no longer what they were.
        Err(error) if error == Error::operation_cancelled() => {
            tracing::info!(error = %error, "a run of the second site has ended");
            Ok(Done::Again)
        }
        result => result,
    }
}

/// How a run has come to an end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Done {
    /// The state of the two databases has changed, or another agent works: look anew.
    Again,
    /// Both are free.
    Ended,
    /// The second is free, and the first, which can't follow it, is locked.
    HandedOver,
}

/// Ends it if that is wanted. Gives false as long as it has to follow all the same.
async fn is_ended(run: &Run, direction: &Direction, head: &Head) -> Result<bool> {
    match head.wanted {
        Wanted::Aborting(_) => Box::pin(abort::go_on(run, &direction.from, head)).await,
        _ => Ok(false),
    }
}

/// Follows until something else is wanted and done.
async fn follow(run: &Run, direction: &Direction) -> Result<Done> {
    // An end needs no stream, and where it was begun there may be none any more.
    if is_ended(run, direction, &direction.head).await? {
        return Ok(Done::Ended);
    }
    let mut follower = Follower::begin(run, direction, &direction.head).await?;
    loop {
        let Some(head) = run.head() else {
            let detail = "what the second site follows has been removed";
            return Err(Error::operation_cancelled().with_detail(detail));
        };
        match head.wanted {
            Wanted::Waiting => return Ok(Done::Again),
            Wanted::Aborting(_) if is_ended(run, direction, &head).await? => {
                return Ok(Done::Ended);
            }
            Wanted::Switching(next)
                if follower.place.whole_at().is_some() && follower.is_captured() =>
            {
                Box::pin(handover::hand_over(&mut follower, &head, next)).await?;
                return Ok(Done::HandedOver);
            }
            Wanted::Switching(next) if follower.place.whole_at().is_some() => {
                Box::pin(sides::change_sides(&mut follower, &head, next)).await?;
                return Ok(Done::Again);
            }
            Wanted::Following | Wanted::Switching(_) | Wanted::Aborting(_) => {}
        }
        if head.is_paused && head.wanted == Wanted::Following {
            follower.env().sleep(system::PAUSE).await;
            continue;
        }
        copy::round(&mut follower).await?;
        follower.step().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StartSettings, start};
    use plinth_env::block_on;

    /// It ended the agent for good, as if the stream had been lost (seed 47 of spec `dr`).
    #[test]
    fn what_a_run_meets_that_was_taken_over_from_is_nobodys_problem() {
        let open = || plinth::Local::in_memory().unwrap().into_database();
        block_on(async {
            let sites = Sites::new(open(), open());
            start(&sites, &StartSettings::default()).await.unwrap();
            let direction = sites.direction().await.unwrap().unwrap();
            let begin = async || Run::begin(&direction.to, &[1; 16], &direction.head, None).await;
            let (before, now) = (begin().await.unwrap().unwrap(), begin().await.unwrap().unwrap());
            assert_eq!(ended(&before, Err(Error::version_invalid())).await, Ok(Done::Again));
            assert_eq!(
                ended(&now, Err(Error::version_invalid())).await,
                Err(Error::version_invalid())
            );
            assert_eq!(ended(&now, Err(Error::operation_cancelled())).await, Ok(Done::Again));
        });
    }
}
