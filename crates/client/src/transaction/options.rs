//! What a transaction's options say, and how setting one is checked.
//!
//! Whether an option exists and has a value of the right length is known at once; whether its value
//! makes sense at this moment is an error that the next call reports, as FoundationDB's clients
//! expect.

use super::state::{After, State};
use super::{Inner, Transaction};
use crate::endpoint::Priority;
use crate::options::{TransactionOption, parameter};
use bytes::Bytes;
use plinth_types::{Error, KeySpace, Result, limits, system};
use std::sync::Arc;
use std::time::Duration;

/// Most tags a transaction may have.
const MAX_TAGS: usize = 5;
/// Most bytes in a tag.
const MAX_TAG_LENGTH: usize = 255;
/// Bytes of a serialized span.
const SPAN_LENGTH: usize = 33;

/// The options of a transaction.
pub(crate) struct Options {
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
    pub(crate) retry_limit: i32,
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

impl Options {
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
            retry_limit: -1,
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
}

impl Transaction {
    /// Sets an option.
    ///
    /// # Errors
    /// `invalid_option_value` if the option doesn't take the value; `client_invalid_operation` if
    /// it comes too late; `too_many_tags` and `tag_too_long`.
    pub fn set_option(&self, option: TransactionOption) -> Result<()> {
        self.inner.set_option(option.code(), option.value().as_bytes())
    }

    /// Sets an option by FoundationDB's code, the value as bytes, as the C library does: an unknown
    /// code is an error at once, every other error is deferred to the next read or commit.
    ///
    /// # Errors
    /// `invalid_option` for an unknown code.
    pub fn set_option_raw(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        if !TransactionOption::exists(code) {
            return Err(Error::invalid_option()
                .with_detail(format!("no transaction option has the code {code}")));
        }
        if self.inner.lock().life.deferred.is_some() {
            return Ok(());
        }
        if let Err(error) = self.inner.set_option(code, value) {
            self.inner.lock().life.deferred.get_or_insert(error);
        }
        Ok(())
    }
}

impl Transaction {
    /// Checks an option's value by setting it on a transaction that is thrown away.
    pub(crate) fn try_option(&self, code: i32, value: Option<&[u8]>) -> Result<()> {
        self.inner.set_option(code, value)
    }
}

impl Inner {
    fn set_option(self: &Arc<Self>, code: i32, value: Option<&[u8]>) -> Result<()> {
        let mut after = After::default();
        let result = {
            let mut state = self.lock();
            let result = self.apply_option(&mut state, code, value, &mut after);
            if result.is_ok() && TransactionOption::is_persistent(code) && self.api(610) {
                state.retry.persistent.push((code, value.map(Into::into)));
            }
            result
        };
        after.run();
        result
    }

    /// Sets the options that a transaction begins with; of several timeouts only the last counts.
    pub(super) fn apply_persistent(self: &Arc<Self>, state: &mut State, after: &mut After) {
        if state.retry.persistent.is_empty() {
            return;
        }
        let persistent = std::mem::take(&mut state.retry.persistent);
        let last_timeout = persistent.iter().rposition(|(code, _)| *code == 500);
        for (at, (code, value)) in persistent.iter().enumerate() {
            if (*code != 500 || Some(at) == last_timeout)
                && let Err(error) = self.apply_option(state, *code, value.as_deref(), after)
            {
                state.life.deferred.get_or_insert(error);
            }
        }
        state.retry.persistent = persistent;
    }

    fn apply_option(
        self: &Arc<Self>,
        state: &mut State,
        code: i32,
        value: Option<&[u8]>,
        after: &mut After,
    ) -> Result<()> {
        const MOST: i64 = i32::MAX as i64;
        let options = &mut state.options;
        match code {
            500 => {
                let timeout = parameter::int(value, 0, MOST)?;
                options.timeout = (timeout > 0).then(|| Duration::from_millis(timeout as u64));
                self.arm_timeout(state, after);
            }
            501 => options.retry_limit = parameter::int(value, -1, MOST)? as i32,
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
            800 | 801 => return add_tag(&mut options.version.tags, parameter::present(value)?),
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
            2000 | 507..=511 | 304 | 21 | 110 | 120 | 130 => {}
            _ => {
                parameter::none(value)?;
                return self.apply_flag(state, code);
            }
        }
        Ok(())
    }

    /// Options without a value.
    fn apply_flag(&self, state: &mut State, code: i32) -> Result<()> {
        let options = &mut state.options;
        match code {
            10 => options.commit.causal_write_risky = true,
            20 => options.version.causal_risky = true,
            23 => options.include_port = true,
            30 => options.next_write_no_conflict = true,
            51 => return disable_read_your_writes(state),
            200 => options.version.priority = Priority::Immediate,
            201 => options.version.priority = Priority::Batch,
            300 => {
                if !state.version.begin_fixed() {
                    return Err(Error::read_version_already_set());
                }
                state.version.fix(0);
                options.commit.causal_write_risky = true;
            }
            301..=303 if self.tenant.is_some() => {
                return Err(Error::invalid_option()
                    .with_detail("a tenant's transaction sees its tenant alone"));
            }
            301 => options.access = Access { read_system: true, write_system: true, raw: true },
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
                self.env().fill_random(&mut id);
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
            711 if self.tenant.is_some() => return Err(Error::invalid_option()),
            712 => options.commit.report_conflicting_keys = true,
            713 => options.special.relaxed = true,
            714 => options.special.writes = true,
            1100 => options.bypass_unreadable = true,
            3000 => return pin(state),
            1101 if self.api(720) => {
                return Err(
                    Error::invalid_option().with_detail("there is no cache of read versions")
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// Has the transaction fail when its timeout has passed, at once if it has.
    fn arm_timeout(self: &Arc<Self>, state: &mut State, after: &mut After) {
        if let Some(timer) = state.life.timer.take() {
            after.drop_later(timer);
        }
        let Some(timeout) = state.options.timeout else { return };
        let at = state.life.created + timeout;
        if at <= self.env().now() {
            return state.kill(Error::transaction_timed_out(), after);
        }
        let (inner, epoch) = (Arc::downgrade(self), state.life.epoch);
        state.life.timer = Some(self.env().call_at(at, move || {
            let Some(inner) = inner.upgrade() else { return };
            let mut after = After::default();
            let mut state = inner.lock();
            if state.life.epoch == epoch {
                state.kill(Error::transaction_timed_out(), &mut after);
            }
            drop(state);
            after.run();
        }));
    }
}

fn disable_read_your_writes(state: &mut State) -> Result<()> {
    let reads = &state.reads;
    let used = !state.options.ryw_disabled && (reads.any || state.writes.any);
    if used || reads.pending > 0 || reads.failed.is_some() {
        return Err(Error::client_invalid_operation()
            .with_detail("read-your-writes can be disabled only before the first read or write"));
    }
    state.options.ryw_disabled = true;
    Ok(())
}

/// Has the transaction read a version that is kept.
fn pin(state: &mut State) -> Result<()> {
    if !state.version.begin_fixed() {
        return Err(Error::client_invalid_operation()
            .with_detail("the transaction has a read version already: pin before the first read"));
    }
    state.options.version.pinned = true;
    Ok(())
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
fn identify(options: &mut Options, name: &[u8]) -> Result<()> {
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
