//! What a test does to the processes of a simulation: crashes, stops, faults, clocks that drift,
//! flipped bits; and what it may look at that a program can't.
//!
//! All of it happens between two steps of the world, never inside one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Simulation;
use super::disk::inode::Unsynced;
use super::faults::{CallKind, FaultPlan};
use super::universe::{Core, Host, Process};
use crate::failure::{IoError, IoErrorKind, IoResult};
use crate::{Env, World};

impl Simulation {
    /// The power of a process's machine fails: its tasks are dropped where they stand, and of what
    /// it had not synced each part is lost, kept or torn, as the seed decides. Its environment is
    /// dead from then on; [`Simulation::process`] (or [`Simulation::restart`]) gives that of its
    /// next life.
    ///
    /// # Panics
    /// If the environment is none of this simulation's.
    pub fn crash(&self, process: &Env) {
        self.crash_with(process, Unsynced::Seeded);
    }

    /// The same, with a say in what becomes of unsynced data.
    pub fn crash_with(&self, process: &Env, unsynced: Unsynced) {
        let host = self.host(process);
        self.universe().end_incarnation(host.process, true);
        let core = &mut *self.universe().lock();
        core.processes[host.process].disk.crash(unsynced, &mut core.random);
    }

    /// The process is killed, and its machine goes on: everything written stays, synced or not.
    pub fn kill(&self, process: &Env) {
        let host = self.host(process);
        self.universe().end_incarnation(host.process, false);
        self.universe().lock().processes[host.process].disk.program_ended();
    }

    /// Stops the process where it stands, as SIGSTOP does: its tasks take no step and its calls
    /// wait, its connections stay. A kill or a crash ends that too.
    pub fn pause(&self, process: &Env) {
        let host = self.host(process);
        self.universe().stop(host.process, true);
    }

    /// A stopped process goes on, with all that has come for it meanwhile.
    pub fn resume(&self, process: &Env) {
        let host = self.host(process);
        self.universe().stop(host.process, false);
    }

    /// From now on the process's clock ([`Env::now`]) gains, or loses, so many of a million parts.
    /// What sleeps already is not concerned. It stays so until this is called again.
    ///
    /// # Panics
    /// If a clock would stand, or go backwards.
    pub fn drift(&self, process: &Env, parts_per_million: i64) {
        assert!(parts_per_million > -1_000_000, "a clock that doesn't go");
        let process = self.host(process).process;
        let core = &mut *self.universe().lock();
        core.note("drift", process as u64, parts_per_million as u64);
        let now = core.now;
        let clock = &mut core.processes[process].clock;
        *clock = clock.at_rate(parts_per_million, now);
    }

    /// The environment of the process's present life, for a test that has one of an earlier.
    pub fn restart(&self, process: &Env) -> Env {
        let name = self.with(process, |process| process.name.clone());
        self.process(&name)
    }

    /// What goes wrong on the process's disk from now on.
    pub fn set_faults(&self, process: &Env, plan: FaultPlan) {
        self.update_faults(process, |faults| *faults = plan);
    }

    /// Changes what goes wrong on the process's disk.
    pub fn update_faults(&self, process: &Env, update: impl FnOnce(&mut FaultPlan)) {
        self.with(process, |process| {
            update(&mut process.plan);
            process.disk.capacity = process.plan.capacity;
        });
    }

    /// Sets the process's wall clock ahead of the others', or behind them, by so many seconds. Its
    /// other clock ([`Env::now`]) goes on as it was, as on a real machine.
    pub fn move_wall_clock(&self, process: &Env, seconds_ahead: i64) {
        self.with(process, |process| process.wall_clock_ahead = seconds_ahead);
    }

    /// Turns one bit of the byte at `offset` of a file over, in whatever state the byte is.
    ///
    /// # Errors
    /// `NotFound` if there is no such byte.
    pub fn flip_bit(&self, process: &Env, path: impl AsRef<Path>, offset: u64) -> IoResult<()> {
        let path = path.as_ref();
        let process = self.host(process).process;
        let core = &mut *self.universe().lock();
        let mask = 1 << core.random.below(8);
        core.note("flip", process as u64, offset);
        let disk = &mut core.processes[process].disk;
        let missing = || {
            let what = format!("byte {offset} of {}", path.display());
            IoError::new(IoErrorKind::NotFound, what)
        };
        let file = disk.file(path).ok_or_else(missing)?;
        if disk.len(file).unwrap_or(0) <= offset {
            return Err(missing());
        }
        disk.flip(file, offset, mask);
        Ok(())
    }

    /// Turns a bit over somewhere in the files of a process, and says where. `None` if there is not
    /// a byte.
    pub fn flip_random_bit(&self, process: &Env) -> Option<(PathBuf, u64)> {
        let files = self.files(process);
        let total = files.iter().map(|(_, len)| len).sum();
        let mut at = self.universe().lock().random.below(total);
        for (path, len) in files {
            if at < len {
                self.flip_bit(process, &path, at).ok()?;
                return Some((path, at));
            }
            at -= len;
        }
        None
    }

    /// All files of a process with their lengths, sorted by path.
    pub fn files(&self, process: &Env) -> Vec<(PathBuf, u64)> {
        self.with(process, |process| process.disk.files())
    }

    /// Whether a crash now would change nothing on the process's disk.
    pub fn is_synced(&self, process: &Env) -> bool {
        self.with(process, |process| process.disk.is_synced())
    }

    /// How many calls of a kind the process has made, over all its lives.
    pub fn call_count(&self, process: &Env, kind: CallKind) -> u64 {
        self.with(process, |process| process.calls[kind as usize])
    }

    fn with<T>(&self, env: &Env, act: impl FnOnce(&mut Process) -> T) -> T {
        let process = self.host(env).process;
        let core: &mut Core = &mut self.universe().lock();
        act(&mut core.processes[process])
    }

    pub(super) fn host<'a>(&self, env: &'a Env) -> &'a Arc<Host> {
        match env.world() {
            World::Simulated(host) if Arc::ptr_eq(&host.universe, self.universe()) => host,
            _ => panic!("the environment belongs to another world than this simulation"),
        }
    }
}
