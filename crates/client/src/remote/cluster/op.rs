//! Something that is asked, of one server after the other if need be.
//!
//! What may be asked again is kept as a function; the promise is kept by the first answer that
//! counts. An operation that is not done is seen by the steward, so that none is forgotten.

use super::super::waits::Waits;
use super::super::{RemoteEndpoint, refusal, thread_number};
use super::Cluster;
use super::waiting::{Pending, Place};
use plinth_env::reply::{Listener, Promise, Reply};
use plinth_types::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a server may be silent before another one is asked too.
pub(super) const SILENCE: Duration = Duration::from_millis(250);

/// For how long servers are looked for that are not there and may have what others lack.
const SEARCH: Duration = Duration::from_secs(2);

/// For how long another leader is waited for where the one that there is has a broken disk, and
/// another server where those that are there lack what is asked for. It gives way, or comes back,
/// within seconds, or not soon, and whoever waits is to be told why.
const FAILOVER: Duration = Duration::from_secs(10);

/// Who can answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Whom {
    /// Any server.
    Any,
    /// Any server, and for as long as it takes: a watch.
    AnyForLong,
    /// Any server, and for longer than others, until one has what is asked for: changes, of which
    /// some nodes may lack a part.
    WhoeverHasIt,
    /// The leader; it may be asked again.
    Leader,
    /// The leader; it must not be asked again if it may have heard.
    LeaderOnce,
}

pub(super) type Ask<T> = Box<dyn Fn(&RemoteEndpoint) -> Reply<T> + Send + Sync>;

pub(super) struct Op<T> {
    whom: Whom,
    ask: Ask<T>,
    state: Mutex<State<T>>,
    /// Where it waits, unless it was answered at once.
    place: OnceLock<Place>,
}

struct State<T> {
    promise: Option<Promise<T>>,
    /// Servers that owe an answer, a bit each.
    owing: u64,
    /// Servers that were asked, a bit each.
    tried: u64,
    /// Servers that have what is asked for damaged, or not at all: a bit each.
    lacking: u64,
    /// When somebody was asked first.
    first: Option<Duration>,
    last: Option<Last>,
    /// How a watch is taken back.
    listeners: Vec<Listener<T>>,
}

/// The server that was asked last.
#[derive(Clone)]
struct Last {
    at: usize,
    /// In which term, and when.
    term: u64,
    asked: Duration,
    /// Whether it has said that this waits for a quota.
    waits: Waits,
}

impl Last {
    /// Whether it should have answered by now.
    fn is_silent(&self, cluster: &Cluster, now: Duration) -> bool {
        let links = &cluster.server(self.at).endpoint().core.links;
        now.saturating_sub(self.asked) >= SILENCE
            && !links.iter().any(|link| link.excuses(now, self.waits.is_said()))
    }
}

impl<T: Send + 'static> Op<T> {
    pub(super) fn new(whom: Whom, ask: Ask<T>, mut promise: Promise<T>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            if whom == Whom::AnyForLong {
                let this = this.clone();
                promise.on_cancel(move || {
                    if let Some(op) = this.upgrade() {
                        op.take_back();
                    }
                });
            }
            let (promise, listeners) = (Some(promise), Vec::new());
            let (owing, tried, lacking) = (0, 0, 0);
            let (first, last) = (None, None);
            let state = State { promise, owing, tried, lacking, first, last, listeners };
            Self { whom, ask, state: Mutex::new(state), place: OnceLock::new() }
        })
    }

    /// What a server was asked `before`, and hasn't answered, is asked of others; that one may
    /// answer yet, in `answer`.
    pub(super) fn take_over(
        cluster: &Arc<Cluster>,
        (whom, ask): (Whom, Ask<T>),
        (at, before): (usize, Duration),
        (promise, answer): (Promise<T>, Reply<T>),
    ) {
        let op = Self::new(whom, ask, promise);
        {
            let mut state = op.state();
            (state.owing, state.tried) = (1 << at, 1 << at);
            // In whichever term it was: who leads now is asked, if that is another one.
            let last = Last { at, term: 0, asked: before, waits: Waits::default() };
            (state.first, state.last) = (Some(before), Some(last));
        }
        let (place, _) = cluster.waiting.insert(thread_number(&cluster.env), op.clone());
        let _ = op.place.set(place);
        let weak = Arc::downgrade(cluster);
        answer.on_complete(move |result| {
            if let Some(cluster) = weak.upgrade() {
                op.settle(&cluster, at, None, result);
            }
        });
        cluster.wake.notify();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self) {
        let listeners = std::mem::take(&mut self.state().listeners);
        listeners.into_iter().for_each(Listener::cancel);
    }

    /// Asks for the first time; says whether it is done already.
    pub(super) fn start(self: &Arc<Self>, cluster: &Arc<Cluster>) -> bool {
        if let Some(at) = cluster.choose(self.whom(), 0) {
            self.clone().dispatch(cluster, at);
        }
        self.is_done()
    }

    /// It waits there, unless it has been answered meanwhile. Says whether nobody was asked: then
    /// the steward is to look for somebody.
    pub(super) fn is_left_at(&self, cluster: &Cluster, place: Place) -> bool {
        let _ = self.place.set(place);
        let (is_done, has_nobody) = {
            let state = self.state();
            (state.promise.as_ref().is_none_or(Promise::is_cancelled), state.owing == 0)
        };
        if is_done {
            cluster.waiting.remove(place);
        }
        !is_done && has_nobody
    }

    fn whom(&self) -> Whom {
        match self.whom {
            Whom::Any | Whom::AnyForLong | Whom::WhoeverHasIt => Whom::Any,
            Whom::Leader | Whom::LeaderOnce => Whom::Leader,
        }
    }

    fn dispatch(self: Arc<Self>, cluster: &Arc<Cluster>, at: usize) {
        let (now, waits) = (cluster.env.now(), Waits::default());
        {
            let mut state = self.state();
            state.owing |= 1 << at;
            state.tried |= 1 << at;
            state.first.get_or_insert(now);
            let (term, waits) = (cluster.leader().term, waits.clone());
            state.last = Some(Last { at, term, asked: now, waits });
        }
        let reply = (self.ask)(&cluster.server(at).endpoint().noting(waits.clone()));
        if self.whom == Whom::AnyForLong
            && let Some(listener) = reply.listener()
        {
            self.state().listeners.push(listener);
        }
        let cluster = Arc::downgrade(cluster);
        reply.on_complete(move |result| {
            if let Some(cluster) = cluster.upgrade() {
                // How long somebody waits for his quota says nothing of the server.
                let asked = (!waits.is_said()).then_some(now);
                self.settle(&cluster, at, asked, result);
            }
        });
    }

    /// A server has answered, or can't. `asked`: when it was asked, if that is known.
    fn settle(
        self: Arc<Self>,
        cluster: &Arc<Cluster>,
        at: usize,
        asked: Option<Duration>,
        result: Result<T>,
    ) {
        let server = cluster.server(at);
        let failure = result.as_ref().err();
        let again = failure.is_some_and(|error| self.is_to_be_asked_again(cluster, at, error));
        let lacks_it = failure.is_some_and(|error| self.is_lack(error));
        match &result {
            Err(error) if *error == Error::all_alternatives_failed() => server.lost(None),
            Err(error) if refusal::is_final(error) => server.lost(Some(error)),
            Err(error) if *error == Error::commit_unknown_result() => {}
            // It has waited for something to tell.
            _ if matches!(self.whom, Whom::AnyForLong | Whom::WhoeverHasIt) => server.is_there(),
            _ => match asked {
                Some(asked) => server.answered(cluster.env.now().saturating_sub(asked)),
                None => server.is_there(),
            },
        }
        if again && self.whom() == Whom::Leader {
            cluster.leads_not(at);
        }
        let mut state = self.state();
        state.owing &= !(1 << at);
        state.lacking |= u64::from(lacks_it) << at;
        if again {
            // The steward looks for somebody else.
            drop(state);
            cluster.wake.notify();
            return;
        }
        // Others may have it still: they are of no use any more.
        let promise = state.promise.take();
        state.listeners.clear();
        drop(state);
        if let Some(place) = self.place.get() {
            cluster.waiting.remove(*place);
        }
        if let Some(promise) = promise {
            promise.send(result.map_err(|error| self.in_the_end(cluster, error)));
        }
    }

    /// Whether a server says that it has what is asked for damaged, or not at all.
    fn is_lack(&self, error: &Error) -> bool {
        matches!((error.code(), self.whom), (1522, _) | (1001, Whom::WhoeverHasIt))
    }

    /// What an error means when nobody else is asked: what each member lacks is gone, and what
    /// another one may have is to be asked for again later.
    fn in_the_end(&self, cluster: &Cluster, error: Error) -> Error {
        if (error.code(), self.whom) != (1001, Whom::WhoeverHasIt) {
            return error;
        }
        let detail = error.detail().unwrap_or_default().to_owned();
        match cluster.may_have(self.state().lacking) {
            true => Error::process_behind().with_detail(detail),
            false => Error::version_invalid().with_detail(detail),
        }
    }

    /// Whether an error says nothing about what was asked.
    fn is_to_be_asked_again(&self, cluster: &Cluster, at: usize, error: &Error) -> bool {
        match (error.code(), self.whom) {
            // Not sent; sent to who doesn't lead; refused for good, by this one.
            (1006 | 1037 | 2100 | 2104 | 2107, _) => true,
            // Whoever leads has a broken disk, and has done nothing: another one will lead.
            (1510 | 1521 | 1522, Whom::Leader | Whom::LeaderOnce) => {
                self.age(cluster) < FAILOVER && cluster.has_others(1 << at, false)
            }
            (_, Whom::LeaderOnce) => false,
            // Lost, or stopping.
            (1026 | 1043 | 1100, _) => true,
            // Its disk doesn't give what is read, and those of others may.
            (1510 | 1521, _) => {
                let tried = self.state().tried;
                cluster.has_others(tried, true)
            }
            // What is read is damaged there. Others have rows of their own, and are waited for.
            (1522, _) => {
                let lacking = self.state().lacking | 1 << at;
                cluster.has_others(lacking, false)
            }
            // Others may have it in their logs. Whoever asks is told now and then that it waits.
            (1001, Whom::WhoeverHasIt) => {
                let lacking = self.state().lacking | 1 << at;
                cluster.may_have(lacking) && self.age(cluster) < FAILOVER
            }
            // It lags, and others may not.
            (1009, Whom::Any) => self.state().tried.count_ones() == 1,
            (1009 | 2011, Whom::WhoeverHasIt) => {
                let tried = self.state().tried;
                // One that isn't there at the moment may have it.
                cluster.has_others(tried, self.age(cluster) >= SEARCH)
            }
            _ => false,
        }
    }

    /// All servers that can be asked lack what is asked for: says so, if no other member may have
    /// it, or for long none of them has come back.
    fn give_up_search(&self, cluster: &Cluster, lacking: u64) {
        if !cluster.may_have(lacking) || self.age(cluster) >= FAILOVER {
            let detail = "no server that can be reached has the changes that are asked for";
            let lack = Error::wrong_shard_server().with_detail(detail);
            self.fail(&self.in_the_end(cluster, lack));
        }
    }

    /// How long ago somebody was asked first.
    fn age(&self, cluster: &Cluster) -> Duration {
        let first = self.state().first.unwrap_or_default();
        cluster.env.now().saturating_sub(first)
    }
}

impl<T: Send + 'static> Pending for Op<T> {
    fn is_done(&self) -> bool {
        self.state().promise.as_ref().is_none_or(Promise::is_cancelled)
    }

    fn look(self: Arc<Self>, cluster: &Arc<Cluster>) {
        let (owing, last, tried, lacking) = {
            let state = self.state();
            (state.owing, state.last.clone(), state.tried, state.lacking)
        };
        if owing == 0 {
            if let Some(refusal) = cluster.refusal() {
                return self.fail(&refusal);
            }
            // Those who failed may be asked again when nobody else is there; where it is lacking it
            // stays so.
            let next = cluster.choose(self.whom(), tried);
            let next = next.or_else(|| cluster.choose(self.whom(), lacking));
            if let Some(at) = next {
                self.dispatch(cluster, at);
            } else if lacking != 0 && self.whom == Whom::WhoeverHasIt {
                self.give_up_search(cluster, lacking);
            }
            return;
        }
        let Some(last) = last else { return };
        let Last { at, term, .. } = last;
        match self.whom {
            Whom::Any if last.is_silent(cluster, cluster.env.now()) => {
                cluster.server(at).lost(None);
                if let Some(at) = cluster.choose(Whom::Any, tried) {
                    self.dispatch(cluster, at);
                }
            }
            Whom::Any | Whom::AnyForLong | Whom::WhoeverHasIt => {}
            Whom::Leader | Whom::LeaderOnce => {
                let leader = cluster.leader();
                let Some(next) = leader.at.filter(|next| leader.term > term && *next != at) else {
                    return;
                };
                if self.whom == Whom::Leader {
                    return self.dispatch(cluster, next);
                }
                let detail = "another server leads before the one that had the commit has answered";
                self.fail(&Error::commit_unknown_result().with_detail(detail));
            }
        }
    }

    fn wants_leader(&self, cluster: &Cluster) -> bool {
        let (owing, last) = {
            let state = self.state();
            (state.owing, state.last.clone())
        };
        let is_silent = |last: Last| last.is_silent(cluster, cluster.env.now());
        owing == 0 || self.whom() == Whom::Leader && last.is_none_or(is_silent)
    }

    fn has_nobody(&self) -> bool {
        self.whom() == Whom::Leader && self.state().owing == 0
    }

    fn fail(&self, error: &Error) {
        let promise = self.state().promise.take();
        if let Some(promise) = promise {
            promise.send(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::RemoteOptions;
    use super::super::super::cluster_file::ClusterFile;
    use super::super::super::identity::Identity;
    use super::*;
    use plinth_env::reply::promise;
    use plinth_env::simulated::Simulation;

    /// Two servers, of which the first has been asked, so long ago, by an operation.
    fn with_two<T>(
        whom: Whom,
        (ago, lacking): (Duration, u64),
        look: impl FnOnce(&Arc<Cluster>, &Arc<Op<()>>, Reply<()>) -> T,
    ) -> T {
        let sim = Simulation::new(1);
        let env = sim.process("client");
        sim.run_for(Duration::from_secs(60));
        let file = ClusterFile::parse("a:b@10.9.9.1:1,10.9.9.2:1").unwrap();
        let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
        let cluster = Cluster::connect(&env, &file, &options, &Arc::new(Identity::new(&file)));
        let (promise, reply) = promise();
        let op = Op::<()>::new(whom, Box::new(|_| unreachable!("nobody is asked")), promise);
        {
            let mut state = op.state();
            (state.tried, state.lacking) = (1, lacking);
            state.first = Some(env.now() - ago);
        }
        let found = look(&cluster, &op, reply);
        cluster.close();
        found
    }

    /// Whether what the first of two servers answers, asked so long ago, has others asked.
    fn is_asked_again(whom: Whom, error: &Error, ago: Duration, lacking: u64) -> bool {
        with_two(whom, (ago, lacking), |cluster, op, _| op.is_to_be_asked_again(cluster, 0, error))
    }

    #[test]
    fn another_leader_is_waited_for_where_a_disk_is_broken_and_not_for_ever() {
        for error in [Error::io_error(), Error::io_timeout(), Error::file_corrupt()] {
            for whom in [Whom::Leader, Whom::LeaderOnce] {
                let again = |ago| is_asked_again(whom, &error, ago, 0);
                assert!(again(Duration::ZERO) && again(FAILOVER / 2), "{whom:?}: {error}");
                assert!(!again(FAILOVER), "{whom:?}: {error}");
            }
        }
        let unknown = Error::commit_unknown_result();
        assert!(!is_asked_again(Whom::LeaderOnce, &unknown, Duration::ZERO, 0));
    }

    #[test]
    fn what_is_damaged_on_one_server_is_asked_of_those_where_it_is_not() {
        let damage = Error::file_corrupt();
        for whom in [Whom::Any, Whom::AnyForLong, Whom::WhoeverHasIt] {
            assert!(is_asked_again(whom, &damage, 2 * FAILOVER, 0), "{whom:?}");
            assert!(!is_asked_again(whom, &damage, Duration::ZERO, 0b10), "{whom:?}");
        }
    }

    /// Whoever read a stream of changes was told that they are gone, when the one server that he
    /// could reach for two seconds was made of rows and lacked them.
    #[test]
    fn changes_that_a_server_lacks_are_waited_for_as_long_as_another_may_have_them() {
        let whom = Whom::WhoeverHasIt;
        let lack = Error::wrong_shard_server().with_detail("changes from version 7 on");
        assert!(is_asked_again(whom, &lack, 2 * SEARCH, 0));
        assert!(!is_asked_again(whom, &lack, FAILOVER, 0), "it is told that it waits");
        assert!(!is_asked_again(whom, &lack, Duration::ZERO, 0b10));
        assert!(!is_asked_again(Whom::Any, &lack, Duration::ZERO, 0));
        // That a stream has lost them is said by each.
        let lost = Error::version_invalid();
        assert!(is_asked_again(whom, &lost, Duration::ZERO, 0));
        assert!(!is_asked_again(whom, &lost, SEARCH, 0));
        let told = |lacking, members: &[&str]| {
            with_two(whom, (FAILOVER, lacking), |cluster, op, _| {
                let members = members.iter().map(|address| (*address).to_owned()).collect();
                *cluster.file.members() = members;
                let told = op.in_the_end(cluster, lack.clone());
                (told.code(), told.detail().map(ToOwned::to_owned))
            })
        };
        let of = |code| (code, Some("changes from version 7 on".to_owned()));
        assert_eq!(told(0b01, &[]), of(1037));
        assert_eq!(told(0b01, &["10.9.9.1:1", "10.9.9.2:1"]), of(1037));
        assert_eq!(told(0b11, &[]), of(2011));
        assert_eq!(told(0b01, &["10.9.9.1:1", "10.9.9.3:1"]), of(2011), "the other was removed");
        // Whoever looks after it finds nobody to be asked: it waited without end.
        let looked = |whom, ago, lacking| {
            with_two(whom, (ago, lacking), |cluster, op, mut reply| {
                op.clone().look(cluster);
                reply.try_take().map(|result| result.unwrap_err().code())
            })
        };
        assert_eq!(looked(whom, FAILOVER / 2, 0b01), None);
        assert_eq!(looked(whom, FAILOVER, 0b01), Some(1037));
        assert_eq!(looked(whom, Duration::ZERO, 0b11), Some(2011));
        assert_eq!(looked(whom, FAILOVER, 0), None);
        assert_eq!(looked(Whom::Any, FAILOVER, 0b01), None);
    }
}
