//! What of a change is applied to a second site, by what it has copied: pure.

use crate::rows::{Copying, HALF, HEADS};
use plinth_types::{MutationList, MutationType, Version, key_after, planted, system};

/// Adds what of these mutations, committed at this version of the first, is to be applied.
///
/// The metadata version goes along as an event: the second gives it a version of its own, so that
/// it goes on rising. That something is being brought into the first, by a restore or a migration,
/// is noted: from there on, until that is done, what the second has looks like a whole, and is
/// none.
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
        if HEADS.contains(&mutation.param1) {
            match is_clear {
                true => into.push(mutation.kind, HALF, &key_after(HALF)),
                false => into.push(mutation.kind, HALF, mutation.param2),
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
    fn what_is_being_brought_into_the_first_is_noted_whatever_is_copied() {
        let mut mutations = MutationList::new();
        mutations.push(MutationType::Set, system::RESTORE_HEAD, b"of a backup");
        mutations.push(MutationType::ClearRange, HEADS[1], &key_after(HEADS[1]));
        let mut expected = MutationList::new();
        expected.push(MutationType::Set, HALF, b"of a backup");
        expected.push(MutationType::ClearRange, HALF, &key_after(HALF));
        for copying in [None, Some(Copying::default())] {
            let mut into = MutationList::new();
            push(copying.as_ref(), 7, &mutations, &mut into);
            assert_eq!(into, expected);
        }
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
