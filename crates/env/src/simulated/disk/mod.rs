//! A simulated disk: directories, files, room, locks; and what a crash leaves of them.
//!
//! Pure state: nothing here waits, fails by chance or knows a clock (`files.rs` does that). All
//! methods act at once and say what a file system would say.

pub(crate) mod contents;
pub(crate) mod inode;
pub(crate) mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::random::Random;
use crate::disk_room::DiskRoom;
use crate::open::Open;
use contents::PAGE;
use inode::{Inode, Unsynced};
use names::{Names, Node};

/// The room of a disk that nobody has given a size.
const PLENTY: u64 = 1 << 40;

pub(crate) struct Disk {
    names: Names,
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    locks: BTreeSet<PathBuf>,
    /// Bytes, in whole pages.
    pub(crate) capacity: Option<u64>,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk {
    pub(crate) fn new() -> Self {
        let mut names = Names::new();
        names.create_dirs(Path::new("/tmp")).expect("an empty disk takes a directory");
        Self {
            names,
            inodes: BTreeMap::new(),
            next_inode: 0,
            locks: BTreeSet::new(),
            capacity: None,
        }
    }

    pub(crate) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        self.names.create_dirs(path)
    }

    /// Opens a file and gives its number.
    pub(crate) fn open(&mut self, path: &Path, open: Open) -> io::Result<u64> {
        let found = self.names.find(path)?;
        let file = match (found, open) {
            (Some(Node::Dir(_)), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Node::File(_)), Open::CreateNew | Open::CreatePrivate) => {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            (None, Open::Read | Open::Write) => return Err(not_found()),
            (Some(Node::File(file)), _) => file,
            (None, _) => {
                let entry = self.names.entry(path)?;
                let file = self.next_inode;
                self.next_inode += 1;
                self.names.link(entry, Node::File(file));
                self.inodes.insert(file, Inode::new());
                file
            }
        };
        let inode = self.inode(file)?;
        inode.opened += 1;
        if open == Open::Truncate {
            inode.set_len(0);
        }
        Ok(file)
    }

    pub(crate) fn close(&mut self, file: u64) {
        if let Some(inode) = self.inodes.get_mut(&file) {
            inode.opened -= 1;
            if inode.opened == 0 && inode.links == 0 {
                self.forget_files();
            }
        }
    }

    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        match self.names.find(path)? {
            Some(Node::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(not_found()),
            Some(node) => {
                let entry = self.names.entry(path)?;
                self.names.unlink(entry, node);
                self.count_links();
                Ok(())
            }
        }
    }

    pub(crate) fn remove_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let Some(Node::Dir(dir)) = self.names.find(path)? else { return Ok(()) };
        for (name, node) in self.names.list(dir) {
            match node {
                Node::Dir(_) => self.remove_dir_all(&path.join(name))?,
                Node::File(_) => self.remove(&path.join(name))?,
            }
        }
        let entry = self.names.entry(path)?;
        self.names.unlink(entry, Node::Dir(dir));
        Ok(())
    }

    pub(crate) fn remove_dir_if_empty(&mut self, path: &Path) -> io::Result<bool> {
        match self.names.find(path)? {
            None => Ok(false),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            Some(Node::Dir(dir)) if !self.names.list(dir).is_empty() => Ok(false),
            Some(Node::Dir(_)) => self.remove_dir_all(path).map(|()| true),
        }
    }

    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.names.find(from)?.ok_or_else(not_found)?;
        let (from, target) = (self.names.entry(from)?, self.names.entry(to)?);
        match (node, self.names.find(to)?) {
            (Node::File(_), Some(Node::Dir(_))) => return Err(io::ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(dir))) if !self.names.list(dir).is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        if from != target {
            self.names.rename(from, target, node);
            self.count_links();
        }
        Ok(())
    }

    pub(crate) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = self.names.dir(dir)?;
        Ok(self.names.list(dir).into_iter().map(|(name, _)| name).collect())
    }

    pub(crate) fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.names.find(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
            found => Ok(found?.is_some()),
        }
    }

    /// What a sync of a directory that begins now covers.
    pub(crate) fn dir_sync_point(&self, dir: &Path) -> io::Result<(u64, u64)> {
        Ok((self.names.dir(dir)?, self.names.sync_point()))
    }

    pub(crate) fn dir_synced(&mut self, (dir, upto): (u64, u64)) {
        self.names.synced(dir, upto);
        self.forget_files();
    }

    /// Takes a lock; false if it is taken. A file that doesn't exist is made.
    pub(crate) fn lock(&mut self, path: &Path) -> io::Result<bool> {
        if self.names.find(path)?.is_none() {
            let file = self.open(path, Open::Create)?;
            self.close(file);
        }
        Ok(self.locks.insert(path.to_path_buf()))
    }

    pub(crate) fn unlock(&mut self, path: &Path) {
        self.locks.remove(path);
    }

    pub(crate) fn read(&mut self, file: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.inode(file)?.read(offset, buffer))
    }

    /// Writes as much as there is room for.
    pub(crate) fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let fits = self.fitting(file, offset, bytes.len() as u64)?;
        self.inode(file)?.write(offset, &bytes[..fits as usize]);
        full_unless(fits == bytes.len() as u64)
    }

    /// Writes zeros from the end of the file to `len`, as far as there is room.
    pub(crate) fn allocate(&mut self, file: u64, len: u64) -> io::Result<()> {
        let begin = self.inode(file)?.len();
        let wanted = len.saturating_sub(begin);
        let fits = self.fitting(file, begin, wanted)?;
        self.inode(file)?.write_zeros(begin, fits);
        full_unless(fits == wanted)
    }

    pub(crate) fn set_len(&mut self, file: u64, len: u64) -> io::Result<()> {
        self.inode(file)?.set_len(len);
        Ok(())
    }

    pub(crate) fn len(&mut self, file: u64) -> io::Result<u64> {
        Ok(self.inode(file)?.len())
    }

    pub(crate) fn sync_point(&mut self, file: u64) -> io::Result<u64> {
        Ok(self.inode(file)?.sync_point())
    }

    pub(crate) fn synced(&mut self, file: u64, upto: u64) -> io::Result<()> {
        self.inode(file)?.synced(upto);
        Ok(())
    }

    pub(crate) fn sync_failed(&mut self, file: u64, upto: u64, random: &mut Random) {
        if let Ok(inode) = self.inode(file) {
            inode.sync_failed(upto, random);
        }
    }

    /// How much can still be written.
    pub(crate) fn free(&self) -> u64 {
        let used = self.inodes.values().filter(|inode| inode.links > 0 || inode.opened > 0);
        let used = used.map(Inode::pages).sum::<u64>() * PAGE as u64;
        self.capacity.unwrap_or(PLENTY).saturating_sub(used)
    }

    /// The same, and how much there is in all.
    pub(crate) fn room(&self) -> DiskRoom {
        DiskRoom { free: self.free(), size: self.capacity.unwrap_or(PLENTY) }
    }

    /// How many of `len` bytes at `offset` there is room for.
    fn fitting(&mut self, file: u64, offset: u64, len: u64) -> io::Result<u64> {
        let missing = self.inode(file)?.pages_missing(offset, len);
        // Counting what is used is the slow part, and most disks have no bounds.
        if missing == 0 || self.capacity.is_none() || missing * PAGE as u64 <= self.free() {
            return Ok(len);
        }
        let room = self.free() / PAGE as u64;
        let inode = self.inode(file)?;
        let mut fits = 0;
        while fits < len {
            let next = (fits + PAGE as u64 - (offset + fits) % PAGE as u64).min(len);
            if inode.pages_missing(offset, next) > room {
                break;
            }
            fits = next;
        }
        Ok(fits)
    }

    /// Turns one bit of a file over.
    pub(crate) fn flip(&mut self, file: u64, offset: u64, mask: u8) {
        if let Ok(inode) = self.inode(file) {
            inode.flip(offset, mask);
        }
    }

    /// The file at a path.
    pub(crate) fn file(&self, path: &Path) -> Option<u64> {
        match self.names.find(path) {
            Ok(Some(Node::File(file))) => Some(file),
            _ => None,
        }
    }

    /// All files with their lengths.
    pub(crate) fn files(&self) -> Vec<(PathBuf, u64)> {
        let len = |file: u64| self.inodes.get(&file).map_or(0, Inode::len);
        self.names.paths().into_iter().map(|(path, file)| (path, len(file))).collect()
    }

    /// Whether a crash could change anything.
    pub(crate) fn is_synced(&self) -> bool {
        self.names.is_synced()
            && self.inodes.values().filter(|inode| inode.links > 0).all(Inode::is_synced)
    }

    /// The power fails: of what was not synced, each part is lost, kept or torn.
    pub(crate) fn crash(&mut self, unsynced: Unsynced, random: &mut Random) {
        let unsynced = unsynced.decide(random);
        self.names.crash(unsynced, random);
        for inode in self.inodes.values_mut() {
            inode.crash(unsynced, random);
        }
        self.program_ended();
    }

    /// The program ends and the system goes on: files are closed and locks given back.
    pub(crate) fn program_ended(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.opened = 0;
        }
        self.locks.clear();
        self.count_links();
        self.forget_files();
    }

    /// What is true of every disk: names lead to files that exist and are counted, and what no name
    /// leads to is kept only while it is open.
    #[cfg(test)]
    fn check_invariants(&self) {
        self.names.check_invariants();
        let files = self.names.files();
        for (file, links) in &files {
            let inode = self.inodes.get(file).expect("a name leads to a file that exists");
            assert_eq!(inode.links, *links, "names of file {file}");
        }
        for (file, inode) in &self.inodes {
            assert!(files.contains_key(file) || inode.opened > 0, "nothing leads to file {file}");
            assert!(files.contains_key(file) || inode.links == 0, "file {file} has lost its names");
        }
    }

    fn inode(&mut self, file: u64) -> io::Result<&mut Inode> {
        self.inodes.get_mut(&file).ok_or_else(not_found)
    }

    fn count_links(&mut self) {
        let files = self.names.files();
        for (file, inode) in &mut self.inodes {
            inode.links = files.get(file).copied().unwrap_or(0);
        }
    }

    /// Forgets files that nothing leads to, not even after a crash.
    fn forget_files(&mut self) {
        let files = self.names.files();
        self.inodes.retain(|file, inode| inode.opened > 0 || files.contains_key(file));
    }
}

fn full_unless(complete: bool) -> io::Result<()> {
    if complete { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}
