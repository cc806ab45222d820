//! How fast rows are given to members that lack them: as fast as those take them while nobody
//! commits, and at a pace while somebody does.
//!
//! Rows come from the processors, the memory and the disks that commits need as well. A member that
//! gets them a little later is missed by nobody; a commit that waits is. But the entries behind the
//! rows are kept to a bound only: a pace that outlasts it would have the member begin again, and
//! again. So who gives rows forgets the pace when half of that has been written.

use std::time::Duration;

/// How often it is looked whether anybody commits.
const LOOK: Duration = Duration::from_millis(500);
/// Bytes of entries a second, at most, of a cluster where hardly anybody commits.
const AT_REST: u64 = 4096;
/// What is caught up with after a pause, no more: timers are late by a little each time.
const SLACK: Duration = Duration::from_millis(20);
/// The shortest pause: what goes in between goes at once, for who is woken for each piece spends
/// more on that than on the piece.
const STEP: Duration = Duration::from_millis(5);

/// When the next bytes may go.
pub(super) struct Pace {
    bytes_per_second: u64,
    /// Nothing goes before.
    next: Duration,
    looked: Duration,
    written: u64,
    is_kept: bool,
}

impl Pace {
    /// This many bytes a second while somebody commits.
    pub fn new(bytes_per_second: u64) -> Self {
        let never = Duration::ZERO;
        Self { bytes_per_second, next: never, looked: never, written: 0, is_kept: false }
    }

    /// Rows begin to be given: it is kept until the next look says that it need not be.
    pub fn begin(&mut self) {
        self.is_kept = true;
    }

    /// Looks how many bytes of entries have been written so far, now and then.
    pub fn look(&mut self, written: u64, now: Duration) {
        let since = now.saturating_sub(self.looked);
        if since < LOOK {
            return;
        }
        let bytes = written.saturating_sub(self.written);
        self.is_kept = bytes as f64 > AT_REST as f64 * since.as_secs_f64();
        (self.looked, self.written) = (now, written);
    }

    /// How long it is until more may go: never longer than until it is looked again.
    pub fn wait(&self, now: Duration) -> Duration {
        let ahead = self.next.saturating_sub(now);
        if self.is_kept && !ahead.is_zero() { ahead.clamp(STEP, LOOK) } else { Duration::ZERO }
    }

    /// So many bytes have gone.
    pub fn spend(&mut self, bytes: usize, now: Duration) {
        let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
        self.next = self.next.max(now.saturating_sub(SLACK)) + Duration::from_secs_f64(seconds);
        if !self.is_kept {
            self.next = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that go within ten seconds, in pieces of this length, at a pace of 100,000 a second,
    /// while so many bytes of entries are written in each.
    fn given(piece: usize, written: u64) -> usize {
        let mut pace = Pace::new(100_000);
        let (mut now, mut bytes) = (Duration::from_secs(5), 0);
        let so_far = |now: Duration| (now.as_secs_f64() * written as f64) as u64;
        pace.look(so_far(now - LOOK), now - LOOK);
        while now < Duration::from_secs(15) && bytes < 100_000_000 {
            pace.look(so_far(now), now);
            let wait = pace.wait(now);
            now += wait;
            if wait.is_zero() {
                bytes += piece;
                pace.spend(piece, now);
                now += Duration::from_micros(100);
            }
        }
        bytes
    }

    /// Pauses may be longer than the time between two looks.
    #[test]
    fn a_pace_is_kept_while_somebody_commits() {
        for piece in [100, 1_000, 100_000] {
            let paced = given(piece, 100_000);
            assert!((950_000..=1_150_000).contains(&paced), "{piece}: {paced}");
        }
    }

    #[test]
    fn there_is_none_while_nobody_does() {
        for written in [0, AT_REST / 2] {
            assert!(given(1000, written) > 50_000_000, "{written}");
        }
    }

    #[test]
    fn what_was_not_used_is_no_burst_later() {
        let mut pace = Pace::new(1000);
        let second = Duration::from_secs(1);
        pace.look(0, second);
        pace.look(1 << 20, second * 2);
        let later = second * 100;
        pace.spend(500, later);
        assert_eq!(pace.wait(later), second / 2 - SLACK);
    }
}
