//! A token bucket: so many a second, with a little in reserve.

use std::time::Duration;

/// How many seconds' worth a bucket holds.
const RESERVE_SECONDS: f64 = 0.1;

/// Lets so many pass in a second.
pub(super) struct Bucket {
    /// Infinite: everybody passes.
    rate: f64,
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    pub fn unlimited() -> Self {
        Self { rate: f64::INFINITY, tokens: 0.0, filled: Duration::ZERO }
    }

    pub fn set_rate(&mut self, rate: f64, now: Duration) {
        assert!(rate >= 0.0, "{rate} a second");
        if self.rate.is_finite() {
            self.fill(now);
        } else {
            (self.tokens, self.filled) = (0.0, now);
        }
        self.rate = rate;
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Duration) -> bool {
        if self.rate.is_infinite() {
            return true;
        }
        self.fill(now);
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        assert!(self.tokens >= 0.0, "more pass than may");
        there
    }

    fn fill(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens =
            (self.tokens + seconds * self.rate).min((self.rate * RESERVE_SECONDS).max(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pass_as_the_rate_says() {
        let mut bucket = Bucket::unlimited();
        assert!((0..1000).all(|_| bucket.take(Duration::ZERO)));
        for rate in [0.5, 3.0, 1000.0] {
            bucket.set_rate(rate, Duration::ZERO);
            let passed =
                (0..20_000).filter(|ms| bucket.take(Duration::from_millis(*ms))).count() as f64;
            assert!(
                (passed - 20.0 * rate).abs() <= 1.0 + rate * RESERVE_SECONDS,
                "{rate}: {passed}"
            );
            bucket = Bucket::unlimited();
        }
        bucket.set_rate(0.0, Duration::ZERO);
        assert!(!bucket.take(Duration::from_secs(3600)));
    }
}
