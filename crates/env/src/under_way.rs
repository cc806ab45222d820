//! Calls that change a disk and have not been answered yet.
//!
//! A disk that hangs gives no error: whoever called waits, and nobody else would know why. So each
//! write, each sync and each change of names is noted for as long as it is under way, and who looks
//! after the database can ask for the one that lasts longest ([`Files::silence`]).
//!
//! ```text
//!   slots   [ sync segment-7, since 12.1 s ][ free ][ write table-9, since 14.0 s ]
//! ```
//!
//! What always holds: a slot is taken exactly while its call is under way, also where the call's
//! task is dropped. Reads are not among them: nothing that was promised waits for those, and they
//! are too many.
//!
//! [`Files::silence`]: crate::Files::silence

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::World;

/// A call that the disk has not answered yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Silence {
    /// What it is called: `sync`, `write`, `rename` and the like.
    pub operation: &'static str,
    /// The file or directory that it is about.
    pub path: PathBuf,
    /// For how long it has been under way.
    pub lasts: Duration,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, path, lasts } = self;
        let path = path.display();
        write!(f, "the disk has not answered for {} s ({operation} {path})", lasts.as_secs())
    }
}

/// The calls of an environment that are under way.
pub(crate) struct Calls {
    world: World,
    slots: Mutex<Vec<Option<Call>>>,
}

struct Call {
    operation: &'static str,
    path: Arc<Path>,
    since: Duration,
}

impl Calls {
    pub(crate) fn new(world: World) -> Arc<Self> {
        Arc::new(Self { world, slots: Mutex::default() })
    }

    /// A call begins; it ends when what is given back is dropped.
    pub(crate) fn begin(self: &Arc<Self>, operation: &'static str, path: Arc<Path>) -> UnderWay {
        let call = Call { operation, path, since: self.world.now() };
        let mut slots = self.lock();
        let slot = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[slot] = Some(call);
        drop(slots);
        UnderWay { calls: self.clone(), slot }
    }

    /// The call that has been under way for longest, of those that concern the caller.
    pub(crate) fn longest(
        &self,
        concerns: impl Fn(&'static str, &Path) -> bool,
    ) -> Option<Silence> {
        let now = self.world.now();
        let slots = self.lock();
        let calls = slots.iter().flatten();
        let oldest = calls
            .filter(|call| concerns(call.operation, &call.path))
            .min_by_key(|call| call.since)?;
        Some(Silence {
            operation: oldest.operation,
            path: oldest.path.to_path_buf(),
            lasts: now.saturating_sub(oldest.since),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<Call>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way until this is dropped.
#[must_use = "the call ends when this is dropped"]
pub(crate) struct UnderWay {
    calls: Arc<Calls>,
    slot: usize,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = self.calls.lock()[self.slot].take();
        debug_assert!(ended.is_some(), "a slot is its call's alone");
    }
}

#[cfg(test)]
mod tests {
    use crate::simulated::Simulation;
    use crate::{Env, Open};
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    const PATH: &str = "/db/file";

    fn told(env: &Env) -> Option<(&'static str, String, u64)> {
        let silence = env.files().silence(|_, _| true)?;
        // Tasks begin a moment after they were asked to.
        let seconds = silence.lasts.as_secs_f64().round() as u64;
        Some((silence.operation, silence.path.display().to_string(), seconds))
    }

    #[test]
    fn a_call_is_told_for_as_long_as_the_disk_does_not_answer_it() {
        let sim = Simulation::new(1);
        let env = sim.process("one");
        let file = sim.run_until(async {
            env.files().create_dir_all("/db").await.unwrap();
            env.files().open(PATH, Open::Create).await.unwrap()
        });
        assert_eq!(told(&env), None);
        let hang = |silent: Option<&str>| {
            sim.update_faults(&env, |plan| plan.silent = silent.map(PathBuf::from));
        };
        hang(Some("/db"));
        let (written, synced) = (file.clone(), env.clone());
        drop(env.spawn("write", async move {
            written.write_all_at(0, b"row").await.unwrap();
        }));
        sim.run_for(Duration::from_secs(10));
        drop(env.spawn("sync", async move { synced.files().sync_dir("/db").await.unwrap() }));
        sim.run_for(Duration::from_secs(10));
        assert_eq!(told(&env), Some(("write", PATH.to_owned(), 20)), "the first of both");
        let of_names = |operation: &'static str, _: &Path| operation == "sync directory";
        let mut silence = env.files().silence(of_names).unwrap();
        silence.lasts = Duration::from_millis(10_999);
        assert_eq!(silence.to_string(), "the disk has not answered for 10 s (sync directory /db)");
        // Who shares the files sees the same.
        assert!(env.keeping_private().files().silence(|_, _| true).is_some());
        hang(None);
        sim.run_for(Duration::from_secs(1));
        assert_eq!(told(&env), None, "it has answered both");
        assert_eq!(sim.run_until(file.len()).unwrap(), 3);
        hang(Some("/elsewhere"));
        sim.run_until(file.sync_all()).unwrap();
    }

    #[test]
    fn a_call_that_is_given_up_is_told_no_longer() {
        let sim = Simulation::new(2);
        let env = sim.process("one");
        sim.update_faults(&env, |plan| plan.silent = Some("/db".into()));
        let making = env.clone();
        let mut making = Box::pin(async move { making.files().create_dir_all("/db").await });
        let mut begun = false;
        sim.run_until(std::future::poll_fn(|context| {
            if begun {
                return std::task::Poll::Ready(());
            }
            begun = making.as_mut().poll(context).is_pending();
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }));
        assert!(told(&env).is_some_and(|(operation, ..)| operation == "create directory"));
        drop(making);
        assert_eq!(told(&env), None);
    }
}
