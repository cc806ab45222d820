//! Histories of lists that clients read and append to, and whether they are strictly serializable.
//!
//! Every value that is appended is unique, so each list tells the order of its writers, and each
//! read which of them it has seen. From that follows who must have come before whom; and who had
//! ended before another one began comes before it in real time. If all of that has no circle, there
//! is an order of all transactions that explains everything, and that respects real time; else
//! there is none.
//!
//! A transaction of unknown fate has taken effect if what it appended is there, as a whole or not
//! at all.

use std::collections::BTreeMap;
use std::time::Duration;

/// Lists by their numbers.
pub type Lists = BTreeMap<u64, Vec<u64>>;

/// How a transaction ended, as far as its client was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It took effect.
    Committed,
    /// It certainly took none.
    Refused,
    /// Nobody knows.
    Unknown,
}

/// One attempt at a transaction: reads, then appends.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Before it was begun.
    pub began: Duration,
    /// When its client was told what became of it.
    pub ended: Duration,
    /// What lists were found to be, before anything of its own.
    pub reads: Vec<(u64, Vec<u64>)>,
    /// What was appended to which.
    pub appends: Vec<(u64, u64)>,
    /// What became of it.
    pub fate: Fate,
}

/// Where a value is in the end.
type Places = BTreeMap<u64, (u64, usize)>;

/// Judges a history by what the lists are in the end.
///
/// # Errors
/// What can't be.
pub fn judge(history: &[Attempt], last: &Lists) -> Result<(), String> {
    let mut places = Places::new();
    for (list, values) in last {
        for (at, value) in values.iter().enumerate() {
            if places.insert(*value, (*list, at)).is_some() {
                return Err(format!("{value:x} is there twice, in list {list} too"));
            }
        }
    }
    let took_effect = effects(history, &places)?;
    let mut writers = BTreeMap::new();
    for (number, attempt) in history.iter().enumerate() {
        for (_, value) in &attempt.appends {
            if writers.insert(*value, number).is_some() {
                return Err(format!("{value:x} was appended by two transactions"));
            }
        }
    }
    if let Some(value) = places.keys().find(|value| !writers.contains_key(value)) {
        return Err(format!("{value:x} is there, and nobody has appended it"));
    }
    let mut order = Order::new(history.len());
    for (number, attempt) in history.iter().enumerate().filter(|(number, _)| took_effect[*number]) {
        for (list, found) in &attempt.reads {
            let values = last.get(list).map_or(&[][..], |values| values);
            if values.get(..found.len()) != Some(found) {
                return Err(format!(
                    "{} read in list {list} what it never was: {found:x?}",
                    told(attempt)
                ));
            }
            if let Some(newest) = found.last() {
                order.comes_before(writers[newest], number);
            }
            if let Some(next) = values.get(found.len()) {
                order.comes_before(number, writers[next]);
            }
        }
    }
    for values in last.values() {
        values.windows(2).for_each(|pair| order.comes_before(writers[&pair[0]], writers[&pair[1]]));
    }
    order.add_real_time(history, &took_effect);
    match order.circle() {
        None => Ok(()),
        Some(circle) => {
            let circle: Vec<_> = circle.into_iter().map(|number| told(&history[number])).collect();
            Err(format!(
                "each of these comes before the next, and the last before the first: {}",
                circle.join("; ")
            ))
        }
    }
}

fn told(attempt: &Attempt) -> String {
    let Attempt { began, ended, reads, appends, fate } = attempt;
    let reads: Vec<_> =
        reads.iter().map(|(list, found)| format!("{list} of {}", found.len())).collect();
    format!("{fate:?} {began:?}..{ended:?} read {} appended {appends:x?}", reads.join(", "))
}

/// Which attempts took effect.
fn effects(history: &[Attempt], places: &Places) -> Result<Vec<bool>, String> {
    let mut effects = Vec::new();
    for attempt in history {
        let is_there =
            |(list, value): &(u64, u64)| places.get(value).is_some_and(|(other, _)| other == list);
        let there = attempt.appends.iter().filter(|append| is_there(append)).count();
        let is_whole = there == attempt.appends.len();
        effects.push(match attempt.fate {
            Fate::Committed if !is_whole => {
                return Err(format!("of this, {there} is there: {}", told(attempt)));
            }
            Fate::Refused if there > 0 => {
                return Err(format!("this was refused, and is there: {}", told(attempt)));
            }
            Fate::Unknown if !is_whole && there > 0 => {
                return Err(format!("this is there in part: {}", told(attempt)));
            }
            Fate::Committed => true,
            Fate::Refused => false,
            // If it has only read, nobody was told what.
            Fate::Unknown => there > 0,
        });
    }
    Ok(effects)
}

/// Who comes before whom: attempts by number, and behind those moments in time.
struct Order {
    attempts: usize,
    after: Vec<Vec<usize>>,
}

impl Order {
    fn new(attempts: usize) -> Self {
        Self { attempts, after: vec![Vec::new(); attempts] }
    }

    fn comes_before(&mut self, one: usize, other: usize) {
        if one != other {
            self.after[one].push(other);
        }
    }

    /// Whoever has ended before another one began: by way of the moments at which somebody ended,
    /// so that it is not one step for each two.
    fn add_real_time(&mut self, history: &[Attempt], took_effect: &[bool]) {
        let is_known =
            |number: &usize| took_effect[*number] && history[*number].fate == Fate::Committed;
        let mut ended: Vec<usize> = (0..history.len()).filter(is_known).collect();
        ended.sort_by_key(|number| history[*number].ended);
        let moment = |at: usize| self.attempts + at;
        let mut after = vec![Vec::new(); ended.len()];
        for (at, number) in ended.iter().enumerate() {
            self.after[*number].push(moment(at));
            if at + 1 < ended.len() {
                after[at].push(moment(at + 1));
            }
        }
        for (number, attempt) in
            history.iter().enumerate().filter(|(number, _)| took_effect[*number])
        {
            let before = ended.partition_point(|other| history[*other].ended < attempt.began);
            if before > 0 {
                after[before - 1].push(number);
            }
        }
        self.after.extend(after);
    }

    /// Attempts that come before one another in a circle, if there are any.
    fn circle(&self) -> Option<Vec<usize>> {
        let mut before = vec![0_usize; self.after.len()];
        self.after.iter().flatten().for_each(|next| before[*next] += 1);
        let mut free: Vec<usize> = (0..before.len()).filter(|at| before[*at] == 0).collect();
        while let Some(at) = free.pop() {
            for next in &self.after[at] {
                before[*next] -= 1;
                if before[*next] == 0 {
                    free.push(*next);
                }
            }
        }
        // Whatever is left has somebody left before it: going back from one leads into a circle.
        let left = |at: &usize| before[*at] > 0;
        let mut back = vec![usize::MAX; self.after.len()];
        for at in (0..self.after.len()).filter(left) {
            self.after[at].iter().filter(|next| left(next)).for_each(|next| back[*next] = at);
        }
        let mut at = (0..self.after.len()).find(left)?;
        let mut seen = Vec::new();
        while !seen.contains(&at) {
            seen.push(at);
            at = back[at];
        }
        let begin = seen.iter().position(|other| *other == at)?;
        let circle = seen[begin..].iter().rev().copied();
        Some(circle.filter(|number| *number < self.attempts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reads<'a> = &'a [(u64, &'a [u64])];

    fn attempt(times: (u64, u64), reads: Reads<'_>, appends: &[(u64, u64)], fate: Fate) -> Attempt {
        Attempt {
            began: Duration::from_millis(times.0),
            ended: Duration::from_millis(times.1),
            reads: reads.iter().map(|(list, found)| (*list, found.to_vec())).collect(),
            appends: appends.to_vec(),
            fate,
        }
    }

    fn lists(of: Reads<'_>) -> Lists {
        of.iter().map(|(list, values)| (*list, values.to_vec())).collect()
    }

    #[test]
    fn what_can_be_is_no_violation() {
        let history = [
            attempt((0, 1), &[(1, &[])], &[(1, 10)], Fate::Committed),
            attempt((2, 9), &[(1, &[10])], &[(1, 11), (2, 20)], Fate::Unknown),
            attempt((2, 9), &[(1, &[10, 11])], &[(2, 21)], Fate::Committed),
            attempt((3, 4), &[(1, &[10])], &[], Fate::Committed),
            attempt((3, 4), &[], &[(1, 99)], Fate::Refused),
            attempt((3, 4), &[], &[(1, 98)], Fate::Unknown),
        ];
        assert_eq!(judge(&history, &lists(&[(1, &[10, 11]), (2, &[20, 21])])), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_told() {
        let committed = Fate::Committed;
        let lost = [attempt((0, 1), &[], &[(1, 10)], committed)];
        assert!(judge(&lost, &Lists::new()).is_err(), "lost");
        assert!(judge(&[], &lists(&[(1, &[10])])).is_err(), "of nobody");
        let refused = [attempt((0, 1), &[], &[(1, 10)], Fate::Refused)];
        assert!(judge(&refused, &lists(&[(1, &[10])])).is_err(), "refused, and there");
        let half = [attempt((0, 1), &[], &[(1, 10), (2, 20)], Fate::Unknown)];
        assert!(judge(&half, &lists(&[(1, &[10])])).is_err(), "half of it");
        let stale = [
            attempt((0, 1), &[], &[(1, 10)], committed),
            attempt((2, 3), &[(1, &[])], &[], committed),
        ];
        let told = judge(&stale, &lists(&[(1, &[10])])).unwrap_err();
        assert!(told.contains("before the next"), "a stale read: {told}");
        let skew = [
            attempt((0, 9), &[(1, &[])], &[(2, 20)], committed),
            attempt((0, 9), &[(2, &[])], &[(1, 10)], committed),
        ];
        assert!(judge(&skew, &lists(&[(1, &[10]), (2, &[20])])).is_err(), "write skew");
        let never = [
            attempt((0, 1), &[(1, &[7])], &[], committed),
            attempt((0, 1), &[], &[(1, 10)], committed),
        ];
        assert!(judge(&never, &lists(&[(1, &[10])])).is_err(), "read what never was");
        let lost_update = [
            attempt((0, 9), &[(1, &[])], &[(1, 10)], committed),
            attempt((0, 9), &[(1, &[])], &[(1, 11)], committed),
        ];
        assert!(
            judge(&lost_update, &lists(&[(1, &[10, 11])])).is_err(),
            "both read the empty list"
        );
    }
}
