//! Which ranges a batch clears, and for each key which clear was the last.
//!
//! Disjoint ranges, each with the moment of the last clear that covers it. Clears come in order, so
//! that one more simply takes the place of what it overlaps:
//!
//! ```text
//!        |----- 3 -----|  |---- 5 ----|
//!   8:            |---------|
//!        |-- 3 --|--- 8 ----|--- 5 ---|
//! ```

use plinth_types::Bytes;
use std::collections::BTreeMap;

/// When something happened: in which entry of the batch, and where in it.
pub(super) type Moment = (u32, u32);

/// Cleared ranges.
#[derive(Default)]
pub(super) struct Cleared {
    /// Where each begins; where it ends, and when it was cleared last.
    ranges: BTreeMap<Bytes, (Bytes, Moment)>,
}

impl Cleared {
    /// Adds a range that is not empty, cleared after those before.
    pub fn add(&mut self, begin: Bytes, end: Bytes, moment: Moment) {
        assert!(begin < end);
        // The one that begins before it may reach into it, and even beyond its end.
        let before = self.ranges.range_mut(..begin.clone()).next_back();
        if let Some((_, (before_end, before_moment))) = before
            && *before_end > begin
        {
            let behind = (before_end.clone(), *before_moment);
            *before_end = begin.clone();
            if behind.0 > end {
                self.ranges.insert(end.clone(), behind);
            }
        }
        while let Some((inner, (inner_end, inner_moment))) =
            self.ranges.range(begin.clone()..end.clone()).next()
        {
            let (inner, behind) = (inner.clone(), (inner_end.clone(), *inner_moment));
            self.ranges.remove(&inner);
            if behind.0 > end {
                self.ranges.insert(end.clone(), behind);
            }
        }
        self.ranges.insert(begin, (end, moment));
    }

    /// What is cleared, ascending; ranges that touch are one.
    pub fn whole(&self) -> Vec<(&[u8], &[u8])> {
        let mut whole: Vec<(&[u8], &[u8])> = Vec::new();
        for (begin, (end, _)) in &self.ranges {
            match whole.last_mut() {
                Some((_, last_end)) if *last_end == *begin => *last_end = end,
                _ => whole.push((begin, end)),
            }
        }
        whole
    }

    /// Tells of keys, which ascend, when each was cleared last.
    pub fn walk(&self) -> impl FnMut(&[u8]) -> Option<Moment> {
        let mut ranges = self.ranges.iter().peekable();
        move |key| {
            while ranges.next_if(|(_, (end, _))| **end <= *key).is_some() {}
            ranges.peek().filter(|(begin, _)| ***begin <= *key).map(|(_, (_, moment))| *moment)
        }
    }
}
