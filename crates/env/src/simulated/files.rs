//! File calls of the simulated world: time, chance and the trace around what the disk does.
//!
//! A call takes effect at its beginning or at its end, by chance, and takes time between; a task
//! that is dropped meanwhile leaves a call behind that has happened or has not. A sync covers what
//! was written before it began, and is done when its time has passed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::disk::Disk;
use super::faults::CallKind;
use super::random::Random;
use super::universe::{Core, Host};
use super::waits::SimulatedSleep;
use crate::disk_room::DiskRoom;
use crate::failure::{IoError, IoErrorKind, IoResult, file_error, lock_taken};
use crate::open::Open;

/// How often a call looks whether a disk that was silent answers.
const LOOK: Duration = Duration::from_millis(10);

/// How one call goes.
struct Course {
    takes: Duration,
    fails: bool,
    /// Whether it takes effect at its beginning.
    early: bool,
}

/// What a call acts on.
struct Acting<'a> {
    disk: &'a mut Disk,
    random: &'a mut Random,
    fails: bool,
}

fn injected() -> io::Error {
    io::Error::other("a simulated fault")
}

impl Acting<'_> {
    /// For calls that fail without having done anything.
    fn nothing_if_failing(&self) -> io::Result<()> {
        if self.fails { Err(injected()) } else { Ok(()) }
    }

    /// For calls that may or may not have happened when they fail.
    fn perhaps<T>(self, act: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        if !self.fails {
            return act(self.disk);
        }
        if self.random.chance(0.5) {
            // Whatever it would have said, it says that it failed.
            let _ = act(self.disk);
        }
        Err(injected())
    }
}

/// What a call is called, in errors and in the trace, and what it is about.
struct About<'a> {
    kind: CallKind,
    operation: &'static str,
    path: &'a Path,
    /// Offset, length or the like.
    with: u64,
}

impl About<'_> {
    /// Whether it changes a disk.
    fn changes(&self) -> bool {
        matches!(self.kind, CallKind::Write | CallKind::Sync | CallKind::Rename)
    }

    fn failed(&self, error: io::Error) -> IoError {
        let writing = !matches!(self.kind, CallKind::Read | CallKind::Open);
        file_error(self.operation, self.path, error, writing)
    }
}

impl Host {
    fn dead() -> IoError {
        IoError::new(IoErrorKind::Failed, "the process has crashed")
    }

    /// Draws how a call goes.
    fn begin(&self, core: &mut Core, about: &About<'_>, bytes: &[u8]) -> IoResult<Course> {
        if !self.is_alive(core) {
            return Err(Self::dead());
        }
        core.trace.fold_bytes(about.path.as_os_str().as_encoded_bytes());
        core.trace.fold_bytes(bytes);
        core.note(about.operation, self.process as u64, about.with);
        let (random, process) = (&mut core.random, &mut core.processes[self.process]);
        process.calls[about.kind as usize] += 1;
        let faults = process.plan.of(about.kind);
        let between = |random: &mut Random, from: Duration, to: Duration| {
            Duration::from_nanos(random.in_range(from.as_nanos() as u64..to.as_nanos() as u64 + 1))
        };
        let mut takes = between(random, faults.latency_min, faults.latency_max);
        if random.chance(faults.stall) {
            takes += between(random, Duration::ZERO, faults.stall_max);
        }
        // A call of no time would be no scheduling point.
        let takes = takes.max(Duration::from_nanos(1));
        Ok(Course { takes, fails: random.chance(faults.fail), early: random.chance(0.5) })
    }

    fn act<T>(
        &self,
        core: &mut Core,
        course: &Course,
        about: &About<'_>,
        act: impl FnOnce(Acting<'_>) -> io::Result<T>,
    ) -> IoResult<T> {
        if !self.is_alive(core) {
            return Err(Self::dead());
        }
        let disk = &mut core.processes[self.process].disk;
        let acted = act(Acting { disk, random: &mut core.random, fails: course.fails });
        core.note("acted", self.process as u64, u64::from(acted.is_ok()));
        acted.map_err(|error| about.failed(error))
    }

    /// Waits until a call has taken its time, and the disk answers it.
    async fn answered(self: &Arc<Self>, mut wake_at: Duration, about: &About<'_>) {
        loop {
            SimulatedSleep::new(self.clone(), wake_at).await;
            let core = &*self.universe.lock();
            let plan = &core.processes[self.process].plan;
            let silent = plan.silent.as_ref().filter(|_| about.changes());
            if !silent.is_some_and(|silent| about.path.starts_with(silent)) {
                return;
            }
            wake_at = core.now + LOOK;
        }
    }

    /// One call: it takes its time, and acts at its beginning or its end.
    async fn call<T>(
        self: &Arc<Self>,
        about: About<'_>,
        bytes: &[u8],
        act: impl FnOnce(Acting<'_>) -> io::Result<T>,
    ) -> IoResult<T> {
        let (course, wake_at, early) = {
            let core = &mut *self.universe.lock();
            let course = self.begin(core, &about, bytes)?;
            let wake_at = core.now + course.takes;
            if course.early {
                let acted = self.act(core, &course, &about, act);
                (course, wake_at, Ok(acted))
            } else {
                (course, wake_at, Err(act))
            }
        };
        self.answered(wake_at, &about).await;
        match early {
            Ok(acted) => acted,
            Err(act) => self.act(&mut self.universe.lock(), &course, &about, act),
        }
    }

    /// One sync: what it covers is settled when it begins, and durable when it ends.
    async fn sync<P: Copy>(
        self: &Arc<Self>,
        about: About<'_>,
        point: impl FnOnce(&mut Disk) -> io::Result<P>,
        act: impl FnOnce(Acting<'_>, P) -> io::Result<()>,
    ) -> IoResult<()> {
        let (course, wake_at, point, skipped) = {
            let core = &mut *self.universe.lock();
            let course = self.begin(core, &about, &[])?;
            let process = &mut core.processes[self.process];
            let point = point(&mut process.disk).map_err(|error| about.failed(error))?;
            (course.fails, core.now + course.takes, point, process.plan.skip_sync)
        };
        self.answered(wake_at, &about).await;
        if skipped {
            return Ok(());
        }
        let course = Course { takes: Duration::ZERO, fails: course, early: false };
        self.act(&mut self.universe.lock(), &course, &about, |acting| act(acting, point))
    }

    pub(crate) async fn create_dir_all(self: &Arc<Self>, path: &Path) -> IoResult<()> {
        let about = About { kind: CallKind::Rename, operation: "create directory", path, with: 0 };
        self.call(about, &[], |acting| acting.perhaps(|disk| disk.create_dir_all(path))).await
    }

    pub(crate) async fn open(self: &Arc<Self>, path: &Path, open: Open) -> IoResult<SimulatedFile> {
        let about = About { kind: CallKind::Open, operation: "open", path, with: open as u64 };
        // The handle is made with the file, so that a task dropped meanwhile closes it again.
        let opened = self.call(about, &[], |acting| {
            acting.nothing_if_failing()?;
            let file = acting.disk.open(path, open)?;
            let handle = Handle {
                host: self.clone(),
                file,
                path: path.to_path_buf(),
                writes: open.writes(),
            };
            Ok(SimulatedFile { handle: Arc::new(handle) })
        });
        opened.await
    }

    pub(crate) async fn remove(self: &Arc<Self>, path: &Path) -> IoResult<()> {
        let about = About { kind: CallKind::Rename, operation: "remove", path, with: 0 };
        self.call(about, &[], |acting| acting.perhaps(|disk| disk.remove(path))).await
    }

    pub(crate) async fn remove_dir_all(self: &Arc<Self>, path: &Path) -> IoResult<()> {
        let about = About { kind: CallKind::Rename, operation: "remove directory", path, with: 0 };
        self.call(about, &[], |acting| acting.perhaps(|disk| disk.remove_dir_all(path))).await
    }

    pub(crate) async fn remove_dir_if_empty(self: &Arc<Self>, path: &Path) -> IoResult<bool> {
        let about = About { kind: CallKind::Rename, operation: "remove directory", path, with: 0 };
        self.call(about, &[], |acting| acting.perhaps(|disk| disk.remove_dir_if_empty(path))).await
    }

    pub(crate) async fn rename(self: &Arc<Self>, from: &Path, to: &Path) -> IoResult<()> {
        let about = About { kind: CallKind::Rename, operation: "rename", path: from, with: 0 };
        let bytes = to.as_os_str().as_encoded_bytes();
        self.call(about, bytes, |acting| acting.perhaps(|disk| disk.rename(from, to))).await
    }

    pub(crate) async fn list(self: &Arc<Self>, dir: &Path) -> IoResult<Vec<String>> {
        let about = About { kind: CallKind::Open, operation: "list", path: dir, with: 0 };
        let list =
            |acting: Acting<'_>| acting.nothing_if_failing().and_then(|()| acting.disk.list(dir));
        self.call(about, &[], list).await
    }

    pub(crate) async fn exists(self: &Arc<Self>, path: &Path) -> IoResult<bool> {
        let about = About { kind: CallKind::Open, operation: "look for", path, with: 0 };
        let look = |acting: Acting<'_>| {
            acting.nothing_if_failing().and_then(|()| acting.disk.exists(path))
        };
        self.call(about, &[], look).await
    }

    pub(crate) async fn sync_dir(self: &Arc<Self>, dir: &Path) -> IoResult<()> {
        let about = About { kind: CallKind::Sync, operation: "sync directory", path: dir, with: 0 };
        let act = |acting: Acting<'_>, point| {
            acting.perhaps(|disk| {
                disk.dir_synced(point);
                Ok(())
            })
        };
        self.sync(about, |disk| disk.dir_sync_point(dir), act).await
    }

    pub(crate) async fn room(self: &Arc<Self>, path: &Path) -> IoResult<DiskRoom> {
        let about = About { kind: CallKind::Open, operation: "free space of", path, with: 0 };
        let look = |acting: Acting<'_>| acting.nothing_if_failing().map(|()| acting.disk.room());
        self.call(about, &[], look).await
    }

    pub(crate) async fn lock(self: &Arc<Self>, path: &Path) -> IoResult<SimulatedLock> {
        let about = About { kind: CallKind::Open, operation: "lock", path, with: 0 };
        let lock = |acting: Acting<'_>| {
            acting.nothing_if_failing()?;
            let taken = acting.disk.lock(path)?;
            let file = acting.disk.file(path);
            Ok(taken.then(|| SimulatedLock { host: self.clone(), path: path.to_path_buf(), file }))
        };
        self.call(about, &[], lock).await?.ok_or_else(|| lock_taken(path, None))
    }

    pub(crate) async fn temporary_dir(self: &Arc<Self>, prefix: &str) -> IoResult<PathBuf> {
        let mut random = [0; 8];
        self.fill_random(&mut random);
        let path = Path::new("/tmp").join(format!("{prefix}-{:016x}", u64::from_le_bytes(random)));
        self.create_dir_all(&path).await?;
        Ok(path)
    }

    /// Removes a directory at once: what a destructor can do.
    pub(crate) fn remove_dir_now(&self, path: &Path) {
        let core = &mut *self.universe.lock();
        if self.is_alive(core) {
            core.note("remove directory", self.process as u64, 0);
            // What can't be removed stays: a destructor has nobody to tell.
            let _ = core.processes[self.process].disk.remove_dir_all(path);
        }
    }
}

/// An open file.
#[derive(Clone)]
pub(crate) struct SimulatedFile {
    handle: Arc<Handle>,
}

struct Handle {
    host: Arc<Host>,
    file: u64,
    path: PathBuf,
    writes: bool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut core = self.host.universe.lock();
        if self.host.is_alive(&core) {
            core.processes[self.host.process].disk.close(self.file);
        }
    }
}

impl SimulatedFile {
    fn about(&self, kind: CallKind, operation: &'static str, with: u64) -> About<'_> {
        About { kind, operation, path: &self.handle.path, with }
    }

    fn writable(&self, about: &About<'_>) -> IoResult<()> {
        match self.handle.writes {
            true => Ok(()),
            // What the system says of a write to a file opened for reading.
            false => Err(about.failed(io::Error::other("the file was opened for reading"))),
        }
    }

    pub(crate) async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> IoResult<usize> {
        let (host, file) = (&self.handle.host, self.handle.file);
        let flip = host.universe.lock().processes[host.process].plan.flip_on_read;
        let read = |acting: Acting<'_>| {
            acting.nothing_if_failing()?;
            let stored = acting.disk.len(file)?.saturating_sub(offset).min(buffer.len() as u64);
            if stored > 0 && acting.random.chance(flip) {
                let mask = 1 << acting.random.below(8);
                acting.disk.flip(file, offset + acting.random.below(stored), mask);
            }
            acting.disk.read(file, offset, buffer)
        };
        host.call(self.about(CallKind::Read, "read", offset), &[], read).await
    }

    pub(crate) async fn write_all_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        let file = self.handle.file;
        let about = self.about(CallKind::Write, "write", offset);
        self.writable(&about)?;
        let write = |acting: Acting<'_>| {
            if acting.fails {
                let part = acting.random.index(bytes.len() + 1);
                acting.disk.write(file, offset, &bytes[..part])?;
                return Err(injected());
            }
            acting.disk.write(file, offset, bytes)
        };
        self.handle.host.call(about, bytes, write).await
    }

    pub(crate) async fn allocate(&self, len: u64) -> IoResult<()> {
        let file = self.handle.file;
        let about = self.about(CallKind::Write, "allocate", len);
        self.writable(&about)?;
        let allocate = |acting: Acting<'_>| acting.perhaps(|disk| disk.allocate(file, len));
        self.handle.host.call(about, &[], allocate).await
    }

    pub(crate) async fn set_len(&self, len: u64) -> IoResult<()> {
        let file = self.handle.file;
        let about = self.about(CallKind::Write, "set length of", len);
        self.writable(&about)?;
        let set = |acting: Acting<'_>| acting.perhaps(|disk| disk.set_len(file, len));
        self.handle.host.call(about, &[], set).await
    }

    pub(crate) async fn sync(&self) -> IoResult<()> {
        let file = self.handle.file;
        let act = |acting: Acting<'_>, upto| {
            if acting.fails {
                acting.disk.sync_failed(file, upto, acting.random);
                return Err(injected());
            }
            acting.disk.synced(file, upto)
        };
        let about = self.about(CallKind::Sync, "sync", file);
        self.handle.host.sync(about, |disk| disk.sync_point(file), act).await
    }

    pub(crate) fn len(&self) -> IoResult<u64> {
        let host = &self.handle.host;
        let mut core = host.universe.lock();
        if !host.is_alive(&core) {
            return Err(Host::dead());
        }
        let len = core.processes[host.process].disk.len(self.handle.file);
        len.map_err(|error| self.about(CallKind::Read, "get length of", 0).failed(error))
    }
}

/// A lock that is held.
pub(crate) struct SimulatedLock {
    host: Arc<Host>,
    path: PathBuf,
    /// `None` for a directory.
    file: Option<u64>,
}

impl SimulatedLock {
    pub(crate) fn is_in_place(&self) -> bool {
        let core = self.host.universe.lock();
        core.processes[self.host.process].disk.file(&self.path) == self.file
    }
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut core = self.host.universe.lock();
        if self.host.is_alive(&core) {
            core.processes[self.host.process].disk.unlock(&self.path);
        }
    }
}
