//! What a transaction did to special keys: what it wrote, which waits for commit; the message of
//! the last refusal; the span that the tracing module shows.
//!
//! Most transactions never touch special keys, so there is nothing of this until one does.

use super::ranges::RangeMap;
use super::{Allowed, Part, Source, bare, error_message, parts, settings};
use bytes::Bytes;
use plinth_env::Env;
use plinth_types::{Error, KeyRange, Result};

/// What a transaction did to special keys; nothing so far, by default.
#[derive(Default)]
pub(crate) struct Special {
    touched: Option<Box<Touched>>,
}

struct Touched {
    /// Written ranges: a value, or none for what was cleared.
    writes: RangeMap<Option<Bytes>>,
    error_message: Option<String>,
    trace: Trace,
}

/// The span that the transaction is part of, as the tracing module shows it.
#[derive(Clone, Copy)]
pub(super) struct Trace {
    pub(super) id: u128,
    pub(super) token: u64,
    /// Whether a tracing option came too late, so that commit must fail.
    is_late: bool,
}

/// A write of special keys: by whom it comes.
pub(crate) struct Writer<'a> {
    pub(crate) env: &'a Env,
    pub(crate) api: i32,
    pub(crate) allowed: Allowed,
    /// Whether the transaction has read or written anything that counts to its size.
    pub(crate) is_begun: bool,
}

impl Touched {
    fn new(env: &Env) -> Self {
        let mut id = [0; 16];
        env.fill_random(&mut id);
        let trace = Trace { id: u128::from_be_bytes(id), token: 0, is_late: false };
        Self { writes: RangeMap::new(), error_message: None, trace }
    }
}

impl Special {
    fn touch(&mut self, env: &Env) -> &mut Touched {
        self.touched.get_or_insert_with(|| Box::new(Touched::new(env)))
    }

    /// Whether commit has something to do.
    pub(crate) fn needs_commit(&self) -> bool {
        self.touched
            .as_ref()
            .is_some_and(|touched| !touched.writes.is_empty() || touched.trace.is_late)
    }

    /// What was written, if anything was; fails if a tracing option came too late.
    pub(super) fn writes(&self) -> Result<Option<RangeMap<Option<Bytes>>>> {
        let Some(touched) = &self.touched else { return Ok(None) };
        if touched.trace.is_late {
            return Err(Error::special_keys_api_failure());
        }
        Ok(Some(touched.writes.clone()))
    }

    /// What was written into a range.
    pub(super) fn written(&self, range: &KeyRange) -> Vec<(KeyRange, Option<Bytes>)> {
        let written = |touched: &Touched| touched.writes.iter(&range.begin, &range.end);
        self.touched.as_deref().map(written).unwrap_or_default()
    }

    pub(super) fn error_message(&self) -> Option<String> {
        self.touched.as_ref().and_then(|touched| touched.error_message.clone())
    }

    pub(super) fn trace(&mut self, env: &Env) -> Trace {
        self.touch(env).trace
    }

    /// Keeps a message that can be read afterwards.
    pub(super) fn note_refusal(&mut self, env: &Env, command: &str, message: &str) {
        self.touch(env).error_message = Some(error_message(command, message));
    }

    /// Fails with a message that can be read afterwards.
    fn refuse(&mut self, env: &Env, command: &str, message: &str) -> Result<()> {
        self.note_refusal(env, command, message);
        Err(Error::special_keys_api_failure().with_detail(message))
    }

    /// Notes that a special key was set.
    ///
    /// # Errors
    /// `special_keys_write_disabled`, `special_keys_no_write_module_found`,
    /// `special_keys_api_failure`.
    pub(crate) fn set(&mut self, by: &Writer<'_>, key: &[u8], value: &[u8]) -> Result<()> {
        let part = writable_part(by, key)?;
        match part.source {
            Source::Tracing => return self.set_trace(by, key, value),
            Source::CommandOptions if !settings::is_command_option(part, key) => return Ok(()),
            _ => {}
        }
        let value = match part.source {
            Source::Nothing("exclude" | "exclude failed") | Source::Places(..) => Bytes::new(),
            _ => Bytes::copy_from_slice(value),
        };
        self.touch(by.env).writes.insert(KeyRange::single(key), Some(value));
        Ok(())
    }

    /// Notes that a range of special keys was removed.
    ///
    /// # Errors
    /// As [`Special::set`]; `special_keys_cross_module_clear`.
    pub(crate) fn clear(&mut self, by: &Writer<'_>, begin: &[u8], end: &[u8]) -> Result<()> {
        if !by.allowed.writes {
            return Err(Error::special_keys_write_disabled());
        }
        if begin >= end {
            return Ok(());
        }
        let part_of = |key: &[u8], is_end: bool| {
            let key = bare(key);
            parts(by.api).find(|part| {
                let before_end = if is_end { key <= part.end } else { key < part.end };
                part.writable
                    && (if is_end { key > part.begin } else { key >= part.begin })
                    && before_end
            })
        };
        let (first, last) = (part_of(begin, false), part_of(end, true));
        let part = match (first, last) {
            (None, None) => return Err(Error::special_keys_no_write_module_found()),
            (Some(first), Some(last)) if std::ptr::eq(first, last) => first,
            _ => return Err(Error::special_keys_cross_module_clear()),
        };
        match part.source {
            Source::Tracing => return self.refuse(by.env, "clear trace", "clear disabled"),
            Source::Profiling => {
                let message =
                    "Profiling is switched off by setting it to default, not by clearing it.";
                return self.refuse(by.env, "profile", message);
            }
            Source::CommandOptions => self.touch(by.env).writes.forget(begin, end),
            _ => {
                let range =
                    KeyRange::new(Bytes::copy_from_slice(begin), Bytes::copy_from_slice(end));
                self.touch(by.env).writes.insert(range, None);
            }
        }
        Ok(())
    }

    fn set_trace(&mut self, by: &Writer<'_>, key: &[u8], value: &[u8]) -> Result<()> {
        if by.is_begun {
            self.note_refusal(by.env, "configure trace", "tracing options must be set first");
            self.touch(by.env).trace.is_late = true;
            return Ok(());
        }
        let trace = &mut self.touch(by.env).trace;
        if key.ends_with(b"transaction_id") {
            let id =
                std::str::from_utf8(value).ok().and_then(|hex| u128::from_str_radix(hex, 16).ok());
            trace.id = id.unwrap_or(0);
        } else if key.ends_with(b"token") {
            trace.token = match value {
                b"true" => by.env.random_u64() | 1,
                b"false" => 0,
                _ => {
                    let message = "token must be set to true/false";
                    return self.refuse(by.env, "configure trace token", message);
                }
            };
        }
        Ok(())
    }
}

fn writable_part(by: &Writer<'_>, key: &[u8]) -> Result<&'static Part> {
    if !by.allowed.writes {
        return Err(Error::special_keys_write_disabled());
    }
    let key = bare(key);
    parts(by.api)
        .find(|part| part.writable && key >= part.begin && key < part.end)
        .ok_or_else(Error::special_keys_no_write_module_found)
}
