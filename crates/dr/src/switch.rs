//! The call that has sides changed: it takes over from whoever works, writes what is wanted, and
//! works until that is so.

use crate::agent::{Agent, Control, Done};
use crate::capture;
use crate::lease::{Other, Run, taken_over};
use crate::rows::{BEAT, HALF, HEAD, Head, Id, PLACE, Place, Wanted};
use crate::sides::set_head;
use crate::sites::{Direction, Sites, nothing};
use crate::system::{self, PAUSE};
use plinth_client::Filling;
use plinth_types::{Error, Result};
use std::sync::atomic::Ordering;

/// Lets the two change places: afterwards the second takes writes, and the first follows it. Gives
/// false if that was so already.
///
/// A first that is a FoundationDB follows nobody: it stays locked ([`lock_of`](crate::lock_of)),
/// and neither follows the other any more.
///
/// # Errors
/// `client_invalid_operation` if neither follows the other, or the second isn't whole yet;
/// `database_locked` if somebody else has locked the first; `operation_cancelled` if it was
/// stopped: then an agent, or the same call, goes on; or if an agent that had taken it over gave it
/// up.
pub async fn switch(sites: &Sites, control: &Control) -> Result<bool> {
    sites.reach().await?;
    let agent = Agent::new(sites.clone(), control.clone());
    let (mut is_begun, mut other, mut next) = (false, Other::default(), None);
    let env = sites.to.endpoint().env();
    let mut holder = Id::default();
    env.fill_random(&mut holder);
    loop {
        let Some(direction) = sites.direction().await? else {
            // A FoundationDB follows nobody afterwards: somebody else has done it to its end.
            let is_done = match next {
                Some(next) => capture::locked_at(&sites.from, &next).await?.is_some(),
                None => false,
            };
            return if is_done { Ok(true) } else { Err(nothing()) };
        };
        if direction.is_reversed && direction.head.wanted == Wanted::Following {
            return Ok(is_begun);
        }
        if is_begun && direction.head.wanted == Wanted::Following {
            let detail = "whoever went on with it gave it up, and the second follows as before: plinth dr status says more";
            return Err(Error::operation_cancelled().with_detail(detail));
        }
        if control.stop.load(Ordering::Relaxed) {
            let detail = "stopped while sides are changed: an agent, or the same command, goes on";
            return Err(Error::operation_cancelled().with_detail(detail));
        }
        let beat = system::read_one(&direction.to, BEAT).await?;
        if is_begun && !other.is_gone(&direction.to, &holder, beat.as_ref()) {
            // Whoever has taken over does it as well: two such calls that went on taking over from
            // each other would get nowhere.
            env.sleep(PAUSE).await;
            continue;
        }
        // Before anybody is taken over from, who may have told why it has ended. Somebody else may
        // have been quicker: look again.
        if !is_ready(&direction).await? {
            continue;
        }
        let Some(run) = Run::begin(&direction.to, &holder, &direction.head, None).await? else {
            continue;
        };
        let direction = match begin(direction, &run).await {
            Ok(direction) => direction,
            Err(refused) => {
                run.give_back().await;
                return Err(refused);
            }
        };
        is_begun = true;
        next = direction.head.other.filter(|_| capture::of(&direction.from).is_some());
        let result = agent.work(&direction, &run).await;
        // What no patience helps against was told, and stays to be read.
        if !result.as_ref().is_err_and(system::is_final) {
            run.retire().await;
        }
        match result {
            Ok(Done::Again) => {}
            Ok(Done::HandedOver) => return Ok(true),
            Ok(Done::Ended) => return Err(nothing()),
            Err(error) if error.is_retryable() && error != Error::database_locked() => {
                env.sleep(PAUSE).await
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes that sides are to be changed, if that isn't so yet.
async fn begin(mut direction: Direction, run: &Run) -> Result<Direction> {
    if direction.head.wanted != Wanted::Following {
        return Ok(direction);
    }
    if !is_ready(&direction).await? {
        return Err(taken_over());
    }
    let mut next = Id::default();
    run.to.endpoint().env().fill_random(&mut next);
    let head = Head {
        wanted: Wanted::Switching(next),
        other: Some(next),
        is_paused: false,
        ..direction.head.clone()
    };
    set_head(run, &head).await?;
    direction.head = head;
    Ok(direction)
}

/// Whether what was found is still so, and sides can be changed.
///
/// # Errors
/// Why they can't be: the second has a part of something.
async fn is_ready(direction: &Direction) -> Result<bool> {
    let (_, values) = system::read(&direction.to, &[HEAD, PLACE, HALF]).await?;
    if !direction.head.is_in(values[0].as_ref())? {
        return Ok(false);
    }
    if direction.head.wanted != Wanted::Following {
        return Ok(true);
    }
    if values[2].is_some() {
        return Err(Filling::SecondSite.refusal("the second site"));
    }
    let place = values[1].as_ref().map(|value| Place::decode(value)).transpose()?;
    if place.is_none_or(|place| place.whole_at().is_none()) {
        let detail = "the second site isn't whole yet: plinth dr wait, then switch";
        return Err(Error::client_invalid_operation().with_detail(detail));
    }
    Ok(true)
}
