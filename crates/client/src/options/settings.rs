//! What a transaction's options say, and how setting one is checked.
//!
//! Whether an option exists and has a value of the right length is known at once; whether its value
//! makes sense at this moment is an error that the next call reports, as FoundationDB's clients
//! expect. What else a transaction has to do about an option is an [`Effect`].

use super::parameter;
use crate::endpoint::Priority;
use bytes::Bytes;
use plinth_env::Env;
use plinth_types::{Error, KeySpace, Result, Version, limits, system};
use std::time::Duration;

/// Most tags a transaction may have.
const MAX_TAGS: usize = 5;
/// Most bytes in a tag.
const MAX_TAG_LENGTH: usize = 255;
/// Bytes of a serialized span.
const SPAN_LENGTH: usize = 33;

/// The options of a transaction.
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) ryw_disabled: bool,
    /// Snapshot reads see own writes while this is above zero.
    pub(crate) snapshot_ryw: i64,
    pub(crate) next_write_no_conflict: bool,
    pub(crate) used_during_commit_protection_disabled: bool,
    pub(crate) bypass_unreadable: bool,
    pub(crate) special: SpecialAccess,
    pub(crate) commit: CommitOptions,
    pub(crate) version: VersionOptions,
    /// `None`: any number.
    pub(crate) retry_limit: Option<usize>,
    pub(crate) max_retry_delay: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) log_identifier: Option<Box<[u8]>>,
    /// Whether addresses come with ports (before API version 630 they don't by themselves).
    pub(crate) include_port: bool,
}

/// Which keys may be used.
#[derive(Clone, Copy, Default)]
pub(crate) struct Access {
    pub(crate) read_system: bool,
    pub(crate) write_system: bool,
    pub(crate) raw: bool,
    /// Single keys of the place of time series, whatever else.
    pub(crate) series: bool,
}

impl Access {
    /// The same, and all of the system's keys.
    fn with_system(self) -> Self {
        Self { read_system: true, write_system: true, raw: true, ..self }
    }
}

/// What may be done with special keys.
#[derive(Clone, Copy, Default)]
pub(crate) struct SpecialAccess {
    pub(crate) relaxed: bool,
    pub(crate) writes: bool,
}

/// What commit goes by.
pub(crate) struct CommitOptions {
    pub(crate) size_limit: usize,
    pub(crate) causal_write_risky: bool,
    pub(crate) report_conflicting_keys: bool,
    pub(crate) lock_aware: bool,
    pub(crate) read_only: bool,
    pub(crate) idempotency: Option<Idempotency>,
}

/// The id under which a commit leaves its record.
#[derive(Clone)]
pub(crate) struct Idempotency {
    pub(crate) id: Bytes,
}

/// What the request for a read version says.
#[derive(Default)]
pub(crate) struct VersionOptions {
    pub(crate) priority: Priority,
    pub(crate) causal_risky: bool,
    /// The version is one that is kept, and nothing is written.
    pub(crate) pinned: bool,
    pub(crate) tags: Vec<Bytes>,
}

impl Settings {
    pub(crate) fn new(snapshot_ryw: i64) -> Self {
        Self {
            access: Access::default(),
            ryw_disabled: false,
            snapshot_ryw,
            next_write_no_conflict: false,
            used_during_commit_protection_disabled: false,
            bypass_unreadable: false,
            special: SpecialAccess::default(),
            commit: CommitOptions {
                size_limit: limits::TRANSACTION_SIZE,
                causal_write_risky: false,
                report_conflicting_keys: false,
                lock_aware: false,
                read_only: false,
                idempotency: None,
            },
            version: VersionOptions::default(),
            retry_limit: None,
            max_retry_delay: Duration::from_secs(1),
            timeout: None,
            log_identifier: None,
            include_port: false,
        }
    }

    #[inline]
    pub(crate) fn may_read_system_keys(&self) -> bool {
        self.access.read_system
    }

    /// The part of the key space that reads see.
    #[inline]
    pub(crate) fn read_space(&self) -> KeySpace {
        if self.access.read_system { KeySpace::System } else { KeySpace::Normal }
    }

    /// The first key that reads may not name.
    #[inline]
    pub(crate) fn max_read_key(&self) -> &'static [u8] {
        self.read_space().end()
    }

    /// The first key that writes may not name.
    #[inline]
    pub(crate) fn max_write_key(&self) -> &'static [u8] {
        if self.access.write_system { system::SYSTEM_END } else { system::NORMAL_END }
    }

    #[inline]
    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        key < self.max_read_key() || self.is_of_series(key)
    }

    #[inline]
    pub(crate) fn may_write(&self, key: &[u8]) -> bool {
        key < self.max_write_key() || self.is_of_series(key)
    }

    #[inline]
    fn is_of_series(&self, key: &[u8]) -> bool {
        self.access.series && key.starts_with(system::SERIES_PREFIX)
    }

    /// Sets an option, by FoundationDB's code.
    pub(crate) fn apply(
        &mut self,
        code: i32,
        value: Option<&[u8]>,
        situation: &Situation,
        env: &Env,
    ) -> Result<Effect> {
        const MOST: i64 = i32::MAX as i64;
        let options = self;
        match code {
            500 => {
                let timeout = parameter::int(value, 0, MOST)?;
                options.timeout = (timeout > 0).then(|| Duration::from_millis(timeout as u64));
                return Ok(Effect::ArmTimeout);
            }
            501 => options.retry_limit = usize::try_from(parameter::int(value, -1, MOST)?).ok(),
            502 => {
                options.max_retry_delay =
                    Duration::from_millis(parameter::int(value, 0, MOST)? as u64)
            }
            503 => {
                let (least, most) = (limits::MIN_TRANSACTION_SIZE_LIMIT, limits::TRANSACTION_SIZE);
                options.commit.size_limit =
                    parameter::int(value, least as i64, most as i64)? as usize;
            }
            504 => {
                let id = parameter::present(value)?;
                if !(16..256).contains(&id.len()) {
                    return Err(Error::invalid_option().with_detail(format!(
                        "an idempotency id has 16 to 255 bytes, not {}",
                        id.len()
                    )));
                }
                options.commit.idempotency = Some(Idempotency { id: Bytes::copy_from_slice(id) });
            }
            800 | 801 => {
                add_tag(&mut options.version.tags, parameter::present(value)?)?;
            }
            900 => check_span(parameter::present(value)?)?,
            401 => {}
            402 => {
                identify(options, parameter::present(value)?)?;
            }
            403 => identify(options, parameter::present(value)?)?,
            405 => {
                if parameter::int(value, -1, MOST)? == 0 {
                    return Err(Error::invalid_option_value()
                        .with_detail("a field of no length says nothing"));
                }
            }
            2000 => {
                let token = Bytes::copy_from_slice(value.unwrap_or_default());
                return Ok(Effect::ShowToken(token));
            }
            507..=511 | 304 | 21 | 110 | 120 | 130 => {}
            _ => {
                parameter::none(value)?;
                return options.apply_flag(code, situation, env);
            }
        }
        Ok(Effect::None)
    }

    /// Options without a value.
    fn apply_flag(&mut self, code: i32, situation: &Situation, env: &Env) -> Result<Effect> {
        let options = self;
        match code {
            10 => options.commit.causal_write_risky = true,
            20 => options.version.causal_risky = true,
            23 => options.include_port = true,
            30 => options.next_write_no_conflict = true,
            51 => options.disable_read_your_writes(situation)?,
            200 => options.version.priority = Priority::Immediate,
            201 => options.version.priority = Priority::Batch,
            300 => {
                if situation.has_version {
                    return Err(Error::read_version_already_set());
                }
                options.commit.causal_write_risky = true;
                return Ok(Effect::FixVersion(0));
            }
            301..=303 if situation.has_tenant => {
                return Err(Error::invalid_option()
                    .with_detail("a tenant's transaction sees its tenant alone"));
            }
            301 => options.access = options.access.with_system(),
            302 => {
                options.access.read_system = true;
                options.access.raw = true;
            }
            303 => options.access.raw = true,
            404 if options.log_identifier.is_none() => {
                return Err(Error::client_invalid_operation()
                    .with_detail("a transaction needs an identifier before it can be logged"));
            }
            505 if options.commit.idempotency.is_none() => {
                let mut id = vec![0; 16];
                env.fill_random(&mut id);
                options.commit.idempotency = Some(Idempotency { id: id.into() });
            }
            600 => options.snapshot_ryw += 1,
            601 => options.snapshot_ryw -= 1,
            700 => {
                options.commit.lock_aware = true;
                options.commit.read_only = false;
            }
            701 => options.used_during_commit_protection_disabled = true,
            702 if !options.commit.lock_aware => {
                options.commit.lock_aware = true;
                options.commit.read_only = true;
            }
            711 if situation.has_tenant => return Err(Error::invalid_option()),
            712 => options.commit.report_conflicting_keys = true,
            713 => options.special.relaxed = true,
            714 => options.special.writes = true,
            1100 => options.bypass_unreadable = true,
            3000 if situation.has_version => {
                return Err(Error::client_invalid_operation().with_detail(
                    "the transaction has a read version already: pin before the first read",
                ));
            }
            3000 => options.version.pinned = true,
            1101 if situation.api >= 720 => {
                return Err(
                    Error::invalid_option().with_detail("there is no cache of read versions")
                );
            }
            _ => {}
        }
        Ok(Effect::None)
    }

    fn disable_read_your_writes(&mut self, situation: &Situation) -> Result<()> {
        let used = !self.ryw_disabled && situation.is_used;
        if used || situation.has_reads_left {
            return Err(Error::client_invalid_operation().with_detail(
                "read-your-writes can be disabled only before the first read or write",
            ));
        }
        self.ryw_disabled = true;
        Ok(())
    }

    /// Checks the value of an option, as if it were set on a new transaction.
    pub(crate) fn check(code: i32, value: Option<&[u8]>, env: &Env) -> Result<()> {
        let situation = Situation { api: i32::MAX, ..Situation::default() };
        Self::new(0).apply(code, value, &situation, env).map(drop)
    }
}

/// How far a transaction is when an option is set.
#[derive(Default)]
pub(crate) struct Situation {
    pub(crate) api: i32,
    pub(crate) has_tenant: bool,
    /// Whether it has read or written anything.
    pub(crate) is_used: bool,
    /// Whether reads have no answer yet, or one has failed.
    pub(crate) has_reads_left: bool,
    /// Whether a read version was asked for or set.
    pub(crate) has_version: bool,
}

/// What a transaction has to do about an option that was set.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Effect {
    None,
    /// Let the timeout run anew.
    ArmTimeout,
    /// Read at this version.
    FixVersion(Version),
    /// Show this token with all that is asked for.
    ShowToken(Bytes),
}

fn add_tag(tags: &mut Vec<Bytes>, tag: &[u8]) -> Result<()> {
    if tag.len() > MAX_TAG_LENGTH {
        return Err(Error::tag_too_long()
            .with_detail(format!("{} bytes, at most {MAX_TAG_LENGTH}", tag.len())));
    }
    if tags.len() >= MAX_TAGS {
        return Err(Error::too_many_tags().with_detail(format!("at most {MAX_TAGS}")));
    }
    if !tags.iter().any(|known| known[..] == *tag) {
        tags.push(Bytes::copy_from_slice(tag));
    }
    Ok(())
}

fn check_span(span: &[u8]) -> Result<()> {
    if span.len() == SPAN_LENGTH {
        return Ok(());
    }
    Err(Error::invalid_option_value()
        .with_detail(format!("a span has {SPAN_LENGTH} bytes, not {}", span.len())))
}

/// Names the transaction for logs; a second name must be the first one again.
fn identify(options: &mut Settings, name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > 100 {
        return Err(Error::invalid_option_value()
            .with_detail(format!("an identifier has 1 to 100 bytes, not {}", name.len())));
    }
    match &options.log_identifier {
        Some(known) if **known != *name => {
            Err(Error::client_invalid_operation()
                .with_detail("the transaction has another identifier"))
        }
        _ => {
            options.log_identifier = Some(name.into());
            Ok(())
        }
    }
}
