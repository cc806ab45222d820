//! Commands of FoundationDB's shell that do nothing here: why, and what does what they were for.
//!
//! Whoever types one of them from habit is told in a sentence, and a script fails instead of going
//! on in the belief that something was done.

/// Names, and what is said to whoever uses them.
const ALL: &[(&[&str], &str)] = &[
    (
        &["advanceversion", "versionepoch"],
        "versions are moved on by the special key \\xff\\xff/management/min_required_commit_version, written as a number in decimal; a copy by \
         `plinth migrate` begins above those of its source where it must",
    ),
    (
        &[
            "audit_storage",
            "get_audit_status",
            "checkall",
            "consistencycheck",
            "consistencyscan",
            "getall",
            "location_metadata",
        ],
        "there is no check in the background: every byte is verified by its checksum when it is read. `plinth check DIR` verifies all \
         of a database that is closed",
    ),
    (
        &["blobkey", "blobrange", "blobrestore", "bulkdump", "bulkload", "changefeed"],
        "there are no blob granules, bulk loads and change feeds of FoundationDB's; rows get in and out by `plinth migrate`",
    ),
    (
        &["cache_range", "datadistribution", "rangeconfig", "triggerddteaminfolog", "tssq"],
        "every server has all rows, so nothing is distributed among them",
    ),
    (
        &["expensive_data_check", "profile"],
        "use perf on the process, or its tracepoints (docs/monitoring.md)",
    ),
    (
        &["fileconfigure", "force_recovery_with_data_loss", "metacluster"],
        "there are no regions and no clusters of clusters",
    ),
    (
        &["getknob", "setknob", "setclass"],
        "a server has settings, and no knobs or classes: `plinth server --help` lists them",
    ),
    (
        &["idempotencyids"],
        "what is kept for idempotent commits goes by itself when it is old enough",
    ),
    (
        &["maintenance"],
        "nothing is healed while a server is away, so there is nothing to hold back: stop it, and start it again",
    ),
    (
        &["rangelock", "tenantgroup"],
        "there are no groups of tenants; `quota` bounds what a tenant reads and writes, `throttle` transactions by their tag",
    ),
    (
        &["snapshot"],
        "copy the directory of a server that is stopped, or use `plinth migrate` while it serves",
    ),
    (&["suspend"], "send the server's process SIGSTOP, and SIGCONT to have it go on"),
];

/// What is said of a command of this name, if it is one of these.
pub fn explain(name: &str) -> Option<&'static str> {
    let is_it = |known: &&str| known.eq_ignore_ascii_case(name);
    ALL.iter().find(|(names, _)| names.iter().any(is_it)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::commands;

    #[test]
    fn what_is_here_is_not_elsewhere() {
        for name in ALL.iter().flat_map(|(names, _)| *names) {
            assert!(commands::find(name).is_none(), "{name}");
        }
        assert!(explain("CONSISTENCYCHECK").is_some_and(|text| text.contains("plinth check DIR")));
        assert_eq!(explain("get"), None);
    }
}
