//! Who did what of an operator's things: the last thousand of them, and an event for each.
//!
//! ```text
//!   commit that writes \xff/dbLocked, \xff/conf/, \xff/plinth/rights/ ...  ──once it is committed──┐
//!   disconnect, reboot; series deleted over HTTP                         ──────────────────────┤
//!                                                                                              ▼
//!                     event "an operator's work"  ◀──  Audit: a ring  ──▶  /api/audit, /status, the console
//! ```
//!
//! Always: what is told was carried out, or its fate is unknown and it says so; what was refused is
//! none of it. Applications' own rows, tenants and the version of metadata among them, are nobody's
//! business here.
//!
//! Series may be deleted by whoever may write them, so the last thousand of that stand apart.
//!
//! ## Not here
//! What the database did by itself, and what somebody did to it without this server: the ring is in
//! memory and this server's own. Whoever has to prove what happened keeps the log's events.

use plinth_env::Env;
use plinth_env::reply::Reply;
use plinth_types::quotas::{Bounds, Whom};
use plinth_types::rights::Grant;
use plinth_types::{
    CommitReply, CommitRequest, MutationRef, MutationType, printable, strinc, system,
};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Things that are remembered.
const REMEMBERED: usize = 1000;
/// Those of them that the status document has.
const SHOWN: usize = 10;
/// Changes of one commit that are told one by one, and bytes of one that are told.
const TOLD: usize = 8;
const MOST_BYTES: usize = 200;

/// Where an operator's things stand: the lock, locked ranges, the configuration, rights, quotas.
const RANGES: [(&[u8], &[u8]); 5] = [
    (system::DATABASE_LOCKED, b"\xff/dbLocked\0"),
    (system::RANGE_LOCKS, b"\xff/plinth/rangeLocks\0"),
    (system::CONFIGURATION_PREFIX, b"\xff/conf0"),
    system::RIGHTS,
    system::QUOTAS,
];

/// Rows of one kind that are cleared together, in the shell's words.
const ALL: [(&[u8], &str); 4] = [
    (system::RIGHTS.0, "revoke everything"),
    (system::QUOTAS.0, "clear all quotas"),
    (system::EXCLUDED_PREFIX, "include all"),
    (system::FAILED_PREFIX, "include all that failed"),
];

/// Who asked: an address, and what a client calls itself.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) address: String,
    pub(crate) name: String,
}

/// What was done.
#[derive(Clone, Debug)]
struct Entry {
    /// Since 1970.
    at: Duration,
    who: Who,
    what: String,
}

/// What operators did at this server.
pub(crate) struct Audit {
    env: Env,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// Series that were deleted, which takes no operator: nobody else drives the others out.
    deletions: VecDeque<Entry>,
    /// All that ever came, and those of them that operators did.
    count: u64,
    operations: u64,
}

/// Series are being deleted.
#[cfg(feature = "series")]
pub(crate) struct Deletion {
    audit: Arc<Audit>,
    who: Who,
    what: String,
}

#[cfg(feature = "series")]
impl Deletion {
    /// It was refused, whole.
    pub(crate) fn refused(mut self) {
        self.what.clear();
    }

    /// It was carried out.
    pub(crate) fn done(mut self) {
        let what = std::mem::take(&mut self.what);
        self.audit.add(self.who.clone(), &what, |ring| &mut ring.deletions);
    }
}

#[cfg(feature = "series")]
impl Drop for Deletion {
    fn drop(&mut self) {
        if !self.what.is_empty() {
            let what = format!("{} (how far that got is not known)", self.what);
            self.audit.add(self.who.clone(), &what, |ring| &mut ring.deletions);
        }
    }
}

impl Audit {
    pub(crate) fn new(env: &Env) -> Self {
        Self { env: env.clone(), ring: Mutex::default() }
    }

    /// Somebody did that.
    pub(crate) fn note(&self, who: Who, what: &str) {
        self.add(who, what, |ring| {
            ring.operations += 1;
            &mut ring.entries
        });
    }

    /// Somebody begins to delete series: told when it ends, however it does.
    #[cfg(feature = "series")]
    pub(crate) fn begin_deletion(self: &Arc<Self>, who: Who, what: String) -> Deletion {
        let what = cut(&what, TOLD * MOST_BYTES);
        Deletion { audit: self.clone(), who, what }
    }

    fn add(&self, who: Who, what: &str, place: impl Fn(&mut Ring) -> &mut VecDeque<Entry>) {
        let what = cut(what, TOLD * MOST_BYTES);
        tracing::info!(by = %who.address, client = %who.name, %what, "an operator's work");
        let entry = Entry { at: self.env.wall_clock(), who, what };
        let mut ring = self.ring();
        ring.count += 1;
        let entries = place(&mut ring);
        if entries.len() == REMEMBERED {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// How much operators have done so far: it grows before one is told that his work is done.
    pub(crate) fn operations(&self) -> u64 {
        self.ring().operations
    }

    /// Notes what a commit does of an operator's things, if it does any, once it is carried out.
    pub(crate) fn follow(
        self: &Arc<Self>,
        what: String,
        who: Who,
        outcome: Reply<CommitReply>,
    ) -> Reply<CommitReply> {
        let audit = self.clone();
        outcome.map(move |outcome| {
            match &outcome {
                Ok(CommitReply::Committed { .. }) => audit.note(who, &what),
                Err(why) if why.is_maybe_committed() => {
                    audit.note(who, &format!("{what} (whether that took effect is not known)"));
                }
                Ok(_) | Err(_) => {}
            }
            outcome
        })
    }

    /// The newest for the status document, with how many there were.
    pub(crate) fn newest(&self) -> Value {
        self.told(SHOWN)
    }

    /// All that is remembered, the newest first.
    pub(crate) fn all(&self) -> Value {
        self.told(2 * REMEMBERED)
    }

    fn told(&self, most: usize) -> Value {
        let ring = self.ring();
        let entry = |Entry { at, who, what }: &Entry| json!({ "time": at.as_secs_f64(), "by": who.address, "client": who.name, "what": what });
        // Of one moment the later one comes first, too: the sort leaves them in their order.
        let newest = [&ring.entries, &ring.deletions].map(|kind| kind.iter().rev().take(most));
        let mut entries: Vec<_> = newest.into_iter().flatten().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        let entries: Vec<_> = entries.into_iter().take(most).map(entry).collect();
        json!({ "count": ring.count, "newest": entries })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a commit does of an operator's things, in the shell's words; `None` for nearly all.
pub(crate) fn what(request: &CommitRequest) -> Option<String> {
    let mut told = Vec::new();
    let mut more = 0;
    for mutation in request.mutations.iter() {
        // The one look that every commit takes.
        let is_clear = mutation.kind == MutationType::ClearRange;
        let last = if is_clear { mutation.param2 } else { mutation.param1 };
        if last.first() != Some(&0xff) {
            continue;
        }
        match changes(&mutation) {
            Some(what) if told.len() < TOLD => told.push(what),
            Some(_) => more += 1,
            None => {}
        }
    }
    if more > 0 {
        told.push(format!("{more} more"));
    }
    (!told.is_empty()).then(|| told.join("; "))
}

/// What a mutation changes of an operator's things.
fn changes(mutation: &MutationRef<'_>) -> Option<String> {
    let MutationRef { kind, param1: key, param2 } = *mutation;
    if kind != MutationType::ClearRange {
        let is_one = RANGES.iter().any(|(begin, end)| (*begin..*end).contains(&key));
        return is_one.then(|| words(key, Some(param2)));
    }
    // Of one key, or of many.
    let is_one = param2.strip_prefix(key) == Some(b"\0");
    let met = RANGES.iter().any(|(begin, end)| key < *end && *begin < param2);
    met.then(|| match is_one {
        true => words(key, None),
        false => {
            let all = ALL.iter().find(|(prefix, _)| is_all_of(prefix, (key, param2)));
            let range = || format!("clearrange {} {}", printable(key), printable(param2));
            cut(&all.map_or_else(range, |(_, words)| (*words).to_owned()), MOST_BYTES)
        }
    })
}

/// Whether a range has all keys that begin so, and no others of an operator's things.
fn is_all_of(prefix: &[u8], (begin, end): (&[u8], &[u8])) -> bool {
    let last = end.strip_prefix(prefix).is_some_and(|rest| rest == b"\xff");
    begin == prefix && (last || strinc(prefix).as_deref() == Some(end))
}

/// A row of an operator's that gets a value, or none any more.
fn words(key: &[u8], value: Option<&[u8]>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let either = |with: &'static str, without: &'static str| match value {
        Some(_) => with,
        None => without,
    };
    let told = if key == system::DATABASE_LOCKED {
        either("lock", "unlock").to_owned()
    } else if key == system::RANGE_LOCKS {
        "locked ranges".to_owned()
    } else if let Some(grant) = Grant::decode(key) {
        format!("{} {grant}", either("grant", "revoke"))
    } else if let Some(whom) = Whom::decode(key) {
        match value.and_then(Bounds::decode) {
            Some(bounds) => format!("quota set {whom} {bounds}"),
            None => format!("quota {} {whom}", either("set", "clear")),
        }
    } else if let Some(address) = key.strip_prefix(system::EXCLUDED_PREFIX) {
        format!("{} {}", either("exclude", "include"), text(address))
    } else if let Some(address) = key.strip_prefix(system::FAILED_PREFIX) {
        format!("{} failed {}", either("exclude", "include"), text(address))
    } else if key == system::COORDINATORS_WANTED {
        format!("coordinators {}", value.map_or("auto".to_owned(), text))
    } else if let Some(option) = key.strip_prefix(system::CONFIGURATION_PREFIX) {
        format!("configure {}={}", text(option), value.map_or(String::new(), text))
    } else {
        format!("{} {}", either("set", "clear"), printable(key))
    };
    cut(&told, MOST_BYTES)
}

/// No more of a text than is worth to be told, as one line.
fn cut(text: &str, most: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().find(|(at, _)| *at >= most) {
        Some((at, _)) => format!("{} ...", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_types::{Error, MutationList};

    fn commit(mutations: &[(MutationType, &[u8], &[u8])]) -> CommitRequest {
        let mut list = MutationList::new();
        for (kind, param1, param2) in mutations {
            list.push(*kind, param1, param2);
        }
        CommitRequest { mutations: list, ..CommitRequest::default() }
    }

    #[test]
    fn what_operators_do_is_told_in_the_words_of_the_shell() {
        use MutationType::{ClearRange, Set};
        for (mutations, told) in [
            (&[(Set, &b"a"[..], &b"b"[..])][..], None),
            (&[(Set, b"\xff/tenant/x", b"b"), (Set, b"\xff/metadataVersion", b"")], None),
            (&[(ClearRange, b"", b"\xff")], None),
            (&[(Set, b"\xff/dbLocked", b"x")], Some("lock")),
            (&[(ClearRange, b"\xff/dbLocked", b"\xff/dbLocked\0")], Some("unlock")),
            (&[(Set, b"\xff/conf/excluded/10.0.0.1", b"")], Some("exclude 10.0.0.1")),
            (
                &[(ClearRange, b"\xff/conf/excluded/a\nb", b"\xff/conf/excluded/a\nb\0")],
                Some("include a b"),
            ),
            (&[(Set, b"\xff/conf/coordinators", b"a:1,b:1")], Some("coordinators a:1,b:1")),
            (
                &[(
                    Set,
                    b"\xff/plinth/quotas/*\x00\x00",
                    b"\x01\0\0\0\0\0\0\0\0k\x05\0\0\0\0\0\0\0",
                )],
                Some("quota set * watches=5"),
            ),
            (
                &[(
                    ClearRange,
                    b"\xff/plinth/quotas/n\x00\x01t",
                    b"\xff/plinth/quotas/n\x00\x01t\0",
                )],
                Some("quota clear tenant t"),
            ),
            (
                &[(Set, b"k", b"v"), (Set, b"\xff/conf/voter_count", b"3")],
                Some("configure voter_count=3"),
            ),
            (&[(ClearRange, b"a", b"\xff\xff")], Some(r"clearrange a \xff\xff")),
            (
                &[(ClearRange, b"\xff/plinth/rights/", b"\xff/plinth/rights0")],
                Some("revoke everything"),
            ),
            (
                &[
                    (ClearRange, b"\xff/conf/excluded/", b"\xff/conf/excluded/\xff"),
                    (ClearRange, b"\xff/conf/failed/", b"\xff/conf/failed0"),
                ],
                Some("include all; include all that failed"),
            ),
            (
                &[(ClearRange, b"\xff/conf/excluded/a", b"\xff/conf/excluded/b")],
                Some(r"clearrange \xff/conf/excluded/a \xff/conf/excluded/b"),
            ),
        ] {
            assert_eq!(what(&commit(mutations)).as_deref(), told);
        }
        let key = |n: usize| [system::EXCLUDED_PREFIX, n.to_string().as_bytes()].concat();
        let keys: Vec<_> = (0..TOLD + 2).map(key).collect();
        let many: Vec<_> = keys.iter().map(|key| (Set, &key[..], &b""[..])).collect();
        assert!(what(&commit(&many)).unwrap().ends_with("exclude 7; 2 more"));
        let long = [system::EXCLUDED_PREFIX, &[b'x'; 5000]].concat();
        assert!(what(&commit(&[(Set, &long, b"")])).unwrap().len() < 250);
    }

    #[cfg(feature = "series")]
    #[test]
    fn deletions_of_series_are_told_however_they_end_and_drive_nothing_else_out() {
        let audit = Arc::new(Audit::new(&Env::real()));
        let who = || Who { address: "127.0.0.1".to_owned(), name: String::new() };
        audit.note(who(), "lock");
        audit.begin_deletion(who(), "refused".to_owned()).refused();
        for n in 0..REMEMBERED {
            audit.begin_deletion(who(), format!("n {n}")).done();
        }
        drop(audit.begin_deletion(who(), "left".to_owned()));
        let told = audit.all();
        assert_eq!(told["count"], json!(REMEMBERED + 2));
        let all: Vec<_> = told["newest"].as_array().unwrap().iter().map(|it| &it["what"]).collect();
        assert!(all.contains(&&json!("lock")) && !all.contains(&&json!("refused")));
        assert!(all.contains(&&json!("left (how far that got is not known)")));
    }

    #[test]
    fn a_thousand_are_remembered_of_those_that_were_carried_out() {
        let audit = Arc::new(Audit::new(&Env::real()));
        let who = || Who { address: "127.0.0.1:5".to_owned(), name: "shell".to_owned() };
        for outcome in [
            Err(Error::not_committed()),
            Ok(CommitReply::Conflict { conflicting_reads: Vec::new() }),
            Err(Error::permission_denied()),
        ] {
            drop(audit.follow("lock".to_owned(), who(), Reply::ready(outcome)));
        }
        assert_eq!(audit.all()["count"], 0);
        let lost = Err(Error::commit_unknown_result());
        drop(audit.follow("lock".to_owned(), who(), Reply::ready(lost)));
        assert_eq!(
            audit.all()["newest"][0]["what"],
            "lock (whether that took effect is not known)"
        );
        for n in 0..REMEMBERED {
            let done = CommitReply::Committed { version: 1, batch_index: 0 };
            drop(audit.follow(format!("n {n}"), who(), Reply::ready(Ok(done))));
        }
        let all = audit.all();
        assert_eq!((&all["count"], all["newest"].as_array().unwrap().len()), (&json!(1001), 1000));
        assert_eq!(all["newest"][0]["what"], "n 999");
        assert_eq!(audit.newest()["newest"].as_array().unwrap().len(), SHOWN);
    }
}
