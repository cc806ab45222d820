//! The bytes of the system keys that special keys stand for, and the texts in which they appear.
//!
//! Both directions stand together, so that what is written comes back as it was written; the bytes
//! are FoundationDB's where a tool could read them in place.

use super::Part;
use bytes::Bytes;
use plinth_types::{KeyValue, Version, strinc};

pub(super) const CONSISTENCY_CHECK_SUSPENDED: &[u8] = b"\xff\x02/ConsistencyCheck/Suspend";
pub(super) const VERSION_EPOCH: &[u8] = b"\xff/versionEpoch";
pub(super) const HEALTHY_ZONE: &[u8] = b"\xff\x02/healthyZone";
pub(super) const DATA_DISTRIBUTION_MODE: &[u8] = b"\xff/dataDistributionMode";
pub(super) const REBALANCE_IGNORED: &[u8] = b"\xff\x02/rebalanceDDIgnored";
const GLOBAL_CONFIG: &[u8] = b"\xff/globalConfig/k/";
/// The zone that stands for all: failures of storage are not acted upon.
pub(super) const IGNORE_FAILURES_ZONE: &[u8] = b"IgnoreSSFailures";
/// What versioned values begin with: FoundationDB 7.3's protocol version.
const PROTOCOL_VERSION: u64 = 0x0FDB_00B0_7300_0000;
/// What the value of the lock key has before the id.
pub(super) const LOCK_PREFIX: &[u8; 10] = b"0123456789";
const VERSIONS_PER_SECOND: f64 = 1e6;

const COMMAND_OPTIONS: [&[u8]; 5] = [
    b"excluded/force",
    b"excluded_locality/force",
    b"failed/force",
    b"failed_locality/force",
    b"worker_interfaces/verify",
];

pub(super) fn is_command_option(part: &Part, key: &[u8]) -> bool {
    COMMAND_OPTIONS.iter().any(|option| part.key(option)[..] == *key)
}

/// The part of a status document that says how many machines may fail: an object of numbers.
pub(super) fn fault_tolerance(status: &str) -> Option<&str> {
    const NAME: &str = r#""fault_tolerance":"#;
    let (_, found) = status.split_once(NAME).filter(|(_, found)| found.starts_with('{'))?;
    found.split_inclusive('}').next()
}

/// The lock's id as 32 hexadecimal digits.
pub(super) fn lock_id(value: &[u8]) -> Option<String> {
    let id = value.get(LOCK_PREFIX.len()..)?;
    let (first, second) = (id.first_chunk::<8>()?, id.get(8..16)?.first_chunk::<8>()?);
    Some(format!("{:016x}{:016x}", u64::from_le_bytes(*first), u64::from_le_bytes(*second)))
}

/// The 16 bytes of a lock's id.
pub(super) fn parse_lock_id(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 32)?;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&u64::from_str_radix(&text[..16], 16).ok()?.to_le_bytes());
    id[8..].copy_from_slice(&u64::from_str_radix(&text[16..], 16).ok()?.to_le_bytes());
    Some(id)
}

/// A number stored as 8 bytes, little-endian.
pub(super) fn number(value: Option<&[u8]>) -> Option<i64> {
    value?.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes))
}

/// A number written as text.
pub(super) fn parse_number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The value that puts a zone into maintenance until a version.
pub(super) fn maintenance_value(zone: &[u8], until: Version) -> Vec<u8> {
    let length = (zone.len() as u32).to_le_bytes();
    [&PROTOCOL_VERSION.to_le_bytes()[..], &length, zone, &until.to_le_bytes()].concat()
}

fn parse_maintenance(value: &[u8]) -> Option<(&[u8], Version)> {
    let (length, rest) = value.get(8..)?.split_first_chunk::<4>()?;
    let (zone, until) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((zone, Version::from_le_bytes(*until.first_chunk::<8>()?)))
}

/// The zone in maintenance.
pub(super) fn maintenance_zone(value: &[u8]) -> Option<Bytes> {
    parse_maintenance(value).map(|(zone, _)| Bytes::copy_from_slice(zone))
}

/// The zone in maintenance at version `now`, and for how many seconds more.
pub(super) fn maintenance(value: &[u8], now: Version) -> Option<(Bytes, String)> {
    let (zone, until) = parse_maintenance(value)?;
    let seconds = if zone == IGNORE_FAILURES_ZONE {
        0
    } else if until > now {
        ((until - now) as f64 / VERSIONS_PER_SECOND) as i64
    } else {
        return None;
    };
    Some((Bytes::copy_from_slice(zone), seconds.to_string()))
}

/// The version `seconds` after `now`.
pub(super) fn version_after(now: Version, seconds: f64) -> Version {
    now.saturating_add((seconds * VERSIONS_PER_SECOND) as Version)
}

/// Where the global configuration is stored.
pub(super) fn global_config_range() -> (Bytes, Bytes) {
    let begin = Bytes::from_static(GLOBAL_CONFIG);
    let end = strinc(GLOBAL_CONFIG).unwrap_or_else(|| begin.clone());
    (begin, end)
}

pub(super) fn global_config_key(rest: &[u8]) -> Bytes {
    [GLOBAL_CONFIG, rest].concat().into()
}

/// A value of the global configuration as it is shown: text, whatever its type.
pub(super) fn global_config_row(part: &Part, stored: &KeyValue) -> Option<KeyValue> {
    let key = part.key(stored.key.strip_prefix(GLOBAL_CONFIG)?);
    let value = tuple_text(&stored.value).unwrap_or_else(|| stored.value.clone());
    Some(KeyValue { key, value })
}

/// The text of a tuple of one element.
fn tuple_text(tuple: &[u8]) -> Option<Bytes> {
    let (&code, rest) = tuple.split_first()?;
    let unsign = |bits: u64, top: u64| if bits & top == 0 { !bits } else { bits & !top };
    Some(match code {
        0x01 | 0x02 => crate::tuple::unescape(rest)?,
        0x14 => Bytes::from_static(b"0"),
        0x15..=0x1c | 0x0c..=0x13 => {
            let length = usize::from(code.abs_diff(0x14));
            let bytes = rest.get(..length)?;
            let magnitude = bytes.iter().fold(0i128, |n, byte| n << 8 | i128::from(*byte));
            let number =
                if code > 0x14 { magnitude } else { magnitude - ((1i128 << (8 * length)) - 1) };
            number.to_string().into()
        }
        0x20 => {
            let bits = u32::from_be_bytes(*rest.first_chunk::<4>()?);
            let bits = if bits & (1 << 31) == 0 { !bits } else { bits & !(1 << 31) };
            format!("{:.6}", f32::from_bits(bits)).into()
        }
        0x21 => {
            let bits = u64::from_be_bytes(*rest.first_chunk::<8>()?);
            format!("{:.6}", f64::from_bits(unsign(bits, 1 << 63))).into()
        }
        0x26 => Bytes::from_static(b"0"),
        0x27 => Bytes::from_static(b"1"),
        _ => return None,
    })
}

/// The row that sums up how the database feels; a single store is never behind itself.
pub(super) fn health(part: &Part) -> KeyValue {
    let value = concat!(
        r#"{"batch_limited":false,"limiting_storage_durability_lag":0,"limiting_storage_queue":0,"#,
        r#""tps_limit":1e300,"worst_log_queue":0,"worst_storage_durability_lag":0,"worst_storage_queue":0}"#
    );
    KeyValue { key: part.key(b"aggregate"), value: Bytes::from_static(value.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_ids_and_maintenance_round_trip() {
        let text = "00112233445566778899aabbccddeeff";
        let id = parse_lock_id(text.as_bytes()).unwrap();
        assert_eq!(lock_id(&[&LOCK_PREFIX[..], &id].concat()).unwrap(), text);
        assert_eq!(parse_lock_id(b"xyz"), None);
        let value = maintenance_value(b"zone", 5_000_000);
        assert_eq!(maintenance(&value, 2_000_000), Some((Bytes::from_static(b"zone"), "3".into())));
        assert_eq!(maintenance(&value, 6_000_000), None);
    }

    #[test]
    fn values_of_the_global_configuration_are_shown_as_text() {
        let cases: [(&[u8], &str); 6] = [
            (b"\x02abc\x00", "abc"),
            (b"\x15\x2a", "42"),
            (b"\x13\xfe", "-1"),
            (b"\x14", "0"),
            (b"\x21\xc0\x04\x00\x00\x00\x00\x00\x00", "2.500000"),
            (b"\x27", "1"),
        ];
        for (tuple, text) in cases {
            assert_eq!(tuple_text(tuple).unwrap(), text);
        }
    }
}
