//! The executor: one thread, one clock, every choice by seed.
//!
//! Ready tasks stand in a list; each step takes one of them at random and polls it once. Time moves
//! a little with every step, and jumps to the next timer when nothing is ready. All state is behind
//! one mutex, which no foreign code (futures, wakers, calls, destructors) ever runs under; wakers
//! only touch the ready list, which has a mutex of its own.
//!
//! Tasks belong to an incarnation of a process. A crash ends the incarnation: its tasks and timers
//! are dropped where they stand, and what still holds its handles finds them dead.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::disk::Disk;
use super::faults::FaultPlan;
use super::network::Network;
use super::random::Random;
use super::timers::{Action, TimerId, Timers};
use super::trace::Trace;
use crate::park::Simulating;
use crate::task::{Completion, panic_message};

/// What a step may take, at most, in nanoseconds: enough for clocks to move, too little for anyone
/// to wait for.
const STEP_NANOS: u64 = 1_000;

/// Where simulated wall clocks begin: some time in 2027.
const WALL_CLOCK_START: Duration = Duration::from_secs(1_800_000_000);

type TaskId = u64;
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All there is in one simulation.
pub(crate) struct Universe {
    pub(crate) seed: u64,
    ready: Arc<Ready>,
    core: Mutex<Core>,
}

/// The state behind the mutex.
pub(crate) struct Core {
    pub(crate) now: Duration,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) timers: Timers,
    pub(crate) processes: Vec<Process>,
    pub(crate) network: Network,
    pub(crate) tolerate_panics: bool,
    tasks: BTreeMap<TaskId, Slot>,
    next_task: TaskId,
    /// Set at the end, so that what destructors spawn is dropped too.
    over: bool,
}

/// A machine with its disk; one incarnation of its program at a time.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) incarnation: u32,
    pub(crate) random: Random,
    pub(crate) disk: Disk,
    pub(crate) plan: FaultPlan,
    /// File calls so far, by kind.
    pub(crate) calls: [u64; 5],
    /// By how many seconds its wall clock is fast.
    pub(crate) wall_clock_ahead: i64,
    pub(crate) clock: Clock,
    /// What it would have done since it was stopped, if it is stopped.
    pub(crate) held: Option<Held>,
}

/// What waits for a stopped process to go on.
#[derive(Default)]
pub(crate) struct Held {
    tasks: Vec<TaskId>,
    calls: Vec<(TimerId, Action)>,
}

fn nanos(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A clock that may be fast or slow.
#[derive(Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Of a million parts so many are gained, or lost.
    rate: i64,
    /// When it had that rate first: of the world's time, and of its own.
    since: (Duration, Duration),
}

impl Clock {
    /// What it says at this time of the world.
    pub(crate) fn says(&self, world: Duration) -> Duration {
        let (from, own) = self.since;
        let passed = world.saturating_sub(from).as_nanos() as i128;
        own.saturating_add(nanos(passed * (1_000_000 + i128::from(self.rate)) / 1_000_000))
    }

    /// When it will say this.
    pub(crate) fn when(&self, own: Duration) -> Duration {
        if self.rate == 0 && self.since == (Duration::ZERO, Duration::ZERO) {
            return own;
        }
        let (from, since) = self.since;
        let passed = own.saturating_sub(since).as_nanos() as i128;
        let rate = 1_000_000 + i128::from(self.rate);
        from.saturating_add(nanos((passed * 1_000_000 + rate - 1) / rate))
    }

    /// The same, at another rate from now on.
    pub(crate) fn at_rate(&self, rate: i64, world: Duration) -> Self {
        Self { rate, since: (world, self.says(world)) }
    }
}

impl Process {
    pub(crate) fn new(name: &str, random: Random) -> Self {
        let plan = FaultPlan::default();
        let (name, disk) = (name.to_string(), Disk::new());
        let (clock, held) = (Clock::default(), None);
        Self {
            name,
            incarnation: 0,
            random,
            disk,
            plan,
            calls: [0; 5],
            wall_clock_ahead: 0,
            clock,
            held,
        }
    }
}

/// An incarnation of a process, as its environment sees it.
pub(crate) struct Host {
    pub(crate) universe: Arc<Universe>,
    pub(crate) process: usize,
    pub(crate) incarnation: u32,
}

struct Slot {
    process: usize,
    name: String,
    /// Out while it is being polled.
    future: Option<BoxFuture>,
    completion: Completion,
    waker: Arc<TaskWaker>,
}

type Ready = Mutex<Vec<TaskId>>;

struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            lock(&self.ready).push(self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do next.
enum Step {
    Poll(TaskId, Arc<TaskWaker>, BoxFuture),
    PollMain,
    Fire(Action),
    /// The time given has come.
    Late,
    /// Nothing is ready, and nothing will ever be.
    Rest,
}

/// How a drive ended.
pub(crate) enum Driven<T> {
    Done(T),
    Late,
    Rest,
}

impl Universe {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let core = Core {
            now: Duration::ZERO,
            random: Random::new(seed),
            trace: Trace::default(),
            timers: Timers::default(),
            processes: Vec::new(),
            network: Network::new(),
            tolerate_panics: false,
            tasks: BTreeMap::new(),
            next_task: 0,
            over: false,
        };
        Arc::new(Self { seed, ready: Arc::default(), core: Mutex::new(core) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic of ours under the mutex is a bug of this crate and has failed the test already.
        lock(&self.core)
    }

    /// Runs the world until `future` is ready, `until` has come, or nothing moves any more.
    pub(crate) fn drive<F: Future>(
        &self,
        mut future: Pin<&mut F>,
        until: Duration,
    ) -> Driven<F::Output> {
        let main = {
            let mut core = self.lock();
            core.next_task += 1;
            core.next_task - 1
        };
        let waker = Arc::new(TaskWaker {
            id: main,
            queued: AtomicBool::new(false),
            ready: self.ready.clone(),
        });
        waker.wake_by_ref();
        let as_waker = Waker::from(waker.clone());
        let mut context = Context::from_waker(&as_waker);
        let _simulating = Simulating::enter();
        loop {
            match self.next(main, until) {
                Step::Poll(id, waker, future) => self.poll_task(id, waker, future),
                Step::PollMain => {
                    waker.queued.store(false, Ordering::Release);
                    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                        return Driven::Done(output);
                    }
                }
                Step::Fire(Action::Wake(waker)) => waker.wake(),
                Step::Fire(Action::Call { call, .. }) => call(),
                Step::Late => return Driven::Late,
                Step::Rest => return Driven::Rest,
            }
        }
    }

    /// The next step: timers that are due first, then a ready task, else the next timer.
    fn next(&self, main: TaskId, until: Duration) -> Step {
        let core = &mut *self.lock();
        loop {
            if let Some((id, action)) = core.timers.pop_due(core.now) {
                core.trace.note(core.now, "timer", id.1, id.0.as_nanos() as u64);
                if let Some(action) = core.unless_held(id, action) {
                    return Step::Fire(action);
                }
                continue;
            }
            if core.now >= until {
                return Step::Late;
            }
            if let Some(step) = self.choose(core, main) {
                return step;
            }
            match core.timers.first() {
                Some(at) if at <= until => core.now = core.now.max(at),
                Some(_) => core.now = until,
                None => return Step::Rest,
            }
        }
    }

    /// Takes one of the ready tasks at random.
    fn choose(&self, core: &mut Core, main: TaskId) -> Option<Step> {
        let mut ready = lock(&self.ready);
        let id = loop {
            if ready.is_empty() {
                return None;
            }
            let at = core.random.index(ready.len());
            let id = ready.swap_remove(at);
            // One that has ended meanwhile is no choice, nor is one whose process is stopped.
            if id == main || core.may_run(id) {
                break id;
            }
        };
        drop(ready);
        core.now += Duration::from_nanos(core.random.below(STEP_NANOS));
        if id == main {
            core.trace.note(core.now, "main", id, 0);
            return Some(Step::PollMain);
        }
        let slot = core.tasks.get_mut(&id)?;
        core.trace.note(core.now, "task", id, slot.process as u64);
        let future = slot.future.take()?;
        Some(Step::Poll(id, slot.waker.clone(), future))
    }

    fn poll_task(&self, id: TaskId, task_waker: Arc<TaskWaker>, mut future: BoxFuture) {
        // Cleared before the poll: a wake-up during it queues the task again.
        task_waker.queued.store(false, Ordering::Release);
        let waker = Waker::from(task_waker);
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let mut core = self.lock();
        if let Ok(Poll::Pending) = polled {
            match core.tasks.get_mut(&id) {
                Some(slot) => slot.future = Some(future),
                // Its process crashed under it.
                None => {
                    drop(core);
                    drop(future);
                }
            }
            return;
        }
        let slot = core.tasks.remove(&id);
        let tolerate_panics = core.tolerate_panics;
        let now = core.now;
        core.trace.note(now, "end", id, u64::from(polled.is_ok()));
        drop(core);
        drop(future);
        match polled {
            Ok(_) => {
                if let Some(slot) = slot {
                    slot.completion.finish();
                }
            }
            Err(payload) => {
                if let Some(slot) = slot {
                    slot.completion.fail(format!("it panicked: {}", panic_message(&*payload)));
                }
                if !tolerate_panics {
                    resume_unwind(payload);
                }
            }
        }
    }

    /// The names of the tasks that have not ended.
    pub(crate) fn task_names(&self) -> Vec<String> {
        let core = self.lock();
        let name = |slot: &Slot| format!("{}/{}", core.processes[slot.process].name, slot.name);
        core.tasks.values().map(name).collect()
    }

    /// Ends the incarnation that `process` is in: drops its tasks and timers, and its connections.
    pub(crate) fn end_incarnation(&self, process: usize, power: bool) {
        let mut guard = self.lock();
        let core = &mut *guard;
        core.note(if power { "crash" } else { "kill" }, process as u64, 0);
        let old = core.processes[process].incarnation;
        core.processes[process].incarnation += 1;
        core.processes[process].random = core.random.split();
        let held = core.processes[process].held.take();
        let tasks: Vec<_> = core.tasks.extract_if(.., |_, slot| slot.process == process).collect();
        let calls = core.timers.take_calls_of(process, old);
        let wakers = core.network.process_ended(process, power, core.now, &mut core.random);
        drop(guard);
        drop(tasks);
        drop((calls, held));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Stops a process where it stands, or has it go on with all that has come for it meanwhile.
    pub(crate) fn stop(&self, process: usize, stops: bool) {
        let core = &mut *self.lock();
        core.note(if stops { "stop" } else { "go on" }, process as u64, 0);
        let held = &mut core.processes[process].held;
        if stops {
            held.get_or_insert_default();
            return;
        }
        let Some(Held { tasks, calls }) = held.take() else { return };
        lock(&self.ready).extend(tasks);
        calls.into_iter().for_each(|(id, action)| core.timers.put_back(id, action));
    }

    /// Drops everything that is left. Tasks hold handles to this universe, so it would never go by
    /// itself.
    pub(crate) fn end(&self) {
        loop {
            let mut core = self.lock();
            core.over = true;
            let tasks = std::mem::take(&mut core.tasks);
            let timers = core.timers.take_all();
            drop(core);
            if tasks.is_empty() && timers.is_empty() {
                return;
            }
        }
    }
}

impl Core {
    pub(crate) fn note(&mut self, what: &'static str, of: u64, with: u64) {
        self.trace.note(self.now, what, of, with);
    }

    /// Whether a task is there and its process runs; one of a stopped process waits until that goes
    /// on.
    fn may_run(&mut self, id: TaskId) -> bool {
        let Some(slot) = self.tasks.get(&id) else { return false };
        match &mut self.processes[slot.process].held {
            Some(held) => held.tasks.push(id),
            None => return true,
        }
        false
    }

    /// The action, unless it is one of a stopped process, which waits until that goes on.
    fn unless_held(&mut self, id: TimerId, action: Action) -> Option<Action> {
        let Action::Call { process, .. } = &action else { return Some(action) };
        match &mut self.processes[*process].held {
            Some(held) => held.calls.push((id, action)),
            None => return Some(action),
        }
        None
    }
}

impl Host {
    /// Whether this incarnation still runs.
    pub(crate) fn is_alive(&self, core: &Core) -> bool {
        core.processes[self.process].incarnation == self.incarnation && !core.over
    }

    /// What the process's clock says.
    pub(crate) fn now(&self) -> Duration {
        let core = self.universe.lock();
        core.processes[self.process].clock.says(core.now)
    }

    /// When, of the world's time, the process's clock will say this.
    pub(crate) fn when(&self, own: Duration) -> Duration {
        self.universe.lock().processes[self.process].clock.when(own)
    }

    pub(crate) fn wall_clock(&self) -> Duration {
        let core = self.universe.lock();
        let ahead = core.processes[self.process].wall_clock_ahead;
        let (now, by) = (WALL_CLOCK_START + core.now, Duration::from_secs(ahead.unsigned_abs()));
        if ahead < 0 { now.saturating_sub(by) } else { now.saturating_add(by) }
    }

    pub(crate) fn fill_random(&self, bytes: &mut [u8]) {
        self.universe.lock().processes[self.process].random.fill(bytes);
    }

    pub(crate) fn spawn(
        &self,
        completion: Completion,
        name: &str,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let mut guard = self.universe.lock();
        let core = &mut *guard;
        if !self.is_alive(core) {
            drop(guard);
            return completion.fail("its process has crashed".to_string());
        }
        let id = core.next_task;
        core.next_task += 1;
        core.note("spawn", id, self.process as u64);
        let waker = Arc::new(TaskWaker {
            id,
            queued: AtomicBool::new(false),
            ready: self.universe.ready.clone(),
        });
        let slot = Slot {
            process: self.process,
            name: name.to_string(),
            future: Some(Box::pin(future)),
            completion,
            waker: waker.clone(),
        };
        core.tasks.insert(id, slot);
        drop(guard);
        waker.wake_by_ref();
    }
}
