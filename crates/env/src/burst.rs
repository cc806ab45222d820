//! Bursts: what happens again and again is told twice, at its beginning and at its end, with a
//! count.
//!
//! Whoever has to tell something that others can make happen as often as they like (refusals,
//! failures of a disk that is full) asks a burst whether this is the first; the end comes when it
//! has been quiet for a while, and is looked for now and then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it has to be quiet before a burst is over.
const QUIET: Duration = Duration::from_secs(10);

/// Something that may happen often.
#[derive(Default, Debug)]
pub struct Burst {
    running: Mutex<Option<Running>>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    count: u64,
    began: Duration,
    last: Duration,
}

/// A burst that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// How many times it happened.
    pub count: u64,
    /// From the first to the last.
    pub lasted: Duration,
}

impl Burst {
    /// It happened `count` times more. Whether this is the beginning of a burst, which is to be
    /// told.
    pub fn note(&self, count: u64, now: Duration) -> bool {
        let mut running = self.lock();
        match &mut *running {
            Some(running) => {
                running.count += count;
                running.last = now;
                false
            }
            none => {
                *none = Some(Running { count, began: now, last: now });
                true
            }
        }
    }

    /// The same where nobody looks for the end of a burst, which nobody is told then.
    pub fn note_alone(&self, count: u64, now: Duration) -> bool {
        let _ = self.over(now);
        self.note(count, now)
    }

    /// The burst, if it has come to its end by now: then it is to be told, and the next one is
    /// another.
    pub fn over(&self, now: Duration) -> Option<Over> {
        let mut running = self.lock();
        let ended = running.filter(|running| now >= running.last + QUIET)?;
        *running = None;
        Some(ended.over())
    }

    /// The burst, if there is one, ended at once: nobody will look again.
    pub fn end(&self) -> Option<Over> {
        Some(self.lock().take()?.over())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn over(&self) -> Over {
        Over { count: self.count, lasted: self.last.saturating_sub(self.began) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_twice_and_the_next_burst_is_another() {
        let burst = Burst::default();
        let at = Duration::from_millis;
        assert!(burst.note(1, at(0)));
        assert!((1..6000).all(|n| !burst.note(1, at(n)) && burst.over(at(n)).is_none()));
        assert_eq!(burst.over(at(15_998)), None);
        assert_eq!(burst.over(at(15_999)), Some(Over { count: 6000, lasted: at(5999) }));
        assert_eq!((burst.over(at(99_999)), burst.end()), (None, None));
        assert!(burst.note(3, at(100_000)), "a new one");
        assert_eq!(burst.end(), Some(Over { count: 3, lasted: at(0) }));
        let told = [0, 9_999, 19_998, 29_998].map(|n| burst.note_alone(1, at(200_000 + n)));
        assert_eq!(told, [true, false, false, true], "without anybody who looks for its end");
    }
}
