//! Tenants: a map from names to ids in the system keys, shown and changed through special keys.
//!
//! A tenant's keys are those that begin with its id, 8 bytes big-endian. Ids are never used again,
//! nor are those given whose keys somebody has: where a part of a database was restored, or a
//! backup from when its log said nothing of tenants, there are rows of tenants that nothing names.

use super::commit::Refusal;
use super::{Host, Part, SpecialKeys};
use crate::json::quoted;
use bytes::Bytes;
use plinth_types::{Error, KeyRange, KeyValue, Result, key_after, printable, strinc, system};
use std::collections::BTreeMap;

/// Ids by name.
pub(crate) const NAMES: &[u8] = system::TENANT_NAMES;
const LAST_ID: &[u8] = system::TENANT_LAST_ID;
/// So many ids in a row may have rows before a tenant can't be made.
const MOST_SKIPPED: i64 = 1000;

/// Where the id of a name is stored.
pub(crate) fn name_key(name: &[u8]) -> Bytes {
    [NAMES, name].concat().into()
}

/// The prefix of a tenant's keys, from what is stored under its name.
pub(crate) fn prefix_of(stored: &[u8]) -> Option<[u8; 8]> {
    stored.first_chunk::<8>().copied()
}

/// Begin and end of the keys that begin with a tenant's prefix.
fn keys_of(prefix: [u8; 8]) -> ([u8; 8], Bytes) {
    (prefix, strinc(&prefix).unwrap_or_else(|| system::NORMAL_END.into()))
}

fn json(name: &[u8], prefix: [u8; 8]) -> String {
    let id = i64::from_be_bytes(prefix);
    let field = |bytes: &[u8]| {
        format!(r#"{{"base64":"{}","printable":{}}}"#, base64(bytes), quoted(&printable(bytes)))
    };
    format!(
        r#"{{"id":{id},"lock_state":"unlocked","name":{},"prefix":{},"tenant_state":"ready"}}"#,
        field(name),
        field(&prefix)
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            if digit <= chunk.len() {
                text.push(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The range of names that a range of special keys stands for.
fn names(part: &Part, begin: &[u8], end: &[u8]) -> Option<(Bytes, Bytes)> {
    let map = part.key(b"map/");
    let after = strinc(&map)?;
    let (low, high) = (begin.max(&map[..]), end.min(&after[..]));
    if low >= high {
        return None;
    }
    let begin = name_key(low.strip_prefix(&map[..])?);
    let end = match high.strip_prefix(&map[..]) {
        Some(name) => name_key(name),
        None => strinc(NAMES)?,
    };
    Some((begin, end))
}

impl<H: Host> SpecialKeys<H> {
    /// The tenants as special keys show them. Changes of this transaction don't show before commit.
    pub(super) async fn tenant_rows(
        &self,
        part: &'static Part,
        begin: &[u8],
        end: &[u8],
    ) -> Result<Vec<KeyValue>> {
        let Some((begin, end)) = names(part, begin, end) else { return Ok(Vec::new()) };
        let stored = self.host.get_range(&begin, &end).await?;
        let rows = stored.into_iter().filter_map(|row| {
            let name = row.key.strip_prefix(NAMES)?;
            let key = part.key(&[b"map/", name].concat());
            Some(KeyValue { key, value: json(name, prefix_of(&row.value)?).into() })
        });
        Ok(rows.collect())
    }

    pub(super) async fn commit_tenants(
        &self,
        part: &'static Part,
        changes: &[(KeyRange, Option<Bytes>)],
    ) -> Result<Option<Refusal>> {
        let map = part.key(b"map/");
        let mut created = BTreeMap::new();
        for (range, value) in changes {
            match (value, range.begin.strip_prefix(&map[..])) {
                (Some(_), Some(name)) => {
                    if name.first() == Some(&0xff) {
                        return Err(Error::invalid_tenant_name());
                    }
                    let stored = self.get_seriously(&name_key(name)).await?;
                    if stored.is_none() {
                        created.insert(Bytes::copy_from_slice(name), ());
                    }
                }
                (None, _) => self.delete_tenants(part, range).await?,
                (Some(new_name), None) => {
                    let Some(old) = range.begin.strip_prefix(&part.key(b"rename/")[..]) else {
                        return Ok(Some((
                            "configure tenant",
                            "invalid tenant configuration key".into(),
                        )));
                    };
                    self.rename_tenant(old, new_name).await?;
                }
            }
        }
        if created.is_empty() {
            return Ok(None);
        }
        let last = self.get_seriously(LAST_ID).await?;
        let mut id = last.as_deref().and_then(prefix_of).map_or(-1, i64::from_be_bytes);
        for name in created.keys() {
            id = self.free_id_behind(id).await?;
            self.host.write(&name_key(name), Some(&id.to_be_bytes()));
        }
        self.host.write(LAST_ID, Some(&id.to_be_bytes()));
        Ok(None)
    }

    /// The next id of which there is no row, at the commit neither.
    async fn free_id_behind(&self, last: i64) -> Result<i64> {
        for step in 1..=MOST_SKIPPED {
            let Some(id) = last.checked_add(step) else { break };
            let (prefix, end) = keys_of(id.to_be_bytes());
            if !self.host.has_rows(&prefix, &end).await? {
                self.host.depend_on(&prefix, &end);
                return Ok(id);
            }
        }
        Err(Error::tenant_prefix_allocator_conflict().with_detail(format!(
            "there are rows where the next {MOST_SKIPPED} tenants would have theirs, behind the prefix {}: move those away",
            printable(&last.to_be_bytes())
        )))
    }

    async fn rename_tenant(&self, old: &[u8], new: &[u8]) -> Result<()> {
        if new.first() == Some(&0xff) {
            return Err(Error::invalid_tenant_name());
        }
        let Some(stored) = self.get_seriously(&name_key(old)).await? else {
            return Err(Error::tenant_not_found());
        };
        if self.get_seriously(&name_key(new)).await?.is_some() {
            return Err(Error::tenant_already_exists());
        }
        self.host.write(&name_key(old), None);
        self.host.write(&name_key(new), Some(&stored));
        Ok(())
    }

    async fn delete_tenants(&self, part: &'static Part, range: &KeyRange) -> Result<()> {
        let Some((begin, end)) = names(part, &range.begin, &range.end) else { return Ok(()) };
        for row in self.host.get_range(&begin, &end).await? {
            let Some(prefix) = prefix_of(&row.value) else { continue };
            let (prefix, end) = keys_of(prefix);
            if self.host.has_rows(&prefix, &end).await? {
                return Err(Error::tenant_not_empty());
            }
            self.host.depend_on(&prefix, &end);
            self.host.depend_on(&row.key, &key_after(&row.key));
            self.host.write(&row.key, None);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(base64(b""), "");
        assert_eq!(base64(b"f"), "Zg==");
        assert_eq!(base64(b"fo"), "Zm8=");
        assert_eq!(base64(b"foobar"), "Zm9vYmFy");
        assert!(json(b"a\"b", 7i64.to_be_bytes()).contains(r#""printable":"a\"b""#));
    }
}
