//! What the parts of the special key space contain.
//!
//! A part gives all its rows at once, made from what the transaction knows, from the endpoint's
//! description, or from system keys; limits, selectors and the transaction's own special writes are
//! applied to them elsewhere.

use super::{Part, Source, settings};
use crate::transaction::{Inner, State, coalesced};
use bytes::Bytes;
use plinth_types::{
    Error, KeyList, KeyRange, KeySpace, KeyValue, RangeList, Result, Versionstamp, key_after,
    printable, system,
};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Inner {
    /// The rows of a part; more than those between `begin` and `end` may be given.
    pub(super) async fn content(
        self: &Arc<Self>,
        epoch: u64,
        part: &'static Part,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Vec<KeyValue>> {
        let text = |text: String| vec![KeyValue { key: part.key(b""), value: text.into() }];
        match part.source {
            Source::ReadConflicts => {
                self.drain_reads(epoch).await?;
                Ok(boundaries(part, &self.lock().reads.conflicts))
            }
            Source::WriteConflicts => Ok(boundaries(part, &write_conflicts(&self.lock()))),
            Source::ConflictingKeys => {
                let state = self.lock();
                Ok(state
                    .outcome
                    .conflicting
                    .as_ref()
                    .map(|list| boundaries(part, list))
                    .unwrap_or_default())
            }
            Source::StatusJson => Ok(text(self.endpoint().status_json().await?)),
            Source::ClusterFilePath => Ok(text(self.endpoint().describe().cluster_file_path)),
            Source::ConnectionString => Ok(text(self.endpoint().describe().connection_string)),
            Source::ClusterId => Ok(text(self.endpoint().describe().cluster_id)),
            Source::ErrorMessage => {
                let state = self.lock();
                let message =
                    state.special.as_ref().and_then(|special| special.error_message.clone());
                Ok(message.map(text).unwrap_or_default())
            }
            Source::ShardStatistics => {
                let all = KeyRange::new(Bytes::new(), system::SYSTEM_END);
                let bytes = self.endpoint().range_size(all).await?;
                Ok(text(format!(r#"{{"shard_bytes":{bytes},"shard_bytes_per_ksecond":0}}"#)))
            }
            Source::Health => Ok(vec![settings::health(part)]),
            Source::FaultTolerance => {
                let status = self.endpoint().status_json().await?;
                Ok(settings::fault_tolerance(&status)
                    .map(|found| text(found.to_owned()))
                    .unwrap_or_default())
            }
            Source::Coordinators => self.coordinators(epoch, part).await,
            Source::AutoCoordinators => Ok(text(self.voters(epoch).await?)),
            Source::Workers => self.workers(epoch, part).await,
            Source::InProgress => self.in_progress(epoch, part).await,
            Source::Tracing => Ok(self.trace(part)),
            Source::Tenants => self.tenant_rows(epoch, part, begin, end).await,
            source => {
                let rows = self.stored(epoch, part, source).await?;
                Ok(self.with_own_writes(part, rows))
            }
        }
    }

    /// Rows of parts that mirror system keys.
    async fn stored(
        self: &Arc<Self>,
        epoch: u64,
        part: &'static Part,
        source: Source,
    ) -> Result<Vec<KeyValue>> {
        let row = |rest: &[u8], value: String| {
            vec![KeyValue { key: part.key(rest), value: value.into() }]
        };
        Ok(match source {
            Source::Locked => {
                let value = self.read_system(epoch, system::DATABASE_LOCKED).await?;
                value
                    .and_then(|value| settings::lock_id(&value))
                    .map(|id| row(b"", id))
                    .unwrap_or_default()
            }
            Source::ConsistencyCheckSuspended => {
                let value = self.read_system(epoch, settings::CONSISTENCY_CHECK_SUSPENDED).await?;
                if value.as_deref() == Some(&[1]) { row(b"", String::new()) } else { Vec::new() }
            }
            Source::MinRequiredCommitVersion => {
                let value = self.read_system(epoch, system::MIN_REQUIRED_COMMIT_VERSION).await?;
                settings::number(value.as_deref())
                    .map(|n| row(b"", n.to_string()))
                    .unwrap_or_default()
            }
            Source::VersionEpoch => {
                let value = self.read_system(epoch, settings::VERSION_EPOCH).await?;
                settings::number(value.as_deref())
                    .map(|n| row(b"", n.to_string()))
                    .unwrap_or_default()
            }
            Source::Maintenance => {
                let value = self.read_system(epoch, settings::HEALTHY_ZONE).await?;
                let now = self.read_version(epoch, false).await?;
                let zone = value.as_deref().and_then(|value| settings::maintenance(value, now));
                zone.map(|(zone, seconds)| row(&zone, seconds)).unwrap_or_default()
            }
            Source::DataDistribution => {
                let mode = self.read_system(epoch, settings::DATA_DISTRIBUTION_MODE).await?;
                let ignored = self.read_system(epoch, settings::REBALANCE_IGNORED).await?;
                let mode = mode
                    .and_then(|mode| mode.first_chunk::<4>().map(|mode| i32::from_le_bytes(*mode)));
                let mut rows = row(b"mode", mode.unwrap_or(-1).to_string());
                rows.extend(ignored.map(|_| KeyValue {
                    key: part.key(b"rebalance_ignored"),
                    value: Bytes::new(),
                }));
                rows
            }
            Source::Places(_, prefix) => self.place_rows(epoch, part, prefix).await?,
            Source::Profiling => {
                let mut rows = row(b"client_txn_sample_rate", "default".into());
                rows.extend(row(b"client_txn_size_limit", "default".into()));
                rows
            }
            Source::GlobalConfig => {
                let (begin, end) = settings::global_config_range();
                let rows = self.read_system_range(epoch, &begin, &end).await?;
                rows.into_iter()
                    .filter_map(|stored| settings::global_config_row(part, &stored))
                    .collect()
            }
            _ => Vec::new(),
        })
    }

    /// Rows as this transaction's writes to special keys leave them.
    fn with_own_writes(&self, part: &Part, rows: Vec<KeyValue>) -> Vec<KeyValue> {
        let state = self.lock();
        let Some(special) = state.special.as_ref().filter(|_| !state.options.ryw_disabled) else {
            return rows;
        };
        let range = part.range();
        let writes = special.writes.iter(&range.begin, &range.end);
        if writes.is_empty() {
            return rows;
        }
        let mut rows: BTreeMap<Bytes, Bytes> =
            rows.into_iter().map(|row| (row.key, row.value)).collect();
        for (range, value) in writes {
            rows.retain(|key, _| !range.contains(key));
            if let Some(value) = value {
                rows.insert(range.begin, value);
            }
        }
        rows.into_iter().map(|(key, value)| KeyValue { key, value }).collect()
    }

    /// The addresses of those who vote.
    async fn voters(self: &Arc<Self>, epoch: u64) -> Result<String> {
        let text = self.endpoint().describe().connection_string;
        let (_, known) = connection_parts(&text);
        let mark = if known.ends_with(":tls") { ":tls" } else { "" };
        let members = self.members_seen(epoch).await?;
        let voters: Vec<_> = members
            .iter()
            .filter(|member| member.votes)
            .map(|one| format!("{}{mark}", one.address))
            .collect();
        Ok(if voters.is_empty() { known.to_owned() } else { voters.join(",") })
    }

    async fn coordinators(self: &Arc<Self>, epoch: u64, part: &Part) -> Result<Vec<KeyValue>> {
        let text = self.endpoint().describe().connection_string;
        let description = connection_parts(&text).0;
        let processes = self.voters(epoch).await?;
        let row = |rest: &str, value: &str| KeyValue {
            key: part.key(rest.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let rows = vec![row("cluster_description", description), row("processes", &processes)];
        Ok(self.with_own_writes(part, rows))
    }

    fn trace(&self, part: &Part) -> Vec<KeyValue> {
        let mut state = self.lock();
        let trace = state.special(self).trace;
        let row =
            |rest: &[u8], value: String| KeyValue { key: part.key(rest), value: value.into() };
        vec![
            row(b"token", trace.token.to_string()),
            row(b"transaction_id", format!("{:032x}", trace.id)),
        ]
    }

    /// The value of a system key at the transaction's read version, whatever the transaction may
    /// read.
    pub(super) async fn read_system(
        self: &Arc<Self>,
        epoch: u64,
        key: &[u8],
    ) -> Result<Option<Bytes>> {
        self.be_lock_aware(epoch);
        let version = self.read_version(epoch, false).await?;
        let mut keys = KeyList::new();
        keys.push(key);
        let values = self.reading().get_many(version, KeySpace::System, &keys).await?;
        Ok(values.into_iter().next().flatten())
    }

    /// The rows of a range of system keys, likewise.
    pub(super) async fn read_system_range(
        self: &Arc<Self>,
        epoch: u64,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Vec<KeyValue>> {
        self.be_lock_aware(epoch);
        let version = self.read_version(epoch, false).await?;
        let mut from = Bytes::copy_from_slice(begin);
        let mut rows = Vec::new();
        loop {
            let read = plinth_types::RangeRead {
                begin: plinth_types::KeySelector::first_greater_or_equal(from),
                end: plinth_types::KeySelector::first_greater_or_equal(Bytes::copy_from_slice(end)),
                limit: usize::MAX,
                target_bytes: usize::MAX,
                reverse: false,
            };
            let result = self.reading().get_range(version, KeySpace::System, &read).await?;
            rows.extend(result.rows.key_values());
            match result.rows.last() {
                Some((last, _)) if result.more => from = key_after(last),
                _ => return Ok(rows),
            }
        }
    }

    /// Reads of the database's own state work while it is locked.
    fn be_lock_aware(&self, epoch: u64) {
        let mut state = self.lock();
        if state.life.epoch == epoch {
            state.options.commit.lock_aware = true;
        }
    }
}

/// Description and addresses of a connection string.
fn connection_parts(text: &str) -> (&str, &str) {
    let (name, processes) = text.split_once('@').unwrap_or((text, ""));
    (name.split_once(':').map_or(name, |(description, _)| description), processes)
}

/// The ranges of a list, merged, as rows: "1" where one begins, "0" where it ends.
fn boundaries(part: &Part, list: &RangeList) -> Vec<KeyValue> {
    let row =
        |key: &[u8], value: &'static [u8]| KeyValue { key: part.key(key), value: value.into() };
    let merged = coalesced(list);
    let mut rows = Vec::with_capacity(2 * merged.len());
    for range in &merged {
        rows.push(row(range.begin, b"1"));
        rows.push(row(&range.end_key(), b"0"));
    }
    rows
}

/// The write conflict ranges, those of versionstamped keys included: the key, once it is known, or
/// all it may become.
fn write_conflicts(state: &State) -> RangeList {
    let mut all = state.writes.conflicts.clone();
    let stamp = match &state.outcome.stamp {
        Some(Ok(stamp)) => Some(*stamp),
        _ => None,
    };
    for stamped in &state.writes.stamped {
        match stamp.and_then(|stamp| state.stamped_key(stamped.offset, stamp)) {
            Some(key) => all.push_single(&key),
            None => all.push(&stamped.range.begin, &stamped.range.end),
        }
    }
    all
}

impl State {
    /// The key that the mutation at `offset` writes with this stamp.
    fn stamped_key(&self, offset: usize, stamp: Versionstamp) -> Option<Vec<u8>> {
        let mutation = self.writes.mutations.at(offset)?;
        let (key, at) = mutation.param1.split_last_chunk::<4>()?;
        let at = usize::try_from(i32::from_le_bytes(*at)).ok()?;
        let mut key = key.to_vec();
        key.get_mut(at..at + Versionstamp::LEN)?.copy_from_slice(stamp.as_bytes());
        Some(key)
    }
}

/// What went wrong with a value of a special key.
pub(super) fn invalid(what: &str, value: &[u8]) -> Error {
    Error::special_keys_api_failure().with_detail(format!("{what}: {}", printable(value)))
}
