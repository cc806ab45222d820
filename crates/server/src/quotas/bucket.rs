//! A bucket: how many bytes somebody may move now, and when again if he has moved too many.
//!
//! It fills with so many bytes a second, and holds those of one second. What is moved is taken out
//! when it is known how much it is, so the bucket may go below nothing: then its owner waits until
//! that is paid back. In the long run he moves what fills it, whatever the size of a request, as
//! long as one is no more than what fills it in a minute: nobody owes more than that.
//!
//! ```text
//!   left    a second's bytes ┤ full     he may            taken out: a reply, a commit
//!                          0 ┼ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─   reserved: what is under way
//!                            ┤ owes     he waits          filled: so many bytes a second
//!        a minute's bytes, owed
//! ```
//!
//! Always: what is counted is bytes times nanoseconds, so nothing is rounded away however often it
//! is looked at.

use std::time::Duration;

const SECOND: i128 = 1_000_000_000;
/// Seconds that its owner has to wait at most.
const MOST_OWED: i128 = 60;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    /// Bytes a second.
    rate: u64,
    /// Bytes that are in it, or owed, in billionths.
    left: i128,
    /// As of when.
    at: Duration,
    /// Bytes that may be taken out any moment.
    reserved: u64,
}

impl Bucket {
    /// A full one.
    pub(super) fn new(rate: u64, now: Duration) -> Self {
        Self { rate, left: i128::from(rate) * SECOND, at: now, reserved: 0 }
    }

    /// What came in since it was looked at last.
    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_nanos();
        let passed = i128::try_from(passed).unwrap_or(i128::MAX);
        let rate = i128::from(self.rate);
        self.left = self.left.saturating_add(rate.saturating_mul(passed)).min(rate * SECOND);
        self.at = self.at.max(now);
    }

    /// Fills it with so many bytes a second from now on. What is owed stays.
    pub(super) fn set_rate(&mut self, rate: u64, now: Duration) {
        self.fill(now);
        self.rate = rate;
        self.put(self.left);
    }

    fn put(&mut self, left: i128) {
        let second = i128::from(self.rate) * SECOND;
        self.left = left.clamp(-MOST_OWED * second, second);
    }

    /// Takes out so many bytes, be they there or not.
    pub(super) fn take(&mut self, bytes: u64, now: Duration) {
        self.fill(now);
        self.put(self.left.saturating_sub(i128::from(bytes) * SECOND));
    }

    /// So many may be taken out any moment.
    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// They were taken out, or aren't going to be.
    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// For how long its owner has to wait; `None` if he owes nothing.
    pub(super) fn wait(&mut self, now: Duration) -> Option<Duration> {
        self.fill(now);
        let left = self.left - i128::from(self.reserved) * SECOND;
        if left >= 0 {
            return None;
        }
        let rate = i128::from(self.rate.max(1));
        let nanos = ((rate - 1 - left) / rate).min(MOST_OWED * SECOND);
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Whether it is full: whoever has such a one may as well have a new one.
    pub(super) fn is_full(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.left == i128::from(self.rate) * SECOND && self.reserved == 0
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    /// As it is said: what was taken when, and nothing else; looked through anew each time, by
    /// whole seconds, in which it fills exactly.
    #[derive(Default)]
    struct Model {
        rates: Vec<(u64, i128)>,
        taken: Vec<(u64, i128)>,
    }

    impl Model {
        fn left(&self, now: u64) -> i128 {
            let rate_at = |second: u64| {
                let known = self.rates.iter().rev().find(|(since, _)| *since <= second);
                known.map_or(0, |(_, rate)| *rate)
            };
            let mut left = rate_at(0);
            for second in 0..=now {
                if second > 0 {
                    // What fills it in a second is what held in that second.
                    let before = rate_at(second - 1);
                    left = (left + before).min(before);
                }
                left = left.clamp(-MOST_OWED * rate_at(second), rate_at(second));
                for (at, bytes) in &self.taken {
                    if *at == second {
                        let rate = rate_at(second);
                        left = (left - bytes).clamp(-MOST_OWED * rate, rate);
                    }
                }
            }
            left
        }
    }

    #[test]
    fn a_bucket_holds_what_a_model_does() {
        for seed in 1..200 {
            let mut random = Random(seed * 0x9e37_79b9);
            let rate = 1_000 * (1 + random.below(50));
            let mut model = Model { rates: vec![(0, rate.into())], ..Model::default() };
            let (mut bucket, mut second) = (Bucket::new(rate, Duration::ZERO), 0);
            for step in 0..60 {
                second += random.below(4);
                let now = Duration::from_secs(second);
                match random.below(8) {
                    0 => {
                        // At a second of its own, since the model knows no order within one.
                        second += 1;
                        let rate = 1_000 * (1 + random.below(50));
                        model.rates.push((second, rate.into()));
                        bucket.set_rate(rate, Duration::from_secs(second));
                        second += 1;
                    }
                    1 => {
                        // What comes to nothing costs nothing, but is waited for until then.
                        let bytes = 1 + random.below(200 * rate);
                        bucket.reserve(bytes);
                        let owed = i128::from(bytes) - model.left(second);
                        let is_waited_for = bucket.wait(now).is_some();
                        assert_eq!(is_waited_for, owed > 0, "seed {seed}, step {step}");
                        bucket.release(bytes);
                    }
                    _ => {
                        let bytes = random.below([3, 90][step % 2] * rate);
                        model.taken.push((second, bytes.into()));
                        bucket.take(bytes, now);
                    }
                }
                let now = Duration::from_secs(second);
                let left = model.left(second);
                let wait = bucket.wait(now);
                assert_eq!(bucket.left, left * SECOND, "seed {seed}, step {step}");
                assert_eq!(wait.is_none(), left >= 0);
                if let Some(wait) = wait {
                    let early = now + wait - Duration::from_nanos(1);
                    assert!(bucket.clone().wait(early).is_some(), "seed {seed}, step {step}");
                    assert_eq!(bucket.clone().wait(now + wait), None, "seed {seed}, step {step}");
                }
            }
        }
    }

    /// Whoever asks all the time gets what fills it, and a second's worth at the beginning.
    #[test]
    fn in_the_long_run_what_is_moved_is_the_rate() {
        for size in [7, 999, 50_000, 700_000] {
            let mut bucket = Bucket::new(100_000, Duration::ZERO);
            let (mut moved, mut now) = (0, Duration::ZERO);
            while now < Duration::from_secs(20) {
                match bucket.wait(now) {
                    Some(wait) => now += wait,
                    None => {
                        bucket.take(size, now);
                        moved += size;
                        now += Duration::from_nanos(7);
                    }
                }
            }
            let expected = 100_000 * 21;
            assert!((expected..=expected + 2 * size).contains(&moved), "{size}: {moved}");
        }
    }

    #[test]
    fn no_number_is_too_large_and_a_clock_that_stands_fills_nothing() {
        let mut bucket = Bucket::new(u64::MAX, Duration::MAX);
        bucket.take(u64::MAX, Duration::ZERO);
        bucket.take(u64::MAX, Duration::ZERO);
        assert!(bucket.wait(Duration::ZERO).is_some_and(|wait| wait == Duration::from_secs(1)));
        assert!(!bucket.is_full(Duration::MAX));
        let mut bucket = Bucket::new(1_000, Duration::ZERO);
        let minute = Some(Duration::from_secs(60));
        (0..100).for_each(|_| bucket.take(u64::MAX, Duration::ZERO));
        assert_eq!(bucket.wait(Duration::ZERO), minute, "nobody owes more");
        (0..100).for_each(|_| bucket.reserve(u64::MAX));
        assert_eq!(bucket.wait(Duration::ZERO), minute);
        bucket.release(u64::MAX);
        assert_eq!(bucket.wait(Duration::from_secs(60)), None);
        bucket.set_rate(2_000, Duration::from_secs(1));
        assert_eq!(bucket.rate(), 2_000);
    }
}
