//! The operations on one key, in order, merged where that changes nothing.
//!
//! An operation on a known value is carried out at once. Operations on a value not yet read are
//! stacked; two of the same kind become one where that is valid for whatever the value turns out to
//! be. (It is not for sums, extremes and the like of operands of different lengths, because each
//! cuts the value to its operand's length.)

use bytes::Bytes;
use plinth_types::{Error, MutationType, Result, atomic};
use std::borrow::Cow;

/// One operation; a `Set` of no value means that the key doesn't exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: MutationType,
    pub(crate) value: Option<Bytes>,
}

impl Operation {
    /// The key doesn't exist.
    pub(crate) fn cleared() -> Self {
        Self { kind: MutationType::Set, value: None }
    }

    /// Whether the result depends on what was there before.
    pub(crate) fn is_dependent(&self) -> bool {
        self.kind != MutationType::Set && !self.kind.is_versionstamped()
    }
}

/// The operations on one key; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operations {
    first: Operation,
    rest: Vec<Operation>,
}

impl Operations {
    pub(crate) fn new(operation: Operation) -> Self {
        Self { first: operation, rest: Vec::new() }
    }

    pub(crate) fn is_dependent(&self) -> bool {
        self.first.is_dependent()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Operation> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(crate) fn push(&mut self, operation: Operation) {
        self.rest.push(operation);
    }

    fn top(&self) -> &Operation {
        self.rest.last().unwrap_or(&self.first)
    }

    fn replace_top(&mut self, operation: Operation) {
        *self.rest.last_mut().unwrap_or(&mut self.first) = operation;
    }

    /// Adds an operation, merged with the one before if possible.
    pub(crate) fn coalesce(&mut self, operation: Operation) {
        use MutationType as M;
        let top = self.top();
        let merged = if top.kind == operation.kind && operation.kind != M::CompareAndClear {
            let lengths = |operation: &Operation| operation.value.as_ref().map(Bytes::len);
            let apart = needs_equal_lengths(operation.kind)
                && top.value.is_some()
                && lengths(top) != lengths(&operation);
            if apart { None } else { combine(top, &operation).ok() }
        } else if top.kind != M::Set && operation.kind != M::Set {
            None
        } else {
            combine(top, &operation).ok()
        };
        match merged {
            Some(merged) => self.replace_top(merged),
            None => self.push(operation),
        }
    }

    /// What these operations make of `value`.
    ///
    /// # Errors
    /// `operation_failed` if an operation stands on a value that gets its versionstamp only at
    /// commit.
    pub(crate) fn apply(&self, value: Option<Bytes>) -> Result<Option<Bytes>> {
        if !self.is_dependent() && self.rest.is_empty() {
            return Ok(self.first.value.clone());
        }
        let mut current = Operation { kind: MutationType::Set, value };
        for operation in self.iter() {
            current = combine(&current, operation)?;
        }
        Ok(current.value)
    }
}

/// Kinds of which two can be merged only if their operands have the same length.
fn needs_equal_lengths(kind: MutationType) -> bool {
    use MutationType as M;
    matches!(
        kind,
        M::Add
            | M::BitOr
            | M::BitXor
            | M::Max
            | M::Min
            | M::MinV2
            | M::SetVersionstampedValue
            | M::CompareAndClear
    )
}

/// One operation that does what `earlier` and then `later` do.
fn combine(earlier: &Operation, later: &Operation) -> Result<Operation> {
    use MutationType as M;
    let operand = later.value.clone().unwrap_or_default();
    match later.kind {
        M::Set | M::SetVersionstampedValue => Ok(later.clone()),
        M::SetVersionstampedKey | M::ClearRange => Err(Error::operation_failed()),
        kind if earlier.kind == M::Set || (earlier.kind == kind && kind != M::CompareAndClear) => {
            let value = match atomic::apply(kind, earlier.value.as_deref(), &operand) {
                None => None,
                Some(Cow::Owned(bytes)) => Some(Bytes::from(bytes)),
                Some(Cow::Borrowed(bytes)) if std::ptr::eq(bytes, &operand[..]) => {
                    Some(operand.clone())
                }
                Some(Cow::Borrowed(bytes)) => Some(match &earlier.value {
                    Some(value) if std::ptr::eq(bytes, &value[..]) => value.clone(),
                    _ => Bytes::copy_from_slice(bytes),
                }),
            };
            Ok(Operation { kind: earlier.kind, value })
        }
        _ => Err(Error::operation_failed()
            .with_detail("an atomic operation on a value that gets its versionstamp at commit")),
    }
}
