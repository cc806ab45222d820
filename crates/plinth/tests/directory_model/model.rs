//! The naive tree: absolute paths, partitions as marks on directories, errors by FoundationDB's
//! numbers.
//!
//! What makes partitions different stands in one place: `home` is how many names of a path lead to
//! the partition that an operation begins in; operations see nothing above it.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Directory { path: Vec<String>, layer: Vec<u8>, data: Option<u64> },
    Names(Vec<String>),
    Bool(bool),
}

#[derive(Clone, Debug, Default)]
struct Tree {
    layer: String,
    who: u64,
    children: BTreeMap<String, Tree>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    root: Tree,
    created: u64,
}

impl Tree {
    fn is_partition(&self) -> bool {
        self.layer == "partition"
    }

    fn outcome(&self, path: &[String]) -> Outcome {
        let data = (!self.is_partition()).then_some(self.who);
        Outcome::Directory { path: path.to_vec(), layer: self.layer.clone().into_bytes(), data }
    }

    fn add_paths(&self, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
        paths.push(path.clone());
        for (name, child) in &self.children {
            path.push(name.clone());
            child.add_paths(path, paths);
            path.pop();
        }
    }
}

impl Model {
    /// The paths of all directories; the root is the first.
    pub fn paths(&self) -> Vec<Vec<String>> {
        let mut paths = Vec::new();
        self.root.add_paths(&mut Vec::new(), &mut paths);
        paths
    }

    pub fn who(&self, path: &[String]) -> Option<u64> {
        self.get(path).map(|tree| tree.who)
    }

    fn get(&self, path: &[String]) -> Option<&Tree> {
        path.iter().try_fold(&self.root, |tree, name| tree.children.get(name))
    }

    fn get_mut(&mut self, path: &[String]) -> Option<&mut Tree> {
        path.iter().try_fold(&mut self.root, |tree, name| tree.children.get_mut(name))
    }

    fn is_partition(&self, path: &[String]) -> bool {
        self.get(path).is_some_and(Tree::is_partition)
    }

    /// How long the path of the partition is that has the directory at `path`.
    pub fn home_of(&self, path: &[String]) -> usize {
        (0..path.len()).rev().find(|&depth| self.is_partition(&path[..depth])).unwrap_or(0)
    }

    /// How long the path of the partition is that has the directories in the one at `path`.
    pub fn home_of_children(&self, path: &[String]) -> usize {
        if self.is_partition(path) { path.len() } else { self.home_of(path) }
    }

    /// How long the path of the first partition is that lies below `home` and above the end of
    /// `path`.
    fn next_partition(&self, home: usize, path: &[String]) -> Option<usize> {
        (home + 1..path.len()).find(|&depth| self.is_partition(&path[..depth]))
    }

    pub fn open(
        &mut self,
        path: &[String],
        home: usize,
        layer: &str,
        may_open: bool,
        may_create: bool,
    ) -> Result<Outcome, i32> {
        if path.len() == home {
            return Err(2255);
        }
        match self.get(path) {
            Some(_) if !may_open => return Err(2256),
            Some(tree) if !layer.is_empty() && tree.layer != layer => return Err(2259),
            Some(tree) => return Ok(tree.outcome(path)),
            None if !may_create => return Err(2257),
            None => {}
        }
        for depth in 1..=path.len() {
            if self.get(&path[..depth]).is_none() {
                self.created += 1;
                let layer = if depth == path.len() { layer.to_owned() } else { String::new() };
                let tree = Tree { layer, who: self.created, children: BTreeMap::new() };
                self.put(&path[..depth], tree);
            }
        }
        Ok(self.get(path).unwrap().outcome(path))
    }

    fn put(&mut self, path: &[String], tree: Tree) {
        let (name, parent) = path.split_last().unwrap();
        self.get_mut(parent).unwrap().children.insert(name.clone(), tree);
    }

    fn take(&mut self, path: &[String]) -> Option<Tree> {
        let (name, parent) = path.split_last()?;
        self.get_mut(parent)?.children.remove(name)
    }

    pub fn list(&self, path: &[String]) -> Result<Vec<String>, i32> {
        self.get(path).map(|tree| tree.children.keys().cloned().collect()).ok_or(2257)
    }

    pub fn exists(&self, path: &[String]) -> bool {
        self.get(path).is_some()
    }

    /// Whether there was something to remove.
    pub fn remove(&mut self, path: &[String]) -> Result<bool, i32> {
        if path.is_empty() { Err(2267) } else { Ok(self.take(path).is_some()) }
    }

    /// Both paths as the partition at the first `home` names of them sees them.
    pub fn rename(&mut self, home: usize, old: &[String], new: &[String]) -> Result<Outcome, i32> {
        if new.starts_with(old) {
            return Err(2266);
        }
        let (from, to) = (self.next_partition(home, old), self.next_partition(home, new));
        if from.is_none() && self.get(old).is_none() {
            return Err(2257);
        }
        match (from, to) {
            (None, None) => {}
            (Some(from), Some(to)) if old[..from] == new[..to] => {
                return self.rename(from, old, new);
            }
            _ => return Err(2261),
        }
        if self.exists(new) {
            return Err(2256);
        }
        if !self.exists(&new[..new.len() - 1]) {
            return Err(2258);
        }
        let tree = self.take(old).ok_or(2257)?;
        let outcome = tree.outcome(new);
        self.put(new, tree);
        Ok(outcome)
    }
}
