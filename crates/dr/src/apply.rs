//! What of a change is applied to a second site, by what it has copied: pure.

use crate::rows::Copying;
use plinth_types::{MutationList, MutationType, Version, planted, system};

/// Adds what of these mutations, committed at this version of the first, is to be applied.
///
/// The metadata version goes along as an event: the second gives it a version of its own, so that
/// it goes on rising.
pub(crate) fn push(
    copying: Option<&Copying>,
    version: Version,
    mutations: &MutationList,
    into: &mut MutationList,
) {
    let upto = copying.map(|copying| match &copying.round {
        Some(round) if version > round.version + planted_delay() => &round.upto[..],
        _ => &copying.copied[..],
    });
    let mut late = MutationList::new();
    for mutation in mutations {
        let is_clear = mutation.kind == MutationType::ClearRange;
        if mutation.param1 == system::METADATA_VERSION && !is_clear {
            if upto.is_none() {
                into.push(MutationType::SetVersionstampedValue, system::METADATA_VERSION, &[0; 14]);
            }
            continue;
        }
        if upto.is_some_and(|upto| mutation.param1 >= upto) {
            continue;
        }
        match upto.filter(|_| is_clear) {
            Some(upto) => into.push(mutation.kind, mutation.param1, mutation.param2.min(upto)),
            None if is_clear && planted!("dr: clears are applied last") => {
                late.push(mutation.kind, mutation.param1, mutation.param2);
            }
            None => into.push(mutation.kind, mutation.param1, mutation.param2),
        }
    }
    into.append(&late);
}

fn planted_delay() -> Version {
    Version::from(planted!("dr: what follows a round begins late")) * 20_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Round;
    use plinth_types::Bytes;

    fn pushed(copying: Option<&Copying>, version: Version) -> Vec<String> {
        let mut mutations = MutationList::new();
        mutations.push(MutationType::Set, b"a", b"1");
        mutations.push(MutationType::Add, b"c", b"1");
        mutations.push(MutationType::ClearRange, b"b", b"z");
        mutations.push(MutationType::Set, system::METADATA_VERSION, b"stamp");
        mutations.push(MutationType::Set, b"\xff/tenant/x", b"1");
        let mut into = MutationList::new();
        push(copying, version, &mutations, &mut into);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        into.iter()
            .map(|it| format!("{:?} {}", it.kind, text(&[it.param1, it.param2].join(&b'|'))))
            .collect()
    }

    #[test]
    fn what_is_not_copied_is_left_out_and_clears_are_cut() {
        let all = pushed(None, 7);
        assert_eq!(all.len(), 5);
        assert!(all[3].starts_with("SetVersionstampedValue"), "{all:?}");
        let mut copying = Copying { copied: Bytes::from("c"), round: None };
        assert_eq!(pushed(Some(&copying), 7), ["Set a|1", "ClearRange b|c"]);
        copying.round = Some(Round { upto: "m".into(), version: 7 });
        assert_eq!(pushed(Some(&copying), 7), ["Set a|1", "ClearRange b|c"]);
        assert_eq!(pushed(Some(&copying), 8), ["Set a|1", "Add c|1", "ClearRange b|m"]);
    }
}
