//! Setting a transaction's options, and keeping those that outlive a try.

use super::after::After;
use super::state::State;
use super::{Inner, Transaction};
use crate::options::{Effect, Situation, TransactionOption};
use bytes::Bytes;
use plinth_types::{Error, Result};
use std::sync::Arc;

impl Transaction {
    /// Sets an option.
    ///
    /// # Errors
    /// `invalid_option_value` if the option doesn't take the value; `client_invalid_operation` if
    /// it comes too late; `too_many_tags` and `tag_too_long`.
    pub fn set_option(&self, option: TransactionOption) -> Result<()> {
        self.inner.set_option(option.code(), option.value().as_bytes())
    }

    /// Lets this try of the transaction read and write single keys of the place of time series, for
    /// the layer that has them, and nothing else of the system's. A tenant's transaction sees its
    /// tenant alone, and stays so.
    pub fn reach_series(&self) {
        if !self.inner.has_tenant() {
            self.inner.lock().options.access.series = true;
        }
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
        if self.inner.lock().life.is_deferred() {
            return Ok(());
        }
        let result = self.inner.set_option(code, value);
        self.inner.lock().defer(result);
        Ok(())
    }
}

impl Inner {
    fn set_option(self: &Arc<Self>, code: i32, value: Option<&[u8]>) -> Result<()> {
        let mut after = After::default();
        let result = {
            let mut state = self.lock();
            let result = self.apply_option(&mut state, code, value, &mut after);
            if result.is_ok() && TransactionOption::is_persistent(code) && self.api(610) {
                state.persistent.push((code, value.map(Into::into)));
            }
            result
        };
        after.run();
        result
    }

    /// Sets the options that a transaction begins with; of several timeouts only the last counts.
    pub(super) fn apply_persistent(self: &Arc<Self>, state: &mut State, after: &mut After) {
        if state.persistent.is_empty() {
            return;
        }
        let persistent = std::mem::take(&mut state.persistent);
        let last_timeout = persistent.iter().rposition(|(code, _)| *code == 500);
        for (at, (code, value)) in persistent.iter().enumerate() {
            if (*code != 500 || Some(at) == last_timeout)
                && let Err(error) = self.apply_option(state, *code, value.as_deref(), after)
            {
                state.life.defer(error);
            }
        }
        state.persistent = persistent;
    }

    fn apply_option(
        self: &Arc<Self>,
        state: &mut State,
        code: i32,
        value: Option<&[u8]>,
        after: &mut After,
    ) -> Result<()> {
        let situation = Situation {
            api: self.api_version(),
            has_tenant: self.has_tenant(),
            is_used: state.reads.is_used() || state.writes.is_used(),
            has_reads_left: !state.reads.is_settled(),
            has_version: !state.version.is_unset(),
        };
        match state.options.apply(code, value, &situation, self.env())? {
            Effect::None => {}
            Effect::ArmTimeout => self.arm_timeout(state, after),
            Effect::FixVersion(version) => state.version.fix(version),
            Effect::ShowToken(token) => self.show(&token),
        }
        Ok(())
    }

    /// Shows a token from now on; an empty one is none.
    fn show(&self, token: &Bytes) {
        let endpoint = self.database().endpoint().clone();
        self.shown.set(if token.is_empty() { None } else { endpoint.showing(token) });
    }

    /// Has the transaction fail when its timeout has passed, at once if it has.
    fn arm_timeout(self: &Arc<Self>, state: &mut State, after: &mut After) {
        if let Some(timer) = state.life.disarm() {
            after.drop_later(timer);
        }
        let Some(timeout) = state.options.timeout else { return };
        let at = state.life.deadline(timeout);
        if at <= self.env().now() {
            return state.kill(Error::transaction_timed_out(), after);
        }
        let (inner, epoch) = (Arc::downgrade(self), state.life.epoch());
        let timer = self.env().call_at(at, move || {
            let Some(inner) = inner.upgrade() else { return };
            let mut after = After::default();
            let mut state = inner.lock();
            if state.life.is_in(epoch) {
                state.kill(Error::transaction_timed_out(), &mut after);
            }
            drop(state);
            after.run();
        });
        state.life.arm(timer);
    }
}
