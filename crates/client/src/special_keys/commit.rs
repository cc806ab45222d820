//! Turning writes of special keys into writes of system keys, at commit.
//!
//! Each part checks what was written into it and adds the system keys that mean it to the
//! transaction's own writes, so that both take effect together. The first part that refuses leaves
//! an error message and no write.

use super::content::invalid;
use super::{Host, PARTS, Part, Source, SpecialKeys, settings};
use bytes::Bytes;
use plinth_types::{Error, KeyRange, Result, system};

/// Written ranges of one part.
type Changes = Vec<(KeyRange, Option<Bytes>)>;

/// Why a part refuses its changes: command and message.
pub(super) type Refusal = (&'static str, String);

impl<H: Host> SpecialKeys<H> {
    /// Carries out what was written to special keys.
    pub(crate) async fn commit(self) -> Result<()> {
        let writes = self.host.with_special(|special, allowed| match allowed.writes {
            true => special.writes(),
            false => Ok(None),
        });
        let Some(writes) = writes? else { return Ok(()) };
        for part in PARTS.iter().filter(|part| part.writable) {
            let range = part.range();
            let changes = writes.iter(&range.begin, &range.end);
            if changes.is_empty() {
                continue;
            }
            if let Some((command, message)) = self.commit_part(part, changes).await? {
                let env = self.host.env();
                self.host.with_special(|special, _| special.note_refusal(env, command, &message));
                return Err(Error::special_keys_api_failure().with_detail(message));
            }
        }
        Ok(())
    }

    async fn commit_part(&self, part: &'static Part, changes: Changes) -> Result<Option<Refusal>> {
        let last = changes.last().and_then(|(_, value)| value.clone());
        match part.source {
            Source::Locked => self.commit_lock(last).await,
            Source::ConsistencyCheckSuspended => {
                let value = [u8::from(last.is_some())];
                self.host.write(settings::CONSISTENCY_CHECK_SUSPENDED, Some(&value));
                Ok(None)
            }
            Source::MinRequiredCommitVersion => self.commit_min_version(last).await,
            Source::VersionEpoch => {
                let value = last.map(|value| {
                    value
                        .first_chunk::<8>()
                        .copied()
                        .ok_or_else(|| invalid("not a version", &value))
                });
                let value = value.transpose()?;
                self.host.write(settings::VERSION_EPOCH, value.as_ref().map(|value| &value[..]));
                Ok(None)
            }
            Source::Maintenance => self.commit_maintenance(part, &changes).await,
            Source::DataDistribution => Ok(self.commit_data_distribution(part, &changes)),
            Source::GlobalConfig => {
                self.commit_global_config(part, &changes);
                Ok(None)
            }
            Source::Tenants => self.commit_tenants(part, &changes).await,
            Source::CommandOptions | Source::Profiling => Ok(None),
            Source::Coordinators => self.commit_coordinators(part, &changes).await,
            Source::Places(..) => self.commit_places(part, &changes).await,
            Source::Nothing(command) if changes.iter().any(|(_, value)| value.is_some()) => {
                Ok(Some((
                    command,
                    "This database has no servers that could be changed one by one".into(),
                )))
            }
            _ => Ok(None),
        }
    }

    async fn commit_lock(&self, id: Option<Bytes>) -> Result<Option<Refusal>> {
        let wanted = match &id {
            None => None,
            Some(text) => match settings::parse_lock_id(text) {
                Some(id) => Some(id),
                None => {
                    let text = String::from_utf8_lossy(text);
                    return Ok(Some(("lock", format!("Invalid UID hex string: {text}"))));
                }
            },
        };
        let value = self.get_seriously(system::DATABASE_LOCKED).await?;
        match (wanted, value) {
            (Some(id), Some(value)) => {
                if value.get(settings::LOCK_PREFIX.len()..) != Some(&id[..]) {
                    return Err(Error::database_locked());
                }
            }
            (Some(id), None) => {
                let operand = [&settings::LOCK_PREFIX[..], &id, &[0; 4]].concat();
                self.host.lock_database(&operand);
            }
            (None, Some(_)) => self.host.write(system::DATABASE_LOCKED, None),
            (None, None) => {}
        }
        Ok(None)
    }

    async fn commit_min_version(&self, text: Option<Bytes>) -> Result<Option<Refusal>> {
        const COMMAND: &str = "advanceversion";
        /// A database that starts here has a thousand years left.
        const MOST: i64 = i64::MAX - 1 - 1_000_000 * 3600 * 24 * 365 * 1000;
        let Some(text) = text else {
            self.host.write(system::MIN_REQUIRED_COMMIT_VERSION, None);
            return Ok(None);
        };
        let refuse = |message: String| Ok(Some((COMMAND, message)));
        let Some(version) = settings::parse_number(&text) else {
            return refuse(format!(
                "Invalid version(int64_t) argument: {}",
                String::from_utf8_lossy(&text)
            ));
        };
        if self.host.get(settings::VERSION_EPOCH).await?.is_some() {
            return refuse("The version cannot be changed while there is a version epoch".into());
        }
        if version > MOST {
            return refuse(format!("The version is larger than it may be ({MOST})"));
        }
        if self.host.read_version().await? > version {
            return refuse("Current read version is larger than the given version".into());
        }
        let value = (version + 1).to_le_bytes();
        self.host.write(system::MIN_REQUIRED_COMMIT_VERSION, Some(&value));
        Ok(None)
    }

    async fn commit_maintenance(
        &self,
        part: &'static Part,
        changes: &Changes,
    ) -> Result<Option<Refusal>> {
        const COMMAND: &str = "maintenance";
        let refuse = |message: String| Ok(Some((COMMAND, message)));
        let stored = self.get_seriously(settings::HEALTHY_ZONE).await?;
        let current = stored.as_deref().and_then(settings::maintenance_zone);
        let mut set = changes.iter().filter_map(|(range, value)| Some((range, value.as_ref()?)));
        let Some((range, text)) = set.next() else {
            let is_cleared = current.is_some_and(|zone| {
                changes.iter().any(|(range, _)| range.contains(&part.key(&zone)))
            });
            if is_cleared {
                self.host.write(settings::HEALTHY_ZONE, None);
            }
            return Ok(None);
        };
        if set.next().is_some() {
            return refuse("Only one zone can be in maintenance at a time".into());
        }
        let seconds = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        let Some(seconds) = seconds.filter(|seconds| *seconds >= 0.0) else {
            return refuse(format!("Not a number of seconds: {}", String::from_utf8_lossy(text)));
        };
        if current.as_deref() == Some(settings::IGNORE_FAILURES_ZONE) {
            return refuse("Maintenance cannot begin while failures of storage are ignored".into());
        }
        let zone = range.begin.slice(part.key(b"").len()..);
        let until = settings::version_after(self.host.read_version().await?, seconds);
        let value = settings::maintenance_value(&zone, until);
        self.host.write(settings::HEALTHY_ZONE, Some(&value));
        Ok(None)
    }

    fn commit_data_distribution(&self, part: &'static Part, changes: &Changes) -> Option<Refusal> {
        const COMMAND: &str = "datadistribution";
        for (range, value) in changes {
            let (mode, ignored) = (part.key(b"mode"), part.key(b"rebalance_ignored"));
            match value {
                Some(value) if range.begin == mode => match settings::parse_number(value) {
                    Some(number @ 0..=2) => {
                        let number = (number as i32).to_le_bytes();
                        self.host.write(settings::DATA_DISTRIBUTION_MODE, Some(&number));
                    }
                    _ => {
                        let text = String::from_utf8_lossy(value);
                        return Some((
                            COMMAND,
                            format!("The mode is 0 (off) or 1 (on), not {text}"),
                        ));
                    }
                },
                Some(value) if range.begin == ignored => {
                    self.host.write(settings::REBALANCE_IGNORED, Some(value));
                }
                Some(_) => {
                    return Some((
                        COMMAND,
                        "There are mode and rebalance_ignored, nothing else".into(),
                    ));
                }
                None => {
                    if range.contains(&mode) {
                        self.host.write(settings::DATA_DISTRIBUTION_MODE, None);
                    }
                    if range.contains(&ignored) {
                        self.host.write(settings::REBALANCE_IGNORED, None);
                    }
                }
            }
        }
        None
    }

    fn commit_global_config(&self, part: &'static Part, changes: &Changes) {
        let prefix = part.key(b"").len();
        for (range, value) in changes {
            let begin = settings::global_config_key(&range.begin[prefix..]);
            match value {
                Some(value) => self.host.write(&begin, Some(value)),
                None => {
                    let end = if range.end.starts_with(&part.key(b"")) {
                        settings::global_config_key(&range.end[prefix..])
                    } else {
                        settings::global_config_range().1
                    };
                    self.host.clear(&begin, &end);
                }
            }
        }
    }
}
