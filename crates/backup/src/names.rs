//! Names of the files of a backup. What a listing has to know stands in them, so that it need not
//! read a file.
//!
//! Files have a dot in their last part and directories have none, so that a directory's listing
//! need not ask which is which.

use plinth_types::Version;

/// What the backup is.
pub(crate) const IDENTITY: &str = "backup.id";
/// Where leases are.
pub(crate) const LEASES: &str = "lease/";
/// Where snapshots are.
pub(crate) const SNAPSHOTS: &str = "snapshots/";
/// Where the log is.
pub(crate) const LOGS: &str = "logs/";
/// The last part of a manifest's name.
const MANIFEST: &str = "snapshot.manifest";

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory of a snapshot that was begun at `version`; `salt` tells it from others.
pub(crate) fn snapshot(version: Version, salt: u64) -> String {
    format!("{SNAPSHOTS}{version:020}-{salt:016x}/")
}

pub(crate) fn rows(snapshot: &str, number: u32) -> String {
    format!("{snapshot}{number:08}.rows")
}

pub(crate) fn manifest(snapshot: &str) -> String {
    format!("{snapshot}{MANIFEST}")
}

/// The snapshot that a file belongs to, and whether it is its manifest.
pub(crate) fn parse_snapshot(name: &str) -> Option<(&str, bool)> {
    let slash = name.strip_prefix(SNAPSHOTS)?.find('/')? + SNAPSHOTS.len();
    Some((&name[..=slash], &name[slash + 1..] == MANIFEST))
}

/// The version that a snapshot's file says it was begun at.
pub(crate) fn parse_snapshot_version(name: &str) -> Option<Version> {
    name.strip_prefix(SNAPSHOTS)?.split('-').next()?.parse().ok()
}

/// The log of the versions from `from` up to, and without, `to`. It follows on a file before, or
/// begins anew.
pub(crate) fn log(from: Version, to: Version, salt: u64, begins: bool) -> String {
    let how = if begins { "begin" } else { "next" };
    format!("{LOGS}{from:020}-{to:020}-{salt:016x}-{how}.log")
}

/// Whether a log file begins anew, if its name says so: those of the first programs don't.
pub(crate) fn begins(name: &str) -> Option<bool> {
    match name.strip_suffix(".log")?.rsplit('-').next()? {
        "begin" => Some(true),
        "next" => Some(false),
        _ => None,
    }
}

/// The versions that a log file speaks of.
pub(crate) fn parse_log(name: &str) -> Option<(Version, Version)> {
    let rest = name.strip_prefix(LOGS)?.strip_suffix(".log")?;
    let mut parts = rest.split('-').map(|part| part.parse::<Version>().ok());
    match (parts.next(), parts.next()) {
        (Some(Some(from)), Some(Some(to))) if 0 <= from && from < to => Some((from, to)),
        _ => None,
    }
}

/// What says that a log has ended, and has everything up to and with this version.
pub(crate) fn end(version: Version) -> String {
    format!("{LOGS}{version:020}.end")
}

pub(crate) fn parse_end(name: &str) -> Option<Version> {
    name.strip_prefix(LOGS)?.strip_suffix(".end")?.parse().ok().filter(|version| *version >= 0)
}

pub(crate) fn lease(number: u64) -> String {
    format!("{LEASES}{number:010}.lease")
}

pub(crate) fn parse_lease(name: &str) -> Option<u64> {
    name.strip_prefix(LEASES)?.strip_suffix(".lease")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_was_put_into_them() {
        let before = "logs/00000000000000000007-00000000012345678901-00000000000000ab";
        for (how, is_first) in [("begin", true), ("next", false)] {
            let name = log(7, 12_345_678_901, 0xab, is_first);
            assert_eq!(name, format!("{before}-{how}.log"));
            assert_eq!(
                (parse_log(&name), begins(&name)),
                (Some((7, 12_345_678_901)), Some(is_first))
            );
        }
        // As the first programs wrote them.
        let name = format!("{before}.log");
        assert_eq!((parse_log(&name), begins(&name)), (Some((7, 12_345_678_901)), None));
        let snapshot = snapshot(42, 1);
        assert_eq!(parse_snapshot(&manifest(&snapshot)), Some((&*snapshot, true)));
        assert_eq!(parse_snapshot(&rows(&snapshot, 3)), Some((&*snapshot, false)));
        assert_eq!(parse_snapshot_version(&manifest(&snapshot)), Some(42));
        assert_eq!(parse_lease(&lease(9)), Some(9));
        assert_eq!(
            (parse_end(&end(7)), parse_log(&end(7)), parse_end(&name)),
            (Some(7), None, None)
        );
        for other in
            ["logs/x.log", "logs/5-5-0.log", "logs/-1-5-0.log", "snapshots/x", "lease/x.lease", ""]
        {
            assert_eq!(
                (parse_log(other), parse_snapshot(other), parse_lease(other)),
                (None, None, None)
            );
        }
    }
}
