//! What is wrong, in words: the messages of the status document, which the console, `status` and
//! `top` show as well.
//!
//! One for each thing that somebody should look at, the most urgent first. A database that is well
//! has none.

use crate::backpressure;
use crate::refusals::Cause;
use crate::renewal::Outdated;
use crate::shown::Shown;
use serde_json::{Value, json};

/// What somebody should know of a cluster that is well all the same.
pub(super) fn noted(shown: &Shown) -> Vec<Value> {
    let held_back = shown.member.as_ref().and_then(|member| member.held_back.as_ref());
    let held_back = held_back
        .map(|why| json!({ "name": "protocol_held_back", "description": why.to_string() }));
    let left = Outdated::of(&shown.replica);
    let renewed = (left.files() > 0).then(|| {
        let description = format!(
            "{} files with {} bytes are not encrypted with the newest key yet: keep the keys before",
            left.files(),
            left.bytes()
        );
        json!({ "name": "encryption_pending", "description": description })
    });
    held_back.into_iter().chain(renewed).collect()
}

/// The messages, each with a name that stays the same, and a sentence.
pub(super) fn all(shown: &Shown) -> Vec<Value> {
    let replica = &*shown.replica;
    let mut messages = Vec::new();
    let mut tell = |name: &str, description: String| {
        messages.push(json!({ "name": name, "description": description }));
    };
    match backpressure::refusal(replica) {
        Some((Cause::Failed, error)) => tell("storage_failure", error.to_string()),
        // Below, with those of a member whom nobody waits for.
        Some((Cause::Silent, _)) | None => {}
        Some((Cause::NoLeader, error)) => tell("no_leader", error.summary().to_string()),
        Some((cause, error)) => {
            let why = error.summary();
            tell(
                "commits_refused",
                format!("Commits that write rows are refused ({}): {why}", cause.name()),
            );
        }
    }
    if let Some(error) = replica.log_silence() {
        tell("disk_silent", format!("Nothing can be added to the log: {}", error.summary()));
    }
    if let Some((free, kept)) = replica.space.is_low() {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (free, left) = (mebibytes(free), mebibytes(free.saturating_sub(kept)));
        tell(
            "low_disk_space",
            format!(
                "The disk has {free:.1} MiB free, of which rows may take {left:.1} MiB; the rest is kept for what makes room"
            ),
        );
    }
    if let Some(error) = replica.tables_trouble() {
        tell(
            "flush_failing",
            format!("What is in memory can't be moved into tables, or tables merged: {error}"),
        );
    }
    if let Some(error) = &replica.space.checkpoint.trouble() {
        tell("checkpoint_failing", format!("The last checkpoint could not be written: {error}"));
    } else if let Some(error) = replica.checkpoint_silence() {
        tell("checkpoint_failing", format!("A checkpoint can't be written: {}", error.summary()));
    }
    if let Some((error, times)) = replica.damage() {
        tell("file_damaged", format!("Damage was met with {times} times; the first: {error}"));
    }
    messages
}
