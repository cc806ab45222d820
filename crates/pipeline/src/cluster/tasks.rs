//! The tasks of a member: one for each thing that it does by itself.

use super::members::run as look_after_members;
use super::participant::{Participant, follow_leadership};
use super::{apply, giving, term, upkeep};
use crate::supervise;
use plinth_env::Task;
use std::sync::Arc;

/// Starts the tasks of a member.
pub(crate) fn start(member: &Arc<Participant>) -> Vec<Task> {
    vec![
        supervise::spawn(member, "terms", term::run(member.clone())),
        supervise::spawn(member, "apply", apply::run(member.clone())),
        supervise::spawn(member, "leadership", follow_leadership(member.clone())),
        supervise::spawn(member, "upkeep", upkeep::run(member.clone())),
        supervise::spawn(member, "rows for others", giving::run(member.giver())),
        supervise::spawn(member, "members", look_after_members(member.clone())),
    ]
}
