//! What the parts of the special key space contain.
//!
//! A part gives all its rows at once, made from what the transaction knows, from the endpoint's
//! description, or from system keys; limits, selectors and the transaction's own special writes are
//! applied to them elsewhere.

use super::{ConflictsOf, Host, Part, Source, SpecialKeys, settings};
use crate::conflicts::coalesced;
use bytes::Bytes;
use plinth_types::{Error, KeyRange, KeyValue, RangeList, Result, printable, system};
use std::collections::BTreeMap;

impl<H: Host> SpecialKeys<H> {
    /// The rows of a part; more than those between `begin` and `end` may be given.
    pub(super) async fn content(
        &self,
        part: &'static Part,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Vec<KeyValue>> {
        let text = |text: String| vec![KeyValue { key: part.key(b""), value: text.into() }];
        match part.source {
            Source::ReadConflicts => {
                self.host.reads_done().await?;
                Ok(boundaries(part, &self.host.conflicts(ConflictsOf::Reads)))
            }
            Source::WriteConflicts => {
                Ok(boundaries(part, &self.host.conflicts(ConflictsOf::Writes)))
            }
            Source::ConflictingKeys => {
                Ok(boundaries(part, &self.host.conflicts(ConflictsOf::LastCommit)))
            }
            Source::StatusJson => Ok(text(self.host.endpoint().status_json().await?)),
            Source::ClusterFilePath => Ok(text(self.host.endpoint().describe().cluster_file_path)),
            Source::ConnectionString => Ok(text(self.host.endpoint().describe().connection_string)),
            Source::ClusterId => Ok(text(self.host.endpoint().describe().cluster_id)),
            Source::ErrorMessage => {
                let message = self.host.with_special(|special, _| special.error_message());
                Ok(message.map(text).unwrap_or_default())
            }
            Source::ShardStatistics => {
                let all = KeyRange::new(Bytes::new(), system::SYSTEM_END);
                let bytes = self.host.endpoint().range_size(all).await?;
                Ok(text(format!(r#"{{"shard_bytes":{bytes},"shard_bytes_per_ksecond":0}}"#)))
            }
            Source::Health => Ok(vec![settings::health(part)]),
            Source::FaultTolerance => {
                let status = self.host.endpoint().status_json().await?;
                Ok(settings::fault_tolerance(&status)
                    .map(|found| text(found.to_owned()))
                    .unwrap_or_default())
            }
            Source::Coordinators => self.coordinators(part).await,
            Source::AutoCoordinators => Ok(text(self.voters().await?)),
            Source::Workers => self.workers(part).await,
            Source::InProgress => self.in_progress(part).await,
            Source::Tracing => Ok(self.trace(part)),
            Source::Tenants => self.tenant_rows(part, begin, end).await,
            source => {
                let rows = self.stored(part, source).await?;
                Ok(self.with_own_writes(part, rows))
            }
        }
    }

    /// Rows of parts that mirror system keys.
    async fn stored(&self, part: &'static Part, source: Source) -> Result<Vec<KeyValue>> {
        let row = |rest: &[u8], value: String| {
            vec![KeyValue { key: part.key(rest), value: value.into() }]
        };
        Ok(match source {
            Source::Locked => {
                let value = self.host.get(system::DATABASE_LOCKED).await?;
                value
                    .and_then(|value| settings::lock_id(&value))
                    .map(|id| row(b"", id))
                    .unwrap_or_default()
            }
            Source::ConsistencyCheckSuspended => {
                let value = self.host.get(settings::CONSISTENCY_CHECK_SUSPENDED).await?;
                if value.as_deref() == Some(&[1]) { row(b"", String::new()) } else { Vec::new() }
            }
            Source::MinRequiredCommitVersion => {
                let value = self.host.get(system::MIN_REQUIRED_COMMIT_VERSION).await?;
                settings::number(value.as_deref())
                    .map(|n| row(b"", n.to_string()))
                    .unwrap_or_default()
            }
            Source::VersionEpoch => {
                let value = self.host.get(settings::VERSION_EPOCH).await?;
                settings::number(value.as_deref())
                    .map(|n| row(b"", n.to_string()))
                    .unwrap_or_default()
            }
            Source::Maintenance => {
                let value = self.host.get(settings::HEALTHY_ZONE).await?;
                let now = self.host.read_version().await?;
                let zone = value.as_deref().and_then(|value| settings::maintenance(value, now));
                zone.map(|(zone, seconds)| row(&zone, seconds)).unwrap_or_default()
            }
            Source::DataDistribution => {
                let mode = self.host.get(settings::DATA_DISTRIBUTION_MODE).await?;
                let ignored = self.host.get(settings::REBALANCE_IGNORED).await?;
                let mode = mode
                    .and_then(|mode| mode.first_chunk::<4>().map(|mode| i32::from_le_bytes(*mode)));
                let mut rows = row(b"mode", mode.unwrap_or(-1).to_string());
                rows.extend(ignored.map(|_| KeyValue {
                    key: part.key(b"rebalance_ignored"),
                    value: Bytes::new(),
                }));
                rows
            }
            Source::Places(_, prefix) => self.place_rows(part, prefix).await?,
            Source::Profiling => {
                let mut rows = row(b"client_txn_sample_rate", "default".into());
                rows.extend(row(b"client_txn_size_limit", "default".into()));
                rows
            }
            Source::GlobalConfig => {
                let (begin, end) = settings::global_config_range();
                let rows = self.host.get_range(&begin, &end).await?;
                rows.into_iter()
                    .filter_map(|stored| settings::global_config_row(part, &stored))
                    .collect()
            }
            _ => Vec::new(),
        })
    }

    /// Rows as this transaction's writes to special keys leave them.
    fn with_own_writes(&self, part: &Part, rows: Vec<KeyValue>) -> Vec<KeyValue> {
        let writes = self.host.with_special(|special, allowed| match allowed.own_writes {
            true => special.written(&part.range()),
            false => Vec::new(),
        });
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
    async fn voters(&self) -> Result<String> {
        let text = self.host.endpoint().describe().connection_string;
        let (_, known) = connection_parts(&text);
        let mark = if known.ends_with(":tls") { ":tls" } else { "" };
        let members = self.members_seen().await?;
        let voters: Vec<_> = members
            .iter()
            .filter(|member| member.votes)
            .map(|one| format!("{}{mark}", one.address))
            .collect();
        Ok(if voters.is_empty() { known.to_owned() } else { voters.join(",") })
    }

    async fn coordinators(&self, part: &Part) -> Result<Vec<KeyValue>> {
        let text = self.host.endpoint().describe().connection_string;
        let description = connection_parts(&text).0;
        let processes = self.voters().await?;
        let row = |rest: &str, value: &str| KeyValue {
            key: part.key(rest.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
        };
        let rows = vec![row("cluster_description", description), row("processes", &processes)];
        Ok(self.with_own_writes(part, rows))
    }

    fn trace(&self, part: &Part) -> Vec<KeyValue> {
        let env = self.host.env();
        let trace = self.host.with_special(|special, _| special.trace(env));
        let row =
            |rest: &[u8], value: String| KeyValue { key: part.key(rest), value: value.into() };
        vec![
            row(b"token", trace.token.to_string()),
            row(b"transaction_id", format!("{:032x}", trace.id)),
        ]
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

/// What went wrong with a value of a special key.
pub(super) fn invalid(what: &str, value: &[u8]) -> Error {
    Error::special_keys_api_failure().with_detail(format!("{what}: {}", printable(value)))
}
