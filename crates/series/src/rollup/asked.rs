//! What PromQL asks of buckets: stretches of time by the column, and digests where the ends of
//! points count.
//!
//! A bucket has two stretches: the point at its beginning, and what lies behind it. A window that
//! ends where buckets begin has the point there, so what lies behind a beginning and the point at
//! the next one are in the same windows; of a window that ends just before, the point and what lies
//! behind it are. In each case the two of them are one stretch. Where all buckets of a row have
//! both, one follows the other, and all are numbers, columns are added up as they are.

use super::columns::{Columns, FALLS, FIRST, GREATEST, LAST, LEAST, OTHERS, Places, SUMS};
use super::digest::{end_of, is_mark};
use crate::value::{Column, Point};
use plinth_promql::{Digest, Stretches, Wanted};
use std::borrow::Cow;
use std::ops::Range;

/// Which neighbours are in the same windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joined {
    /// What lies behind a beginning, and the point at the next one.
    Behind,
    /// The point at a beginning, and what lies behind it.
    From,
}

impl Columns {
    /// Appends what is wanted of the buckets that are looked at, each so long: how many points they
    /// have, and one number of them. Of columns that were read for that.
    pub(crate) fn put_stretches(
        &self,
        wanted: Wanted,
        (every, joined): (i64, Joined),
        stretches: &mut Stretches,
    ) {
        stretches.reserve(2 * self.looked_at.all.len());
        match self.plain(every) {
            Some(at) => self.put_plain(wanted, (every, joined), &at, stretches),
            None => self.put_each(wanted, every, stretches),
        }
    }

    /// The numbers at beginnings, if each bucket that is looked at has one and others behind it,
    /// follows the one before, and has nothing else.
    fn plain(&self, every: i64) -> Option<Cow<'_, [f64]>> {
        let Places { all, at, rest } = &self.looked_at;
        let (first, last) = self.ends()?;
        let between = last.checked_sub(first)?;
        let is_dense = between == every.checked_mul(all.len() as i64 - 1)?;
        let has_both = at.len() == all.len() && rest.len() == all.len();
        let is_whole = first > i64::MIN && last.checked_add(every).is_some();
        if !is_dense || !has_both || !is_whole {
            return None;
        }
        let is_any_other = self.numbers[OTHERS][rest.clone()].iter().any(|others| *others != 0);
        let values = numbers(&self.at, at.clone());
        let is_number = |value: &f64| !value.is_nan();
        (!is_any_other && values.iter().all(is_number)).then_some(values)
    }

    fn put_plain(
        &self,
        wanted: Wanted,
        (every, joined): (i64, Joined),
        at: &[f64],
        stretches: &mut Stretches,
    ) {
        let Places { all, rest, .. } = &self.looked_at;
        let (begins, counts) = (&self.begins[all.clone()], &self.numbers[0][rest.clone()]);
        let values = self.numbers_of(wanted, rest.clone());
        let Some(last) = begins.len().checked_sub(1) else { return };
        // The one that has no neighbour stands alone: the first point, and what comes last.
        let (pairs, next) = match joined {
            Joined::Behind => {
                stretches.push((begins[0], begins[0]), 1, at[0]);
                (0..last, &at[1..])
            }
            Joined::From => (0..last + 1, at),
        };
        let (from, upto) = match joined {
            Joined::Behind => (1, every),
            Joined::From => (0, every - 1),
        };
        let here = &begins[pairs.clone()];
        stretches.firsts.extend(here.iter().map(|begin| begin + from));
        stretches.lasts.extend(here.iter().map(|begin| begin + upto));
        stretches.counts.extend(counts[pairs.clone()].iter().map(|count| *count as u64 + 1));
        let both = values[pairs].iter().zip(next);
        match wanted {
            Wanted::Sum => stretches.values.extend(both.map(|(rest, at)| rest + at)),
            _ => stretches.values.extend(both.map(|(rest, at)| wanted.joined(*rest, *at))),
        }
        if joined == Joined::Behind {
            let span = (begins[last] + 1, begins[last] + (every - 1));
            stretches.push(span, counts[last] as u64, values[last]);
        }
    }

    fn put_each(&self, wanted: Wanted, every: i64, stretches: &mut Stretches) {
        let [counts, others, marks] = &self.numbers;
        let values = self.numbers_of(wanted, 0..counts.len());
        self.each(false, |begin, at, rest| {
            if let Some(value) = at {
                let count = u64::from(!is_mark(value));
                stretches.push((begin, begin), count, value.as_f64());
            }
            if let Some(place) = rest {
                let is_all_numbers = others[place] == marks[place];
                let value = match wanted {
                    Wanted::Sum if !is_all_numbers => f64::NAN,
                    _ => values[place],
                };
                let span = (begin.saturating_add(1), end_of(begin, every).saturating_sub(1));
                stretches.push(span, (counts[place] - marks[place]) as u64, value);
            }
        });
    }

    /// The column of what is wanted of what lies behind beginnings.
    fn numbers_of(&self, wanted: Wanted, places: Range<usize>) -> Cow<'_, [f64]> {
        let column = match wanted {
            Wanted::Sum => SUMS,
            Wanted::Least => LEAST,
            Wanted::Greatest => GREATEST,
            // How many there are is all.
            Wanted::Count | Wanted::FirstAndLast | Wanted::Ends | Wanted::Last => {
                return vec![0.0; places.len()].into();
            }
        };
        numbers(&self.values[column - SUMS], places)
    }

    /// Appends the digests of the buckets that are looked at, each so long. Of columns that were
    /// read for the ends of points.
    pub(crate) fn put_digests(&self, of: (i64, Joined), digests: &mut Vec<Digest>) {
        match self.plain(of.0) {
            Some(at) => self.put_plain_digests(of.1, &at, digests),
            None => self.put_each_digest(digests),
        }
    }

    fn put_plain_digests(&self, joined: Joined, at: &[f64], digests: &mut Vec<Digest>) {
        let Places { all, rest, .. } = &self.looked_at;
        let begins = &self.begins[all.clone()];
        let Some(end) = begins.len().checked_sub(1) else { return };
        let of = |column: usize| numbers(&self.values[column - SUMS], rest.clone());
        let falls = match self.values[FALLS - SUMS].is_empty() {
            true => vec![0.0; rest.len()].into(),
            false => of(FALLS),
        };
        let (first, last) = (of(FIRST), of(LAST));
        let [firsts, lasts] = [0, 1].map(|ends| &self.times[ends][rest.clone()]);
        let firsts = begins.iter().zip(firsts).zip(first.iter());
        let firsts = firsts.map(|((begin, after), value)| (begin.wrapping_add(*after), *value));
        let lasts = begins.iter().zip(lasts).zip(last.iter());
        let lasts = lasts.map(|((begin, after), value)| (begin.wrapping_add(*after), *value));
        let ends = firsts.zip(lasts).zip(self.numbers[0][rest.clone()].iter().zip(falls.iter()));
        let behind = ends.map(|((first, last), (count, falls))| Digest {
            count: *count as u64,
            first,
            last,
            falls: *falls,
            is_ended: false,
        });
        let mut at = begins.iter().zip(at).map(|(begin, value)| (*begin, *value));
        match joined {
            Joined::Behind => {
                digests.extend(at.next().map(Digest::from));
                let mut behind = behind;
                let both = behind.by_ref().take(end).zip(at);
                digests.extend(both.map(|(one, next)| {
                    let (_, before) = one.last;
                    let fall = if next.1 < before { before } else { 0.0 };
                    let (count, falls) = (one.count + 1, one.falls + fall);
                    Digest { count, last: next, falls, ..one }
                }));
                digests.extend(behind);
            }
            Joined::From => digests.extend(at.zip(behind).map(|(before, one)| {
                let fall = if one.first.1 < before.1 { before.1 } else { 0.0 };
                let (count, falls) = (one.count + 1, fall + one.falls);
                Digest { count, first: before, falls, ..one }
            })),
        }
    }

    fn put_each_digest(&self, digests: &mut Vec<Digest>) {
        let [counts, _, marks] = &self.numbers;
        let sample = |point: Point| (point.time, point.value.as_f64());
        let mut seen = self.seen.iter().peekable();
        self.each(false, |begin, at, rest| {
            digests.extend(at.map(|value| Digest::from((begin, value.as_f64()))));
            let Some(place) = rest else { return };
            let point = |after: usize, column: usize| Point {
                time: begin.wrapping_add(self.times[after][place]),
                value: self.values[column - SUMS].get(place),
            };
            let (first, last) = (point(0, FIRST), point(1, LAST));
            while seen.next_if(|(of, _)| *of < place).is_some() {}
            let beside = seen.next_if(|(of, _)| *of == place).and_then(|(_, seen)| *seen);
            let (begin, end) = beside.unwrap_or((first, last));
            let falls = &self.values[FALLS - SUMS];
            digests.push(Digest {
                count: (counts[place] - marks[place]) as u64,
                first: sample(begin),
                last: sample(end),
                falls: if falls.is_empty() { 0.0 } else { falls.get(place).as_f64() },
                is_ended: is_mark(last.value),
            });
        });
    }
}

/// Values as floats.
fn numbers(column: &Column, places: Range<usize>) -> Cow<'_, [f64]> {
    match column {
        Column::Floats(values) => Cow::Borrowed(&values[places]),
        Column::Integers(values) => values[places].iter().map(|value| *value as f64).collect(),
        Column::Mixed(values) => values[places].iter().map(|value| value.as_f64()).collect(),
    }
}
