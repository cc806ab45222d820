//! A tree's nodes in the database: in a transaction that writes some, or for a reader that goes on
//! from version to version.
//!
//! Both read as snapshots. A writer is alone by its ownership, not by conflicts on nodes; a reader
//! needs no single version, because nodes do not change: when its transaction gets too old it takes
//! another.

use super::keys::{Id, Keys};
use super::{Shared, mask, retry};
use crate::error::{Error, Result};
use crate::tree::{Address, Nodes, Span, Trunk, Twig, Write, decode_summary, encode_summaries};
use plinth_client::{Database, KeyValue, RangeOptions, StreamingMode, Transaction};
use plinth_types::Bytes;
use std::sync::atomic::{AtomicBool, Ordering};

/// One series' nodes, through one transaction.
pub(crate) struct Through<'a> {
    pub(crate) tr: &'a Transaction,
    pub(crate) keys: &'a Keys,
    pub(crate) id: Id,
}

/// All rows whose keys begin with `prefix`.
pub(crate) async fn rows(tr: &Transaction, prefix: &[u8]) -> plinth_types::Result<Vec<KeyValue>> {
    tr.snapshot().range(RangeOptions::prefix(prefix).mode(StreamingMode::WantAll)).collect().await
}

/// What is known of a series' tree.
pub(super) async fn trunk(shared: &Shared, id: Id) -> Result<Trunk> {
    Trunk::open(&Reader::new(&shared.database, &shared.keys, id)).await
}

/// What a transaction knows of a series' tree.
pub(super) async fn trunk_in(tr: &Transaction, keys: &Keys, id: Id) -> Result<Trunk> {
    Trunk::open(&Through { tr, keys, id }).await
}

/// Says that a leaf lies behind a tree, which is to begin with the twig of that: it has gone.
pub(super) fn without_twig(trunk: &Trunk) -> Error {
    let why = format!("a leaf lies behind leaf {}, and no twig says so", trunk.leaves());
    Error::damaged("a tree", why)
}

impl Through<'_> {
    /// Asks for the first leaf that lies behind a tree, counted from the one behind its last.
    pub(super) fn behind(
        &self,
        trunk: &Trunk,
    ) -> impl Future<Output = plinth_types::Result<Option<Bytes>>> + Send + use<> {
        let begin = self.keys.node(self.id, Address { level: 0, index: trunk.leaves() });
        let end = self.keys.node(self.id, Address { level: 1, index: 0 });
        let found = self.tr.snapshot().get_range(RangeOptions::from(begin..end).limit(1));
        async move {
            let rows = found.await?.rows;
            Ok(rows.iter().next().map(|(_, leaf)| Bytes::copy_from_slice(leaf)))
        }
    }

    /// Writes what an append gave back.
    pub(crate) fn write(&self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Node(address, bytes) => {
                    self.tr.set(self.keys.node(self.id, *address), bytes)
                }
                Write::Twig(twig) => {
                    let bytes = encode_summaries(twig.address.level, &[twig.summary]);
                    self.tr.set(self.keys.twig(self.id, twig.address), bytes);
                }
                Write::Fold(level) => self.tr.clear_prefix(self.keys.twigs(self.id, Some(*level))),
            }
        }
    }
}

impl Nodes for Through<'_> {
    async fn node(&self, address: Address) -> Result<Option<Bytes>> {
        Ok(self.tr.snapshot().get(self.keys.node(self.id, address)).await?)
    }

    async fn twigs(&self, level: Option<u8>) -> Result<Vec<Twig>> {
        let rows = rows(self.tr, &self.keys.twigs(self.id, level)).await?;
        let twig = |row: KeyValue| {
            let (_, address) = self.keys.of_twig(&row.key)?;
            Ok(Twig { address, summary: decode_summary(address.level, &row.value)? })
        };
        rows.into_iter().map(twig).collect()
    }

    async fn masks(&self) -> Result<Vec<Span>> {
        let row = self.tr.snapshot().get(self.keys.mask(self.id)).await?;
        row.map_or(Ok(Vec::new()), |bytes| mask::decode(&bytes))
    }
}

/// One series' nodes, whatever the version.
pub(crate) struct Reader {
    tr: Transaction,
    /// Whether it has gone on to another version.
    is_renewed: AtomicBool,
    pub(crate) keys: Keys,
    pub(crate) id: Id,
}

impl Reader {
    pub(crate) fn new(database: &Database, keys: &Keys, id: Id) -> Self {
        let (tr, is_renewed) = (database.create_transaction(), AtomicBool::new(false));
        Self { tr, is_renewed, keys: keys.clone(), id }
    }

    fn through(&self) -> Through<'_> {
        Through { tr: &self.tr, keys: &self.keys, id: self.id }
    }

    /// Whether not all that it has read is of one version.
    pub(super) fn is_renewed(&self) -> bool {
        self.is_renewed.load(Ordering::Relaxed)
    }

    /// Waits as the error says and begins anew; gives the error back if that does not help.
    async fn again(&self, error: Error) -> Result<()> {
        self.is_renewed.store(true, Ordering::Relaxed);
        retry::again(&self.tr, error).await
    }

    /// Whether transactions have written what waits to be taken in, for a store that could do so.
    pub(super) async fn sees_inbox(&self, shared: &Shared) -> Result<bool> {
        loop {
            match shared.sees_inbox(&self.tr).await {
                Err(error) => self.again(error).await?,
                seen => return seen,
            }
        }
    }

    /// What some keys have, and the rows of a prefix, at one version.
    pub(super) async fn states(
        &self,
        wanted: Vec<Vec<u8>>,
        prefix: Vec<u8>,
    ) -> Result<(Vec<Option<Bytes>>, Vec<KeyValue>)> {
        loop {
            let read = async {
                let snapshot = self.tr.snapshot();
                let gets: Vec<_> = wanted.iter().map(|key| snapshot.get(key)).collect();
                let rows = rows(&self.tr, &prefix);
                let mut found = Vec::with_capacity(wanted.len());
                for get in gets {
                    found.push(get.await?);
                }
                Ok::<_, plinth_types::Error>((found, rows.await?))
            };
            match read.await {
                Ok(found) => return Ok(found),
                Err(error) => self.again(Error::from(error)).await?,
            }
        }
    }

    /// The rows of a range, whose limit says how many at most.
    pub(crate) async fn page(&self, range: RangeOptions) -> Result<Vec<KeyValue>> {
        loop {
            match self.tr.snapshot().range(range.clone()).collect().await {
                Ok(rows) => return Ok(rows),
                Err(error) => self.again(error.into()).await?,
            }
        }
    }
}

impl Nodes for Reader {
    async fn node(&self, address: Address) -> Result<Option<Bytes>> {
        loop {
            match self.through().node(address).await {
                Ok(node) => return Ok(node),
                Err(error) => self.again(error).await?,
            }
        }
    }

    async fn twigs(&self, level: Option<u8>) -> Result<Vec<Twig>> {
        loop {
            match self.through().twigs(level).await {
                Ok(twigs) => return Ok(twigs),
                Err(error) => self.again(error).await?,
            }
        }
    }

    async fn masks(&self) -> Result<Vec<Span>> {
        loop {
            match self.through().masks().await {
                Ok(masks) => return Ok(masks),
                Err(error) => self.again(error).await?,
            }
        }
    }
}
