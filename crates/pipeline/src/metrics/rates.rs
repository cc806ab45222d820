//! How much of something happens in a second, lately.

use crate::batch_lock::lock;
use std::sync::Mutex;
use std::time::Duration;

/// What has a rate in `status`.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(crate) enum Rated {
    Reads,
    Keys,
    BytesRead,
    StartedBatch,
    StartedDefault,
    StartedImmediate,
    Committed,
    Conflicted,
    Mutations,
    BytesWritten,
}

impl Rated {
    pub const COUNT: usize = Self::BytesWritten as usize + 1;
}

/// How much a new rate counts for.
const SMOOTHING: f64 = 0.5;

#[derive(Default)]
pub(crate) struct Rates {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<(Duration, [u64; Rated::COUNT])>,
    hz: [f64; Rated::COUNT],
}

impl Rates {
    /// These are the totals now.
    pub fn take(&self, now: Duration, totals: [u64; Rated::COUNT]) {
        let mut state = lock(&self.state);
        if let Some((then, before)) = state.last.replace((now, totals)) {
            let seconds = now.saturating_sub(then).as_secs_f64().max(1e-3);
            for (at, hz) in state.hz.iter_mut().enumerate() {
                let rate = totals[at].saturating_sub(before[at]) as f64 / seconds;
                *hz += SMOOTHING * (rate - *hz);
            }
        }
    }

    pub fn hz(&self, rated: Rated) -> f64 {
        lock(&self.state).hz[rated as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_found_and_forgotten() {
        let rates = Rates::default();
        let at = |second: u64, total: u64| {
            let mut totals = [0; Rated::COUNT];
            totals[Rated::Keys as usize] = total;
            rates.take(Duration::from_secs(second), totals);
        };
        (0..20).for_each(|second| at(second, second * 100));
        assert!((rates.hz(Rated::Keys) - 100.0).abs() < 0.1, "{}", rates.hz(Rated::Keys));
        (20..40).for_each(|second| at(second, 1900));
        assert!(rates.hz(Rated::Keys) < 0.1 && rates.hz(Rated::Reads) == 0.0);
    }
}
