//! Files: what every crate above sees of a disk, real or simulated.
//!
//! All calls are futures. A real one blocks the thread that polls it, which is why tasks that use
//! files have threads of their own; a simulated one takes simulated time, and may stall or fail.
//! Nothing is durable before it is synced: the contents of a file by [`File::sync_data`], the
//! entries of a directory (new, renamed and removed files) by [`Files::sync_dir`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::World;
use crate::disk_room::DiskRoom;
use crate::failure::{IoError, IoErrorKind, IoResult, short_read};
use crate::open::Open;
use crate::real::files::{RealFile, RealFiles};
use crate::real::locks::RealLock;
use crate::simulated::files::{SimulatedFile, SimulatedLock};
use crate::under_way::{Calls, Silence, UnderWay};

/// The files that an environment reaches.
pub struct Files {
    world: World,
    /// Whether what is made is its owner's alone.
    is_private: bool,
    calls: Arc<Calls>,
}

impl Files {
    pub(crate) fn new(world: World) -> Self {
        let calls = Calls::new(world.clone());
        Self { world, is_private: false, calls }
    }

    /// The same files, but those that are made through these are their owner's alone.
    pub(crate) fn private(&self) -> Self {
        Self { world: self.world.clone(), is_private: true, calls: self.calls.clone() }
    }

    /// The call that has been under way for longest of those that change files and that
    /// `concerns` says true of, given its name and its path. `None` if the disk has answered all.
    /// Calls are: `write`, `sync`, `allocate`, `set length of`, `rename`, `remove`,
    /// `remove directory`, `create directory`, `sync directory`, and `open` of a file that is
    /// written.
    pub fn silence(&self, concerns: impl Fn(&'static str, &Path) -> bool) -> Option<Silence> {
        self.calls.longest(concerns)
    }

    fn under_way(&self, operation: &'static str, path: &Path) -> UnderWay {
        self.calls.begin(operation, path.into())
    }

    /// Makes a directory and those above it, durably. No error if it exists.
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> IoResult<()> {
        let _under_way = self.under_way("create directory", path.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::create_dir_all(path.as_ref(), self.is_private),
            World::Simulated(host) => host.create_dir_all(path.as_ref()).await,
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// `NotFound`; `NotReadable` or `NotWritable` without permission; `DiskFull`; `Failed` for
    /// everything else.
    pub async fn open(&self, path: impl AsRef<Path>, open: Open) -> IoResult<File> {
        let path: Arc<Path> = path.as_ref().into();
        let _under_way = open.writes().then(|| self.calls.begin("open", path.clone()));
        let kind = match &self.world {
            World::Real(_) => FileKind::Real(RealFiles::open(&path, open, self.is_private)?),
            World::Simulated(host) => FileKind::Simulated(host.open(&path, open).await?),
        };
        Ok(File { kind, noted: Arc::new(Noted { calls: self.calls.clone(), path }) })
    }

    /// Removes a file. Those who have it open go on using it.
    pub async fn remove(&self, path: impl AsRef<Path>) -> IoResult<()> {
        let _under_way = self.under_way("remove", path.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::remove(path.as_ref()),
            World::Simulated(host) => host.remove(path.as_ref()).await,
        }
    }

    /// Removes a directory with all that is in it. No error if it doesn't exist.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> IoResult<()> {
        let _under_way = self.under_way("remove directory", path.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::remove_dir_all(path.as_ref()),
            World::Simulated(host) => host.remove_dir_all(path.as_ref()).await,
        }
    }

    /// Removes a directory that has nothing in it. Gives false where it has, or there is none.
    pub async fn remove_dir_if_empty(&self, path: impl AsRef<Path>) -> IoResult<bool> {
        let _under_way = self.under_way("remove directory", path.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::remove_dir_if_empty(path.as_ref()),
            World::Simulated(host) => host.remove_dir_if_empty(path.as_ref()).await,
        }
    }

    /// Gives a file another name in one step, replacing what had that name.
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> IoResult<()> {
        let _under_way = self.under_way("rename", from.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::rename(from.as_ref(), to.as_ref()),
            World::Simulated(host) => host.rename(from.as_ref(), to.as_ref()).await,
        }
    }

    /// The names of what is in a directory, sorted. Names that are not UTF-8 are left out.
    pub async fn list(&self, dir: impl AsRef<Path>) -> IoResult<Vec<String>> {
        match &self.world {
            World::Real(_) => RealFiles::list(dir.as_ref()),
            World::Simulated(host) => host.list(dir.as_ref()).await,
        }
    }

    /// Whether there is a file or directory of this name.
    pub async fn exists(&self, path: impl AsRef<Path>) -> IoResult<bool> {
        match &self.world {
            World::Real(_) => RealFiles::exists(path.as_ref()),
            World::Simulated(host) => host.exists(path.as_ref()).await,
        }
    }

    /// Makes the entries of a directory durable: files made, renamed and removed in it.
    pub async fn sync_dir(&self, dir: impl AsRef<Path>) -> IoResult<()> {
        let _under_way = self.under_way("sync directory", dir.as_ref());
        match &self.world {
            World::Real(_) => RealFiles::sync_dir(dir.as_ref()),
            World::Simulated(host) => host.sync_dir(dir.as_ref()).await,
        }
    }

    /// Whether others than its owner may do anything with a file or directory. Never so where there
    /// is nobody else, in a simulation.
    pub async fn is_open_to_others(&self, path: impl AsRef<Path>) -> IoResult<bool> {
        match &self.world {
            World::Real(_) => RealFiles::is_open_to_others(path.as_ref()),
            World::Simulated(_) => Ok(false),
        }
    }

    /// How much room there is on the disk that holds `path`.
    pub async fn room(&self, path: impl AsRef<Path>) -> IoResult<DiskRoom> {
        match &self.world {
            World::Real(_) => RealFiles::room(path.as_ref()),
            World::Simulated(host) => host.room(path.as_ref()).await,
        }
    }

    /// Takes the exclusive lock of a directory or file, for as long as the [`DirLock`] lives. A
    /// file that doesn't exist is made. The lock excludes other processes and other takers in this
    /// one, whatever name they use for it, and ends with the process, however that ends.
    ///
    /// # Errors
    /// `Locked`, naming the path, and where that can be told the process, if somebody
    /// has it.
    pub async fn lock(&self, path: impl AsRef<Path>) -> IoResult<DirLock> {
        match &self.world {
            World::Real(_) => Ok(DirLock {
                kind: LockKind::Real(RealLock::take(path.as_ref(), self.is_private)?),
            }),
            World::Simulated(host) => {
                Ok(DirLock { kind: LockKind::Simulated(host.lock(path.as_ref()).await?) })
            }
        }
    }

    /// A new directory of its own for scratch files, removed when the value is dropped.
    pub async fn temporary_dir(&self, prefix: &str) -> IoResult<TemporaryDir> {
        let path = match &self.world {
            World::Real(_) => RealFiles::temporary_dir(prefix)?,
            World::Simulated(host) => host.temporary_dir(prefix).await?,
        };
        Ok(TemporaryDir { path, world: self.world.clone() })
    }

    /// The whole contents of a file.
    pub async fn read(&self, path: impl AsRef<Path>) -> IoResult<Vec<u8>> {
        self.read_at_most(path, usize::MAX).await
    }

    /// The whole contents of a file that may have so many bytes.
    ///
    /// # Errors
    /// `TooLarge` if it has more; none of it is read then.
    pub async fn read_at_most(&self, path: impl AsRef<Path>, most: usize) -> IoResult<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open(path, Open::Read).await?;
        let len = file.len().await?;
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= most) else {
            let why = format!("{} has {len} bytes, of {most} that it may have", path.display());
            return Err(IoError::new(IoErrorKind::TooLarge, why));
        };
        let mut contents = vec![0; len];
        let mut filled = 0;
        while filled < contents.len() {
            match file.read_at(filled as u64, &mut contents[filled..]).await? {
                0 => break,
                read => filled += read,
            }
        }
        contents.truncate(filled);
        Ok(contents)
    }

    /// Gives the file `path` these contents in one durable step: after a crash it has the old or
    /// the new ones, and once this returns the new ones. Writes a file beside it with `.new`
    /// appended.
    pub async fn replace(&self, path: impl AsRef<Path>, contents: &[u8]) -> IoResult<()> {
        self.replace_by(path.as_ref(), ".new", contents).await
    }

    /// The same for a file that other processes replace too, whose unfinished files must not be the
    /// same one: that beside it has `.new-` and this number appended, which has to be random.
    ///
    /// # Errors
    /// As [`Files::replace`]; of what was written nothing stays.
    pub async fn replace_shared(
        &self,
        path: impl AsRef<Path>,
        random: u64,
        contents: &[u8],
    ) -> IoResult<()> {
        let path = path.as_ref();
        let suffix = format!(".new-{random:016x}");
        let replaced = self.replace_by(path, &suffix, contents).await;
        if replaced.is_err() {
            // It may be gone already; that it can't be removed adds nothing to the error.
            let _ = self.remove(&beside(path, &suffix)).await;
        }
        replaced
    }

    async fn replace_by(&self, path: &Path, suffix: &str, contents: &[u8]) -> IoResult<()> {
        let beside = beside(path, suffix);
        let written = async {
            let file = self.open(&beside, Open::Truncate).await?;
            file.write_all_at(0, contents).await?;
            file.sync_all().await
        };
        if let Err(error) = written.await {
            if error.is_disk_full() {
                // The room it took is wanted; that it can't be removed adds nothing to the error.
                let _ = self.remove(&beside).await;
            }
            return Err(error);
        }
        self.rename(&beside, path).await?;
        self.sync_dir(path.parent().unwrap_or(Path::new("/"))).await
    }
}

/// The file of this name with something appended.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    PathBuf::from(beside)
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

/// An open file. Cheap to clone; all methods take `&self` and may be called from several tasks at
/// once.
#[derive(Clone)]
pub struct File {
    kind: FileKind,
    noted: Arc<Noted>,
}

/// Where an open file's calls are noted, and by which name.
struct Noted {
    calls: Arc<Calls>,
    path: Arc<Path>,
}

#[derive(Clone)]
enum FileKind {
    Real(RealFile),
    Simulated(SimulatedFile),
}

impl File {
    /// Reads at `offset` into `buffer` and says how much: 0 at the end of the file, and maybe less
    /// than the buffer takes anywhere.
    pub async fn read_at(&self, offset: u64, buffer: &mut [u8]) -> IoResult<usize> {
        match &self.kind {
            FileKind::Real(file) => file.read_at(offset, buffer),
            FileKind::Simulated(file) => file.read_at(offset, buffer).await,
        }
    }

    /// Fills `buffer` from `offset` on.
    ///
    /// # Errors
    /// `Failed` if the file ends before.
    pub async fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> IoResult<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(offset + filled as u64, &mut buffer[filled..]).await? {
                0 => return Err(short_read(self.path(), offset, buffer.len(), filled)),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes` at `offset`, making the file longer where needed. On an error, any
    /// part of them may have been written.
    pub async fn write_all_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()> {
        let _under_way = self.under_way("write");
        match &self.kind {
            FileKind::Real(file) => file.write_all_at(offset, bytes),
            FileKind::Simulated(file) => file.write_all_at(offset, bytes).await,
        }
    }

    /// Makes the contents and the length durable; times and the like may stay behind (`fdatasync`).
    ///
    /// After an error nothing is known about any write since the last success, and a later success
    /// says nothing about them either.
    pub async fn sync_data(&self) -> IoResult<()> {
        let _under_way = self.under_way("sync");
        match &self.kind {
            FileKind::Real(file) => file.sync_data(),
            FileKind::Simulated(file) => file.sync().await,
        }
    }

    /// Makes everything about the file durable (`fsync`). Its name is its directory's matter.
    /// For errors see [`File::sync_data`].
    pub async fn sync_all(&self) -> IoResult<()> {
        let _under_way = self.under_way("sync");
        match &self.kind {
            FileKind::Real(file) => file.sync_all(),
            FileKind::Simulated(file) => file.sync().await,
        }
    }

    /// The length in bytes.
    pub async fn len(&self) -> IoResult<u64> {
        match &self.kind {
            FileKind::Real(file) => file.len(),
            FileKind::Simulated(file) => file.len(),
        }
    }

    /// Cuts the file or makes it longer; what is added reads as zeros and takes no room yet.
    pub async fn set_len(&self, len: u64) -> IoResult<()> {
        let _under_way = self.under_way("set length of");
        match &self.kind {
            FileKind::Real(file) => file.set_len(len),
            FileKind::Simulated(file) => file.set_len(len).await,
        }
    }

    /// Makes the file at least `len` bytes long by writing zeros, so that after one
    /// [`File::sync_all`] writes up to there need no room and change nothing but contents.
    /// On an error the file may be longer than before.
    pub async fn allocate(&self, len: u64) -> IoResult<()> {
        const ZEROS: &[u8] = &[0; 256 * 1024];
        if let FileKind::Simulated(file) = &self.kind {
            let _under_way = self.under_way("allocate");
            return file.allocate(len).await;
        }
        let mut at = self.len().await?;
        while at < len {
            let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write_all_at(at, &ZEROS[..part]).await?;
            at += part as u64;
        }
        Ok(())
    }

    /// Asks the system to forget what it keeps of the file in memory, so that reads go to the disk
    /// again. Only what is durable can be forgotten. It is a wish: systems without such a call, and
    /// simulated ones, do nothing.
    pub async fn forget_cached(&self) -> IoResult<()> {
        match &self.kind {
            FileKind::Real(file) => file.forget_cached(),
            FileKind::Simulated(_) => Ok(()),
        }
    }

    /// The name it was opened by.
    pub fn path(&self) -> &Path {
        &self.noted.path
    }

    fn under_way(&self, operation: &'static str) -> UnderWay {
        self.noted.calls.begin(operation, self.noted.path.clone())
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&self.path()).finish()
    }
}

/// A lock that is held until it is dropped. See [`Files::lock`].
#[must_use = "dropping the lock gives it back"]
pub struct DirLock {
    kind: LockKind,
}

impl DirLock {
    /// Whether what was locked still has the name that it was locked by. If it was removed, renamed
    /// or replaced, the lock keeps nobody out any longer.
    pub fn is_in_place(&self) -> bool {
        match &self.kind {
            LockKind::Real(lock) => lock.is_in_place(),
            LockKind::Simulated(lock) => lock.is_in_place(),
        }
    }
}

enum LockKind {
    Real(RealLock),
    Simulated(SimulatedLock),
}

impl fmt::Debug for DirLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirLock")
    }
}

/// A directory that is removed with all that is in it when this is dropped.
pub struct TemporaryDir {
    path: PathBuf,
    world: World,
}

impl TemporaryDir {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        match &self.world {
            // What can't be removed stays: a destructor has nobody to tell.
            World::Real(_) => drop(RealFiles::remove_dir_all(&self.path)),
            World::Simulated(host) => host.remove_dir_now(&self.path),
        }
    }
}

impl fmt::Debug for TemporaryDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TemporaryDir").field(&self.path).finish()
    }
}
