//! A budget: what somebody has used of his quota, and who waits for more.
//!
//! All whom a quota means share one; of the quota for each everybody has his own. What a request
//! has to keep to, the budgets of whoever asks and those of the tenants whose keys it names, are
//! its [`Dues`].
//!
//! Always: a count goes down again when what was counted has gone, whatever became of the quota
//! meanwhile.

use super::bucket::Bucket;
use super::met::{Id, Met};
use plinth_env::Env;
use plinth_env::reply::{Reply, promise};
use plinth_types::KeyList;
use plinth_types::quotas::{Bounds, Of};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is moved: the first of all that can be bounded.
const MOVED: [Of; 2] = [Of::Read, Of::Write];
/// What is counted: the others.
const COUNTED: [Of; 3] = [Of::Connections, Of::Watches, Of::Snapshots];
/// Of how many requests a reply's usual size is an average, about.
const USUAL: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Whose it is, in words.
    whose: String,
    state: Mutex<State>,
    counts: [AtomicU64; COUNTED.len()],
}

#[derive(Debug)]
struct State {
    bounds: Bounds,
    moved: [Moved; MOVED.len()],
    /// Bytes of requests that wait.
    held: usize,
    /// How large a reply is, usually.
    usual: u64,
    /// Requests of HTTP that wait.
    #[cfg(feature = "series")]
    places: u64,
}

/// Bytes that were read, or written.
#[derive(Default, Debug)]
struct Moved {
    /// `None` where that isn't bounded.
    bucket: Option<Bucket>,
    total: u64,
    /// The second of the clock that passes, what was moved in it, and in the one before.
    second: u64,
    in_it: u64,
    before: u64,
    /// Requests that wait, and since when there are any.
    waiting: u64,
    since: Duration,
}

impl Moved {
    fn count(&mut self, bytes: u64, now: Duration) {
        self.turn_to(now);
        self.total += bytes;
        self.in_it += bytes;
    }

    fn turn_to(&mut self, now: Duration) {
        let second = now.as_secs();
        if second > self.second {
            self.before = if second == self.second + 1 { self.in_it } else { 0 };
            (self.second, self.in_it) = (second, 0);
        }
    }
}

impl Budget {
    pub(super) fn new(whose: String, bounds: &Bounds, now: Duration) -> Arc<Self> {
        let moved = Default::default();
        let state = State {
            bounds: Bounds::default(),
            moved,
            held: 0,
            usual: 0,
            #[cfg(feature = "series")]
            places: 0,
        };
        let budget = Self { whose, state: Mutex::new(state), counts: Default::default() };
        budget.set(bounds, now);
        Arc::new(budget)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whose it is, in words.
    pub(crate) fn whose(&self) -> &str {
        &self.whose
    }

    /// Sets other bounds. What is owed stays owed.
    pub(super) fn set(&self, bounds: &Bounds, now: Duration) {
        let mut state = self.lock();
        state.bounds = *bounds;
        for (of, moved) in MOVED.into_iter().zip(&mut state.moved) {
            match (bounds.get(of), &mut moved.bucket) {
                (Some(rate), Some(bucket)) if bucket.rate() == rate => {}
                (Some(rate), Some(bucket)) => bucket.set_rate(rate, now),
                (Some(rate), none) => *none = Some(Bucket::new(rate, now)),
                (None, bucket) => *bucket = None,
            }
        }
    }

    fn moves(&self, of: Of, bytes: u64, now: Duration) {
        let moved = &mut self.lock().moved[of as usize];
        moved.count(bytes, now);
        if let Some(bucket) = &mut moved.bucket {
            bucket.take(bytes, now);
        }
    }

    /// Has the bucket of what is moved, if that is bounded.
    fn of_bucket(&self, of: Of, work: impl FnOnce(&mut Bucket)) {
        if let Some(bucket) = &mut self.lock().moved[of as usize].bucket {
            work(bucket);
        }
    }

    fn wait(&self, of: Of, now: Duration) -> Option<Duration> {
        self.lock().moved[of as usize].bucket.as_mut()?.wait(now)
    }

    /// Nobody would notice if it were made anew.
    pub(super) fn is_rested(&self, now: Duration) -> bool {
        let mut state = self.lock();
        let full = |moved: &mut Moved| moved.bucket.as_mut().is_none_or(|b| b.is_full(now));
        state.moved.iter_mut().all(full)
            && self.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }

    /// Whether requests wait for it.
    pub(super) fn is_waited_for(&self) -> bool {
        self.lock().moved.iter().any(|moved| moved.waiting > 0)
    }

    /// What the status says of it.
    pub(super) fn status(&self, now: Duration) -> Value {
        let mut state = self.lock();
        let mut told = Map::new();
        told.insert("whose".to_owned(), json!(self.whose));
        let bounds = state.bounds;
        for (of, moved) in MOVED.into_iter().zip(&mut state.moved) {
            moved.turn_to(now);
            let owes = moved.bucket.as_mut().and_then(|bucket| bucket.wait(now));
            let since = (moved.waiting > 0).then(|| now.saturating_sub(moved.since));
            let what = json!({
                "bytes_per_second_max": bounds.get(of),
                "bytes_per_second": moved.before.max(moved.in_it),
                "bytes": moved.total,
                "waiting": moved.waiting,
                "waiting_for_seconds": since.map(|since| since.as_secs_f64()),
                "owes_seconds": owes.unwrap_or_default().as_secs_f64(),
            });
            told.insert(of.name().to_owned(), what);
        }
        for (of, count) in COUNTED.into_iter().zip(&self.counts) {
            let what = json!({ "max": bounds.get(of), "count": count.load(Ordering::Relaxed) });
            told.insert(of.name().to_owned(), what);
        }
        Value::Object(told)
    }
}

/// One of what is counted, for as long as it is there.
#[derive(Debug)]
pub(crate) struct Counted {
    budget: Arc<Budget>,
    of: Of,
}

impl Counted {
    /// Counts one more unless there are as many as may be; `None` then.
    fn enter(budget: &Arc<Budget>, of: Of, is_there: bool) -> Option<Self> {
        let bound = budget.lock().bounds.get(of).filter(|_| !is_there).unwrap_or(u64::MAX);
        let more = |now: u64| (now < bound).then_some(now + 1);
        budget.count(of).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self { budget: budget.clone(), of })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.count(self.of).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    /// Only of what is counted.
    fn count(&self, of: Of) -> &AtomicU64 {
        &self.counts[of as usize - MOVED.len()]
    }
}

/// Budgets of tenants, by the id that their keys begin with.
pub(super) type Tenants = BTreeMap<Id, Arc<Budget>>;

/// Bytes that somebody pays for, and of these those that tenants pay for.
#[derive(Default, Debug)]
pub(crate) struct Bill {
    all: u64,
    tenants: BTreeMap<Id, u64>,
}

/// What a request has to keep to.
#[derive(Debug)]
pub(crate) struct Dues {
    /// Those of whoever asks.
    own: Vec<Arc<Budget>>,
    tenants: Arc<Tenants>,
    /// Those of the tenants whose keys the request names.
    met: Vec<Arc<Budget>>,
    /// Bytes of all requests that wait at this server.
    held: Arc<AtomicUsize>,
}

impl Dues {
    pub(super) fn new(
        own: Vec<Arc<Budget>>,
        tenants: Arc<Tenants>,
        held: &Arc<AtomicUsize>,
    ) -> Self {
        Self { own, tenants, met: Vec::new(), held: held.clone() }
    }

    /// Whether there is nothing to keep to.
    pub(crate) fn is_nothing(&self) -> bool {
        self.own.is_empty() && self.met.is_empty()
    }

    /// Whether there is something to keep to for whoever asks, be it for keys or not.
    #[cfg(feature = "series")]
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// What a request has to keep to that names what `name` does.
    pub(crate) fn naming(
        self: &Arc<Self>,
        name: impl FnOnce(&mut Met<'_, Arc<Budget>>),
    ) -> Arc<Self> {
        if self.tenants.is_empty() {
            return self.clone();
        }
        let mut met = Met::new(&self.tenants);
        name(&mut met);
        let met: Vec<_> = met.all().cloned().collect();
        if met.is_empty() {
            return self.clone();
        }
        let (own, tenants) = (self.own.clone(), self.tenants.clone());
        Arc::new(Self { own, tenants, met, held: self.held.clone() })
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Budget>> {
        self.own.iter().chain(&self.met)
    }

    /// Whether others keep to the very same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.all().count() == other.all().count()
            && self.all().zip(other.all()).all(|(one, two)| Arc::ptr_eq(one, two))
    }

    /// For how long a request that moves something has to wait.
    pub(crate) fn wait(&self, of: Of, now: Duration) -> Option<Duration> {
        self.all().filter_map(|budget| budget.wait(of, now)).max()
    }

    /// So many bytes were moved, of these keys; gives how many that are.
    pub(crate) fn charge<'a>(
        &self,
        of: Of,
        now: Duration,
        moved: impl Iterator<Item = (&'a [u8], usize)>,
    ) -> u64 {
        let bill = self.bill(moved);
        self.pay(of, now, &bill);
        bill.all
    }

    /// What it costs to move so many bytes, of these keys.
    pub(crate) fn bill<'a>(&self, moved: impl Iterator<Item = (&'a [u8], usize)>) -> Bill {
        let mut bill = Bill::default();
        for (key, bytes) in moved {
            let bytes = bytes as u64;
            bill.all += bytes;
            if let Some(id) = key.first_chunk::<8>().filter(|id| self.tenants.contains_key(*id)) {
                *bill.tenants.entry(*id).or_default() += bytes;
            }
        }
        bill
    }

    /// It is moved.
    pub(crate) fn pay(&self, of: Of, now: Duration, bill: &Bill) {
        self.each_share(bill, |budget, bytes| budget.moves(of, bytes, now));
    }

    /// It may be moved any moment: until it is known, others wait as if it were.
    pub(crate) fn reserve(&self, of: Of, bill: &Bill) {
        self.each_share(bill, |budget, bytes| budget.of_bucket(of, |it| it.reserve(bytes)));
    }

    /// It was moved, and paid for, or isn't going to be.
    pub(crate) fn release(&self, of: Of, bill: &Bill) {
        self.each_share(bill, |budget, bytes| budget.of_bucket(of, |it| it.release(bytes)));
    }

    fn each_share(&self, bill: &Bill, mut work: impl FnMut(&Budget, u64)) {
        self.own.iter().for_each(|budget| work(budget, bill.all));
        for (id, bytes) in &bill.tenants {
            if let Some(budget) = self.tenants.get(id) {
                work(budget, *bytes);
            }
        }
    }

    /// Counts one more, also beyond the bound if it `is_there` already.
    ///
    /// # Errors
    /// Whose quota has as many as may be, in words.
    pub(crate) fn enter(&self, of: Of, is_there: bool) -> Result<Vec<Counted>, String> {
        let mut counted = Vec::new();
        for budget in self.all() {
            match Counted::enter(budget, of, is_there) {
                Some(one) => counted.push(one),
                None => {
                    let bound = budget.lock().bounds.get(of).unwrap_or_default();
                    let name = of.name();
                    // Not whose: it may be a rule, or name others.
                    return Err(format!("a quota that is yours, too, is {name}={bound}"));
                }
            }
        }
        Ok(counted)
    }

    /// A request of so many bytes begins to wait: whose quota nobody waited for until now.
    pub(crate) fn begin_waiting(&self, of: Of, bytes: usize, now: Duration) -> Option<&str> {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let mut first = None;
        for budget in self.all() {
            let mut state = budget.lock();
            state.held += bytes;
            let moved = &mut state.moved[of as usize];
            moved.waiting += 1;
            if moved.waiting == 1 {
                moved.since = now;
                if moved.bucket.as_mut().is_some_and(|bucket| bucket.wait(now).is_some()) {
                    first = Some(budget.whose());
                }
            }
        }
        first
    }

    /// One waits no more.
    pub(crate) fn end_waiting(&self, of: Of, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        for budget in self.all() {
            let mut state = budget.lock();
            state.held -= bytes;
            state.moved[of as usize].waiting -= 1;
        }
    }

    /// Takes a place among those of HTTP who wait for the same: whether there is one, of so many
    /// for each quota.
    #[cfg(feature = "series")]
    pub(crate) fn take_place(&self, most: u64) -> bool {
        self.all().for_each(|budget| budget.lock().places += 1);
        let is_there = self.all().all(|budget| budget.lock().places <= most);
        if !is_there {
            self.leave_place();
        }
        is_there
    }

    /// Gives it back.
    #[cfg(feature = "series")]
    pub(crate) fn leave_place(&self) {
        self.all().for_each(|budget| budget.lock().places -= 1);
    }

    /// Bytes of the requests that wait for what this has to keep to, and of all that wait.
    pub(crate) fn held(&self) -> [usize; 2] {
        let own = self.all().map(|budget| budget.lock().held).max().unwrap_or(0);
        [own, self.held.load(Ordering::Relaxed)]
    }

    /// Charges what a read answers, when it does. Until then what its like answered is taken for
    /// it: many may be under way before any of them has answered.
    pub(crate) fn follow<T: Send + 'static>(
        self: &Arc<Self>,
        env: &Env,
        mut answer: Reply<T>,
        charge: impl FnOnce(&Self, Duration, &T) -> u64 + Send + 'static,
    ) -> Reply<T> {
        if let Some(answer) = answer.try_take() {
            if let Ok(answer) = &answer {
                charge(self, env.now(), answer);
            }
            return Reply::ready(answer);
        }
        let (done, reply) = promise();
        let (dues, env) = (self.clone(), env.clone());
        let usual = dues.all().map(|budget| budget.lock().usual).max().unwrap_or(0);
        dues.each_bucket(|bucket| bucket.reserve(usual));
        answer.on_complete(move |answer| {
            if let Ok(answer) = &answer {
                dues.learn(charge(&dues, env.now(), answer));
            }
            dues.each_bucket(|bucket| bucket.release(usual));
            done.send(answer);
        });
        reply
    }

    /// The same where it depends on the keys that were asked for: they are kept only if that takes
    /// a while.
    pub(crate) fn follow_of<T: Send + 'static>(
        self: &Arc<Self>,
        keys: &KeyList,
        env: &Env,
        mut answer: Reply<T>,
        charge: impl FnOnce(&Self, Duration, &KeyList, &T) -> u64 + Send + 'static,
    ) -> Reply<T> {
        if let Some(answer) = answer.try_take() {
            if let Ok(answer) = &answer {
                charge(self, env.now(), keys, answer);
            }
            return Reply::ready(answer);
        }
        let keys = keys.clone();
        self.follow(env, answer, move |dues, now, answer| charge(dues, now, &keys, answer))
    }

    fn each_bucket(&self, work: impl Fn(&mut Bucket)) {
        self.all().for_each(|budget| budget.of_bucket(Of::Read, &work));
    }

    fn learn(&self, bytes: u64) {
        for budget in self.all() {
            let mut state = budget.lock();
            state.usual = (state.usual * (USUAL - 1) + bytes).div_ceil(USUAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(of: Of, amount: u64) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.set(of, Some(amount));
        bounds
    }

    fn dues(own: &[&Arc<Budget>], tenants: &[([u8; 8], &Arc<Budget>)]) -> Arc<Dues> {
        let own = own.iter().map(|budget| (*budget).clone()).collect();
        let tenants = tenants.iter().map(|(id, budget)| (*id, (*budget).clone())).collect();
        Arc::new(Dues::new(own, Arc::new(tenants), &Arc::default()))
    }

    /// A thousand reads that nobody had answered yet once cost nothing, all of them.
    #[test]
    fn what_is_under_way_counts_as_what_its_like_answered() {
        let env = Env::real();
        let budget = Budget::new("me".to_owned(), &bounds(Of::Read, 1_000), Duration::ZERO);
        let dues = dues(&[&budget], &[]);
        let long_ago = Duration::ZERO;
        let read = |len: usize| {
            let (done, reply) = promise::<usize>();
            let reply = dues.follow(&env, reply, |dues, now, len| {
                dues.charge(Of::Read, now, std::iter::once((&b"k"[..], *len)))
            });
            (move || done.send(Ok(len)), reply)
        };
        for _ in 0..30 {
            let (answer, reply) = read(1_500);
            answer();
            assert_eq!(reply.wait(), Ok(1_500));
        }
        let owed = |budget: &Budget| budget.wait(Of::Read, long_ago).unwrap_or_default();
        assert!(owed(&budget) > Duration::from_secs(40), "{:?}", owed(&budget));
        let before = owed(&budget);
        let (answer, reply) = read(10);
        let under_way = owed(&budget) - before;
        assert!(under_way > Duration::from_secs(1), "{under_way:?}");
        answer();
        assert_eq!(reply.wait(), Ok(10));
        let little = before + Duration::from_millis(500);
        assert!(owed(&budget) < little, "it was no large one");
        // One that fails, or is forgotten, costs nothing.
        drop(read(10));
        assert!(owed(&budget) < little);
        assert_eq!(budget.lock().moved[0].total, 45_010);
    }

    #[test]
    fn tenants_pay_for_their_keys_and_whoever_asks_for_all() {
        let [me, app, other] = ["me", "app", "other"]
            .map(|whose| Budget::new(whose.to_owned(), &Bounds::default(), Duration::ZERO));
        let (one, two) = ([0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 2]);
        let dues = dues(&[&me], &[(one, &app), (two, &other)]);
        let key = |id: [u8; 8]| [&id[..], b"k"].concat();
        let (first, second) = (key(one), key(two));
        let moved = [(&first[..], 10), (&second[..], 5), (&first[..], 7), (&b"short"[..], 100)];
        assert_eq!(dues.charge(Of::Write, Duration::ZERO, moved.into_iter()), 122);
        let total = |budget: &Budget| budget.lock().moved[Of::Write as usize].total;
        assert_eq!([&me, &app, &other].map(|budget| total(budget)), [122, 17, 5]);
        let naming = |keys: &[&[u8]]| dues.naming(|met| keys.iter().for_each(|key| met.key(key)));
        let met = naming(&[&second, &first, b"short", &first]);
        assert_eq!(met.all().count(), 3);
        assert!(!met.is_same(&dues) && met.is_same(&naming(&[&first, &second])));
        assert!(Arc::ptr_eq(&naming(&[b"short"]), &dues), "a copy, though nothing is met");
    }

    #[test]
    fn what_is_counted_is_bounded_and_goes_with_what_it_is_for() {
        let now = Duration::ZERO;
        let [tight, wide] =
            [2, 10].map(|most| Budget::new(most.to_string(), &bounds(Of::Watches, most), now));
        let dues = dues(&[&wide, &tight], &[]);
        let mut held: Vec<_> = (0..2).map(|_| dues.enter(Of::Watches, false).unwrap()).collect();
        assert_eq!(
            dues.enter(Of::Watches, false).unwrap_err(),
            "a quota that is yours, too, is watches=2"
        );
        let count = |budget: &Budget| budget.count(Of::Watches).load(Ordering::Relaxed);
        assert_eq!([count(&wide), count(&tight)], [2, 2], "what is refused is counted nowhere");
        held.push(dues.enter(Of::Watches, true).unwrap());
        held.truncate(1);
        assert_eq!([count(&wide), count(&tight)], [1, 1]);
        assert!(!tight.is_rested(now));
        tight.set(&Bounds::default(), now);
        drop(held);
        assert!(tight.is_rested(now) && wide.is_rested(now));
    }

    /// One's requests once took all places there were.
    #[cfg(feature = "series")]
    #[test]
    fn who_takes_all_places_of_his_quota_takes_none_of_others() {
        let [all, one, other] = ["all", "one", "other"]
            .map(|whose| Budget::new(whose.to_owned(), &Bounds::default(), Duration::ZERO));
        let [both, one, other] =
            [dues(&[&all, &one], &[]), dues(&[&one], &[]), dues(&[&other], &[])];
        assert!(one.take_place(2) && both.take_place(2));
        assert!(!both.take_place(2) && !one.take_place(2) && other.take_place(2));
        assert_eq!(all.lock().places, 1, "what isn't there is taken of nobody");
        both.leave_place();
        assert!(one.take_place(2));
        [&one, &one, &other].iter().for_each(|dues| dues.leave_place());
        assert_eq!(all.lock().places, 0);
    }

    #[test]
    fn what_is_told_is_of_the_last_second_and_of_now() {
        let budget = Budget::new("me".to_owned(), &bounds(Of::Read, 1_000), Duration::ZERO);
        let dues = dues(&[&budget], &[]);
        let at = Duration::from_millis;
        let charge = |now| dues.charge(Of::Read, now, std::iter::once((&b"k"[..], 600)));
        let moved: u64 = (0..4).map(|_| charge(at(10_500))).sum();
        assert_eq!(moved, 2_400);
        assert_eq!(dues.begin_waiting(Of::Read, 70, at(10_600)), Some("me"));
        assert_eq!(dues.begin_waiting(Of::Read, 30, at(10_700)), None, "it waits already");
        assert_eq!(dues.held(), [100; 2]);
        let told = budget.status(at(11_500));
        let read = &told["read"];
        assert_eq!((&read["bytes_per_second"], &read["bytes"]), (&json!(2_400), &json!(2_400)));
        assert_eq!((&read["waiting"], &read["waiting_for_seconds"]), (&json!(2), &json!(0.9)));
        dues.end_waiting(Of::Read, 70);
        dues.end_waiting(Of::Read, 30);
        let told = budget.status(at(13_000));
        assert_eq!(told["read"]["bytes_per_second"], 0);
        assert_eq!(told["read"]["waiting_for_seconds"], Value::Null);
        assert_eq!(dues.held(), [0; 2]);
    }
}
