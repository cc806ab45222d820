//! One directory layer: nodes under a prefix, which say what directories there are.
//!
//! ```text
//!   nodes | (prefix, 0, name)    -> prefix of the directory of that name in this one
//!   nodes | (prefix, "layer")    -> what the directory is for
//!   nodes | (nodes, "version")   -> version of this layout, in the root's node
//!   nodes | (nodes, "hca", ...)  -> the allocator's marks, in the root's node
//! ```
//!
//! The root's own prefix is that of the nodes, so nobody is given it. A partition is a directory
//! with a directory layer of its own below its prefix: nodes at `prefix | FE`, contents at
//! `prefix`. Paths are followed down to the first partition, and from there on in the partition's
//! layer.

use super::allocator::{Allocator, in_order};
use super::{Directory, PARTITION};
use crate::subspace::Subspace;
use crate::tuple::{Element, TuplePack};
use plinth_client::{RangeOptions, Transaction};
use plinth_types::{Bytes, Error, KeyRange, Result, printable, strinc};
use std::sync::Arc;

/// The version of the layout that is written, and understood.
const VERSION: [u32; 3] = [1, 0, 0];
/// What separates a node's subdirectories from its other keys.
const SUBDIRECTORIES: i64 = 0;

pub(super) struct Layer {
    nodes: Subspace,
    contents: Subspace,
    /// The root's node.
    root: Subspace,
    allow_manual_prefixes: bool,
    /// The absolute path of the partition whose layer this is; empty for the outermost.
    path: Vec<String>,
    allocator: Allocator,
}

/// How a directory is to be opened.
#[derive(Clone, Default)]
pub(super) struct Request {
    pub may_open: bool,
    pub may_create: bool,
    pub layer: Bytes,
    pub prefix: Option<Bytes>,
}

/// A directory that exists.
struct Node {
    keys: Subspace,
    prefix: Bytes,
    layer: Bytes,
    /// Where the directory that has it names it; none for the root.
    entry: Option<Vec<u8>>,
    /// How many names of the path lead here.
    depth: usize,
}

/// What a path leads to.
enum Found {
    /// A directory; the path ends there, or the directory is a partition.
    Node(Node),
    /// The directory that should have the next name of the path, and has not.
    Missing(Node),
}

/// What an operation is about to do with the layer's keys.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Read,
    Write,
}

impl Found {
    /// Of a path that goes on below a partition: how many of its names lead there.
    fn partition_above(&self, path: &[String]) -> Option<usize> {
        match self {
            Self::Node(node) => node.partition_above(path),
            Self::Missing(_) => None,
        }
    }
}

impl Node {
    /// The depth, if the path goes on below this node although it is a partition.
    fn partition_above(&self, path: &[String]) -> Option<usize> {
        (self.is_partition() && self.depth < path.len()).then_some(self.depth)
    }

    fn is_partition(&self) -> bool {
        self.layer == PARTITION
    }

    fn subdirectories(&self) -> Subspace {
        self.keys.subspace(&SUBDIRECTORIES)
    }
}

impl Layer {
    pub fn new(
        nodes: Subspace,
        contents: Subspace,
        allow_manual_prefixes: bool,
        path: Vec<String>,
    ) -> Self {
        let root = nodes.subspace(&&nodes.prefix()[..]);
        let allocator = Allocator::new(&root.subspace(&&b"hca"[..]));
        Self { nodes, contents, root, allow_manual_prefixes, path, allocator }
    }

    /// The layer of the partition that has this prefix.
    pub fn of_partition(prefix: &[u8], path: Vec<String>) -> Self {
        let nodes = Subspace::from_bytes([prefix, b"\xfe"].concat());
        Self::new(nodes, Subspace::from_bytes(prefix.to_vec()), false, path)
    }

    pub fn path(&self) -> &[String] {
        &self.path
    }

    pub async fn open(
        self: &Arc<Self>,
        tr: &Transaction,
        path: Vec<String>,
        request: Request,
    ) -> Result<Directory> {
        self.check_manual_prefix(&request)?;
        if path.is_empty() {
            return Err(Error::cannot_open_root_directory());
        }
        let (layer, rest, found) = self.locate(tr, &path, Access::Read, false).await?;
        layer.check_manual_prefix(&request)?;
        match found {
            Found::Node(_) if !request.may_open => {
                Err(layer.error(Error::directory_already_exists(), rest))
            }
            Found::Node(node) if !request.layer.is_empty() && node.layer != request.layer => {
                let what = format!(
                    "{} is {}, not {}",
                    layer.name(rest),
                    named(&node.layer),
                    named(&request.layer)
                );
                Err(Error::mismatched_layer().with_detail(what))
            }
            Found::Node(node) => Ok(layer.directory(rest, node.prefix, node.layer)),
            Found::Missing(_) if !request.may_create => {
                Err(layer.error(Error::directory_does_not_exist(), rest))
            }
            Found::Missing(ancestor) => layer.create(tr, rest, ancestor, request).await,
        }
    }

    pub async fn list(self: &Arc<Self>, tr: &Transaction, path: &[String]) -> Result<Vec<String>> {
        match self.locate(tr, path, Access::Read, true).await? {
            (_, _, Found::Node(node)) => {
                let children = children(tr, &node.subdirectories()).await?;
                Ok(children.into_iter().map(|(name, _)| name).collect())
            }
            (layer, rest, Found::Missing(_)) => {
                Err(layer.error(Error::directory_does_not_exist(), rest))
            }
        }
    }

    pub async fn exists(self: &Arc<Self>, tr: &Transaction, path: &[String]) -> Result<bool> {
        let (_, _, found) = self.locate(tr, path, Access::Read, false).await?;
        Ok(matches!(found, Found::Node(_)))
    }

    /// Removes a directory with all that is in it; gives whether there was one.
    pub async fn remove(self: &Arc<Self>, tr: &Transaction, path: &[String]) -> Result<bool> {
        let (layer, _, found) = self.locate(tr, path, Access::Write, false).await?;
        let Found::Node(node) = found else { return Ok(false) };
        let entry = node.entry.ok_or_else(Error::cannot_modify_root_directory)?;
        layer.clear_tree(tr, node.prefix).await?;
        let _order = in_order();
        tr.clear(&entry);
        Ok(true)
    }

    pub fn does_not_exist(&self, path: &[String]) -> Error {
        self.error(Error::directory_does_not_exist(), path)
    }

    pub async fn rename(
        self: &Arc<Self>,
        tr: &Transaction,
        old: &[String],
        new: &[String],
    ) -> Result<Directory> {
        let (mut layer, mut old, mut new) = (Arc::clone(self), old, new);
        loop {
            layer.check_version(tr, Access::Write).await?;
            if new.starts_with(old) {
                return Err(layer.error(Error::invalid_destination_directory(), new));
            }
            let from = layer.find(tr, old).await?;
            let to = layer.find(tr, new).await?;
            let Found::Node(source) = from else { return Err(layer.does_not_exist(old)) };
            match (source.partition_above(old), to.partition_above(new)) {
                (None, None) => return layer.rename_here(tr, source, to, new).await,
                (Some(depth), Some(other)) if old[..depth] == new[..other] => {
                    layer = Arc::new(layer.below(&source, &old[..depth]));
                    (old, new) = (&old[depth..], &new[depth..]);
                }
                _ => {
                    let what = format!("from {} to {}", layer.name(old), layer.name(new));
                    return Err(Error::cannot_move_directory_between_partitions().with_detail(what));
                }
            }
        }
    }

    async fn rename_here(
        self: &Arc<Self>,
        tr: &Transaction,
        source: Node,
        target: Found,
        new: &[String],
    ) -> Result<Directory> {
        let parent = match target {
            Found::Node(_) => return Err(self.error(Error::directory_already_exists(), new)),
            Found::Missing(parent) if parent.depth + 1 == new.len() => parent,
            Found::Missing(_) => {
                return Err(
                    self.error(Error::parent_directory_does_not_exist(), &new[..new.len() - 1])
                );
            }
        };
        let entry = source.entry.ok_or_else(Error::cannot_modify_root_directory)?;
        let _order = in_order();
        tr.set(parent.subdirectories().pack(&new[parent.depth]), &source.prefix);
        tr.clear(entry);
        Ok(self.directory(new, source.prefix, source.layer))
    }

    /// Creates the directory at `path`, of which everything up to `ancestor` exists.
    async fn create(
        self: &Arc<Self>,
        tr: &Transaction,
        path: &[String],
        ancestor: Node,
        request: Request,
    ) -> Result<Directory> {
        self.check_version(tr, Access::Write).await?;
        let prefix = match request.prefix {
            None => self.choose_prefix(tr).await?,
            Some(prefix) if self.is_prefix_free(tr, &prefix, false).await? => prefix,
            Some(prefix) => {
                return Err(Error::directory_prefix_in_use().with_detail(printable(&prefix)));
            }
        };
        let (last, between) =
            path[ancestor.depth..].split_last().ok_or_else(Error::internal_error)?;
        let mut parent = ancestor.keys;
        for name in between {
            let prefix = self.choose_prefix(tr).await?;
            parent = self.write_node(tr, &parent, name, &prefix, b"");
        }
        self.write_node(tr, &parent, last, &prefix, &request.layer);
        Ok(self.directory(path, prefix, request.layer))
    }

    fn write_node(
        &self,
        tr: &Transaction,
        parent: &Subspace,
        name: &str,
        prefix: &[u8],
        layer: &[u8],
    ) -> Subspace {
        let keys = self.nodes.subspace(&prefix);
        let _order = in_order();
        tr.set(parent.pack(&(SUBDIRECTORIES, name)), prefix);
        tr.set(keys.pack(&&b"layer"[..]), layer);
        keys
    }

    async fn choose_prefix(&self, tr: &Transaction) -> Result<Bytes> {
        let mut prefix = self.contents.prefix().to_vec();
        self.allocator.allocate(tr).await?.pack_into_vec(&mut prefix);
        let contents = Subspace::from_bytes(prefix.clone()).whole();
        if first_key(tr, contents, false, false).await?.is_some() {
            return Err(Error::directory_prefix_not_empty().with_detail(printable(&prefix)));
        }
        if !self.is_prefix_free(tr, &prefix, true).await? {
            let what =
                format!("{}, chosen by the allocator, meets a manual prefix", printable(&prefix));
            return Err(Error::directory_prefix_in_use().with_detail(what));
        }
        Ok(prefix.into())
    }

    /// Whether a prefix neither begins one that is in use nor begins with one.
    async fn is_prefix_free(
        &self,
        tr: &Transaction,
        prefix: &[u8],
        snapshot: bool,
    ) -> Result<bool> {
        if prefix.is_empty() || self.nodes.contains(prefix) {
            return Ok(false);
        }
        let own = self.nodes.pack(&prefix);
        let all = self.nodes.range();
        let before = KeyRange::new(all.begin, [&own[..], b"\0"].concat());
        if let Some(key) = first_key(tr, before, true, snapshot).await? {
            let elements: Vec<Element<'_>> =
                self.nodes.unpack(&key).map_err(|error| damaged(&error.to_string()))?;
            let Some(Element::Bytes(used)) = elements.first() else {
                return Err(damaged(&format!("{} is no node's key", printable(&key))));
            };
            if prefix.starts_with(used) {
                return Ok(false);
            }
        }
        let end = strinc(prefix).map_or(all.end, |end| self.nodes.pack(&&end[..]).into());
        Ok(first_key(tr, KeyRange::new(own, end), false, snapshot).await?.is_none())
    }

    /// Clears what the directories of a tree hold, and their nodes.
    async fn clear_tree(&self, tr: &Transaction, prefix: Bytes) -> Result<()> {
        let mut pending = vec![prefix];
        while let Some(prefix) = pending.pop() {
            let Some(end) = strinc(&prefix) else {
                return Err(damaged(&format!(
                    "a directory has the prefix '{}'",
                    printable(&prefix)
                )));
            };
            let keys = self.nodes.subspace(&&prefix[..]);
            let children = children(tr, &keys.subspace(&SUBDIRECTORIES)).await?;
            pending.extend(children.into_iter().map(|(_, prefix)| prefix));
            let node = keys.range();
            let _order = in_order();
            tr.clear_range(prefix, end);
            tr.clear_range(node.begin, node.end);
        }
        Ok(())
    }

    /// Follows a path through partitions, down to the layer that has its end, or lacks it. `enter`:
    /// of a partition at the end of the path its root is meant, not the directory outside.
    async fn locate<'p>(
        self: &Arc<Self>,
        tr: &Transaction,
        path: &'p [String],
        access: Access,
        enter: bool,
    ) -> Result<(Arc<Self>, &'p [String], Found)> {
        let (mut layer, mut rest) = (Arc::clone(self), path);
        loop {
            layer.check_version(tr, access).await?;
            match layer.find(tr, rest).await? {
                Found::Node(node)
                    if node.partition_above(rest).is_some() || (enter && node.is_partition()) =>
                {
                    layer = Arc::new(layer.below(&node, &rest[..node.depth]));
                    rest = &rest[node.depth..];
                }
                found => return Ok((layer, rest, found)),
            }
        }
    }

    /// Follows a path to its end, to the first partition, or to the first name that is not there.
    async fn find(&self, tr: &Transaction, path: &[String]) -> Result<Found> {
        let prefix = self.nodes.prefix().clone();
        let mut node =
            Node { keys: self.root.clone(), prefix, layer: Bytes::new(), entry: None, depth: 0 };
        for name in path {
            let entry = node.subdirectories().pack(name);
            let Some(prefix) = tr.get(&entry).await? else { return Ok(Found::Missing(node)) };
            let keys = self.nodes.subspace(&&prefix[..]);
            let layer = tr.get(keys.pack(&&b"layer"[..])).await?.unwrap_or_default();
            node = Node { keys, prefix, layer, entry: Some(entry), depth: node.depth + 1 };
            if node.is_partition() {
                break;
            }
        }
        Ok(Found::Node(node))
    }

    /// Checks that this code may use the layer; before the first write, records the version.
    async fn check_version(&self, tr: &Transaction, access: Access) -> Result<()> {
        let key = self.root.pack(&&b"version"[..]);
        let Some(stored) = tr.get(&key).await? else {
            if access == Access::Write {
                let _order = in_order();
                tr.set(key, VERSION.map(u32::to_le_bytes).concat());
            }
            return Ok(());
        };
        let [major, minor, micro] = version(&stored)?;
        let newer = match access {
            _ if major > VERSION[0] => "it cannot be used",
            Access::Write if minor > VERSION[1] => "it can only be read",
            _ => return Ok(()),
        };
        let what =
            format!("it has version {major}.{minor}.{micro}, this is for {VERSION:?}: {newer}");
        Err(Error::incompatible_directory_version().with_detail(what))
    }

    fn check_manual_prefix(&self, request: &Request) -> Result<()> {
        if request.prefix.is_none() || self.allow_manual_prefixes {
            return Ok(());
        }
        Err(if self.path.is_empty() {
            Error::manual_prefixes_not_enabled()
        } else {
            Error::prefix_in_partition()
        })
    }

    /// The layer of a partition in this one.
    fn below(&self, partition: &Node, path: &[String]) -> Self {
        Self::of_partition(&partition.prefix, self.absolute(path))
    }

    fn directory(self: &Arc<Self>, path: &[String], prefix: Bytes, layer: Bytes) -> Directory {
        Directory::new(Arc::clone(self), self.absolute(path), prefix, layer)
    }

    fn absolute(&self, path: &[String]) -> Vec<String> {
        [&self.path, path].concat()
    }

    fn name(&self, path: &[String]) -> String {
        self.absolute(path).join("/")
    }

    fn error(&self, error: Error, path: &[String]) -> Error {
        error.with_detail(self.name(path))
    }
}

/// The directories that a node names, sorted by name, and their prefixes.
async fn children(tr: &Transaction, entries: &Subspace) -> Result<Vec<(String, Bytes)>> {
    let mut rows = tr.range(entries.range());
    let mut children = Vec::new();
    while let Some(row) = rows.next().await {
        let row = row?;
        let name = entries.unpack(&row.key).map_err(|error| damaged(&error.to_string()))?;
        children.push((name, row.value));
    }
    Ok(children)
}

async fn first_key(
    tr: &Transaction,
    range: KeyRange,
    last: bool,
    snapshot: bool,
) -> Result<Option<Bytes>> {
    let one = RangeOptions::from(range).limit(1).reverse(last);
    let read = if snapshot { tr.snapshot().get_range(one) } else { tr.get_range(one) };
    Ok(read.await?.rows.get(0).map(|row| row.key))
}

fn version(stored: &[u8]) -> Result<[u32; 3]> {
    let (numbers, rest) = stored.as_chunks::<4>();
    match numbers {
        [major, minor, micro] if rest.is_empty() => {
            Ok([*major, *minor, *micro].map(u32::from_le_bytes))
        }
        _ => Err(damaged(&format!("the version is not three numbers but '{}'", printable(stored)))),
    }
}

fn named(layer: &[u8]) -> String {
    if layer.is_empty() {
        "of no layer".to_owned()
    } else {
        format!("of the layer '{}'", printable(layer))
    }
}

fn damaged(what: &str) -> Error {
    Error::invalid_directory_layer_metadata().with_detail(what)
}
