//! The directories of a simulated disk: what programs see, what is durable, and what lies between.
//!
//! A directory is a map from names to nodes, kept twice. Changes of entries (a file made, renamed,
//! removed) take effect at once for programs and wait in one list, in order, until a directory that
//! they touch is synced. A crash decides for each that still waits whether it happened; a rename
//! has happened as a whole or not at all, and with each change those before it that concern the
//! same file or name. New directories are durable at once
//! ([`Files::create_dir_all`](crate::Files::create_dir_all) syncs them in the real world).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use super::super::random::Random;
use super::inode::Unsynced;

/// A directory or a file, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Node {
    Dir(u64),
    File(u64),
}

type Entries = BTreeMap<String, Node>;

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) dir: u64,
    pub(crate) name: String,
}

enum Change {
    Link(Entry, Node),
    Unlink(Entry, Node),
    Rename(Entry, Entry, Node),
}

impl Change {
    fn touches(&self, dir: u64) -> bool {
        match self {
            Self::Link(entry, _) | Self::Unlink(entry, _) => entry.dir == dir,
            Self::Rename(from, to, _) => from.dir == dir || to.dir == dir,
        }
    }

    fn entries(&self) -> [&Entry; 2] {
        match self {
            Self::Link(entry, _) | Self::Unlink(entry, _) => [entry, entry],
            Self::Rename(from, to, _) => [from, to],
        }
    }

    /// Whether it is about the same file or the same name as a later one, which then makes no sense
    /// without it.
    fn precedes(&self, later: &Self) -> bool {
        let same_name = |entry: &&Entry| later.entries().contains(entry);
        self.node() == later.node() || self.entries().iter().any(same_name)
    }

    fn node(&self) -> Node {
        match self {
            Self::Link(_, node) | Self::Unlink(_, node) | Self::Rename(_, _, node) => *node,
        }
    }

    fn apply(&self, dirs: &mut BTreeMap<u64, Entries>) {
        let unlink = |dirs: &mut BTreeMap<u64, Entries>, entry: &Entry, node: Node| {
            if let Some(entries) = dirs.get_mut(&entry.dir)
                && entries.get(&entry.name) == Some(&node)
            {
                entries.remove(&entry.name);
            }
        };
        let link = |dirs: &mut BTreeMap<u64, Entries>, entry: &Entry, node: Node| {
            dirs.entry(entry.dir).or_default().insert(entry.name.clone(), node);
        };
        match self {
            Self::Link(entry, node) => link(dirs, entry, *node),
            Self::Unlink(entry, node) => unlink(dirs, entry, *node),
            Self::Rename(from, to, node) => {
                unlink(dirs, from, *node);
                link(dirs, to, *node);
            }
        }
    }
}

pub(crate) struct Names {
    current: BTreeMap<u64, Entries>,
    durable: BTreeMap<u64, Entries>,
    pending: Vec<(u64, Change)>,
    changes: u64,
    next_dir: u64,
}

const ROOT: u64 = 0;

impl Names {
    pub(crate) fn new() -> Self {
        let root = BTreeMap::from([(ROOT, Entries::new())]);
        Self { current: root.clone(), durable: root, pending: Vec::new(), changes: 0, next_dir: 1 }
    }

    /// What a path leads to.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Option<Node>> {
        let mut node = Node::Dir(ROOT);
        for name in components(path)? {
            let Node::Dir(dir) = node else { return Err(io::ErrorKind::NotADirectory.into()) };
            match self.current.get(&dir).and_then(|entries| entries.get(&name)) {
                Some(found) => node = *found,
                None => return Ok(None),
            }
        }
        Ok(Some(node))
    }

    /// The directory at a path.
    pub(crate) fn dir(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)? {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The place of a path in its directory, which must exist.
    pub(crate) fn entry(&self, path: &Path) -> io::Result<Entry> {
        let mut names = components(path)?;
        let name = names.pop().ok_or(io::ErrorKind::IsADirectory)?;
        let dir =
            self.dir(&names.iter().fold(Path::new("/").to_path_buf(), |dir, name| dir.join(name)))?;
        Ok(Entry { dir, name })
    }

    pub(crate) fn list(&self, dir: u64) -> Vec<(String, Node)> {
        let entries = self.current.get(&dir).into_iter().flatten();
        entries.map(|(name, node)| (name.clone(), *node)).collect()
    }

    /// Makes the directories of a path, durably.
    pub(crate) fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        for name in components(path)? {
            let found = self.current.get(&dir).and_then(|entries| entries.get(&name)).copied();
            dir = match found {
                Some(Node::Dir(found)) => found,
                Some(Node::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                None => {
                    let new = self.next_dir;
                    self.next_dir += 1;
                    for dirs in [&mut self.current, &mut self.durable] {
                        dirs.entry(dir).or_default().insert(name.clone(), Node::Dir(new));
                        dirs.insert(new, Entries::new());
                    }
                    new
                }
            };
        }
        Ok(())
    }

    pub(crate) fn link(&mut self, entry: Entry, node: Node) {
        self.change(Change::Link(entry, node));
    }

    pub(crate) fn unlink(&mut self, entry: Entry, node: Node) {
        self.change(Change::Unlink(entry, node));
    }

    pub(crate) fn rename(&mut self, from: Entry, to: Entry, node: Node) {
        self.change(Change::Rename(from, to, node));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes += 1;
        self.pending.push((self.changes, change));
    }

    /// What a sync that begins now covers.
    pub(crate) fn sync_point(&self) -> u64 {
        self.changes
    }

    /// Whether a crash could change any name.
    pub(crate) fn is_synced(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn synced(&mut self, dir: u64, upto: u64) {
        let covered =
            self.pending.iter().map(|(at, change)| *at <= upto && change.touches(dir)).collect();
        self.happen(covered);
    }

    /// Makes some of the pending changes durable, and with each those that it makes no sense
    /// without.
    fn happen(&mut self, mut wanted: Vec<bool>) {
        // Backwards, so that what is brought along brings along in its turn.
        for at in (0..wanted.len()).rev() {
            let (before, from) = wanted.split_at_mut(at);
            if from[0] {
                let later = &self.pending[at].1;
                let earlier = before.iter_mut().zip(&self.pending);
                earlier.for_each(|(wanted, (_, change))| *wanted |= change.precedes(later));
            }
        }
        let mut wanted = wanted.into_iter();
        for (_, change) in self.pending.extract_if(.., |_| wanted.next().unwrap_or(false)) {
            change.apply(&mut self.durable);
        }
    }

    /// The power fails.
    pub(crate) fn crash(&mut self, unsynced: Unsynced, random: &mut Random) {
        let pending = self.pending.len();
        // A journal keeps the order of changes; other file systems don't.
        let prefix = random.chance(0.5).then(|| random.index(pending + 1));
        let happened = |at| match unsynced {
            Unsynced::Lost => false,
            Unsynced::Kept => true,
            Unsynced::Seeded => prefix.map_or_else(|| random.chance(0.5), |prefix| at < prefix),
        };
        let happened = (0..pending).map(happened).collect();
        self.happen(happened);
        self.pending.clear();
        self.current = self.durable.clone();
    }

    /// The files that some name leads to, or may after a crash; and how many names programs see of
    /// each.
    pub(crate) fn files(&self) -> BTreeMap<u64, u32> {
        let mut files = BTreeMap::new();
        let reachable = reachable(&self.current);
        for (dir, entries) in &self.current {
            for node in entries.values() {
                if let Node::File(file) = node {
                    *files.entry(*file).or_insert(0) += u32::from(reachable.contains(dir));
                }
            }
        }
        let durable = self.durable.values().flat_map(BTreeMap::values).copied();
        for node in durable.chain(self.pending.iter().map(|(_, change)| change.node())) {
            if let Node::File(file) = node {
                files.entry(file).or_insert(0);
            }
        }
        files
    }

    /// Whatever a directory holds exists, and changes that wait are in order.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for dirs in [&self.current, &self.durable] {
            for node in dirs.values().flat_map(BTreeMap::values) {
                assert!(
                    !matches!(node, Node::Dir(dir) if !dirs.contains_key(dir)),
                    "a directory is missing"
                );
            }
        }
        assert!(self.pending.is_sorted_by_key(|(at, _)| *at));
        if self.pending.is_empty() {
            assert!(
                self.current == self.durable,
                "nothing waits, and yet a crash would change a name"
            );
        }
    }

    /// The paths of all files that programs see.
    pub(crate) fn paths(&self) -> Vec<(std::path::PathBuf, u64)> {
        let mut paths = Vec::new();
        let mut todo = vec![(std::path::PathBuf::from("/"), ROOT)];
        while let Some((path, dir)) = todo.pop() {
            for (name, node) in self.list(dir) {
                match node {
                    Node::Dir(dir) => todo.push((path.join(name), dir)),
                    Node::File(file) => paths.push((path.join(name), file)),
                }
            }
        }
        paths.sort();
        paths
    }
}

fn reachable(dirs: &BTreeMap<u64, Entries>) -> BTreeSet<u64> {
    let mut reached = BTreeSet::from([ROOT]);
    let mut todo = vec![ROOT];
    while let Some(dir) = todo.pop() {
        for node in dirs.get(&dir).into_iter().flat_map(BTreeMap::values) {
            if let Node::Dir(dir) = node
                && reached.insert(*dir)
            {
                todo.push(*dir);
            }
        }
    }
    reached
}

/// The names on the way to a path, from the root; relative paths begin there too.
fn components(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => {
                names.push(name.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_string())
            }
            Component::ParentDir => drop(names.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(names)
}
