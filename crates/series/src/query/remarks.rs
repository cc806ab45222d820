//! What is to be said of an answer beside its rows, for which Akumuli's and OpenTSDB's languages
//! have no place.

use crate::store::Origin;
use plinth_promql::format_duration;

/// What is to be said beside an answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Remarks {
    /// That it lacks something.
    pub warning: Option<&'static str>,
    /// Where it comes from, if not from points alone.
    pub info: Option<String>,
}

impl Remarks {
    /// What there is to say of where values come from; `gone` says what it means if points have
    /// gone.
    pub(super) fn of(origin: Origin, gone: &'static str) -> Self {
        let every = origin.every.map(format_duration);
        Self {
            warning: origin.are_missing.then_some(gone),
            info: every.map(|every| format!("answered from rollups of {every}")),
        }
    }
}
