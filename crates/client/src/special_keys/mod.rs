//! Special keys: what `\xff\xff…` shows of the transaction and the database.

use crate::range::{Limits, RangeOptions};
use crate::transaction::{Inner, State};
use bytes::Bytes;
use plinth_env::reply::Reply;
use plinth_types::{RangeResult, Result};
use std::sync::Arc;

/// Writes to special keys that wait for commit.
#[derive(Default)]
pub(crate) struct SpecialState {}

impl Inner {
    pub(crate) fn special_get(self: &Arc<Self>, _key: &[u8]) -> Option<Reply<Option<Bytes>>> {
        None
    }

    pub(crate) fn special_range(
        self: &Arc<Self>,
        _range: &RangeOptions,
        _limits: Option<Limits>,
    ) -> Option<Reply<RangeResult>> {
        None
    }

    pub(crate) async fn special_commit(&self, _epoch: u64) -> Result<()> {
        Ok(())
    }

    pub(crate) fn special_set(&self, _state: &mut State, _key: &[u8], _value: &[u8]) -> Result<()> {
        Err(plinth_types::Error::special_keys_write_disabled())
    }

    pub(crate) fn special_clear(&self, _state: &mut State, _begin: &[u8], _end: &[u8]) -> Result<()> {
        Err(plinth_types::Error::special_keys_write_disabled())
    }
}
