//! Which versions of the members' protocol a program speaks: [`Spoken`].
//!
//! One number stands for all that members of a cluster have in common: what they send each other,
//! and what they write into the log and the system's rows for others to read. Two that connect
//! speak the newest version that both know. What a leader writes all have to read, so that has a
//! version of its own, the cluster's ([`Members::protocol`](crate::Members::protocol)): it only
//! rises, and to what every member has said that it speaks.

use crate::failure::{ReplicationError, ReplicationResult};
use std::fmt;

use crate::NodeId;
use crate::members::Members;

/// The versions that a program speaks, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spoken {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Spoken {
    /// Those of this program. Version 2 came with the cluster's protocol in the row of members,
    /// version 3 with a place of their own for time series, version 4 with rights: who joins a
    /// cluster that has them must keep them. Version 5 came with checksums of entries before those
    /// that are sent.
    pub const THIS: Self = Self { oldest: 1, newest: 5 };

    /// Those of this program, up to this one.
    ///
    /// # Errors
    /// `Invalid` if that is none of them.
    pub fn up_to(newest: u16) -> ReplicationResult<Self> {
        let Self { oldest, newest: known } = Self::THIS;
        if (oldest..=known).contains(&newest) {
            return Ok(Self { oldest, newest });
        }
        let detail = format!(
            "version {newest} of the servers' protocol: this program speaks {oldest} to {known}"
        );
        Err(ReplicationError::Invalid(detail))
    }

    /// The newest version that both speak.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Whether a program that speaks this can be a member of a cluster with this protocol.
    ///
    /// # Errors
    /// `Incompatible`, saying what to do.
    pub fn check(self, protocol: u16) -> ReplicationResult<()> {
        let Self { oldest, newest } = self;
        let refuse = |what: &str| {
            Err(ReplicationError::Incompatible(format!(
                "the cluster's protocol is version {protocol}, and this server's program speaks {oldest} to {newest}: {what}"
            )))
        };
        match protocol {
            _ if protocol > newest => {
                refuse("start it with a newer Plinth, as new as that of the others")
            }
            _ if protocol < oldest => {
                refuse("start it with an older Plinth, and all others with one between first")
            }
            _ => Ok(()),
        }
    }
}

impl Default for Spoken {
    fn default() -> Self {
        Self::THIS
    }
}

/// A cluster's protocol could rise, but for some members: who they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldBack {
    /// The cluster's protocol now.
    protocol: u16,
    /// The newest version that some members speak.
    newest: u16,
    /// The addresses of the others, each with what it speaks, if that is known.
    by: Vec<(String, Option<Spoken>)>,
}

impl HeldBack {
    /// Looks who keeps the protocol of these members from rising, by what is known of what each
    /// speaks. Nothing if nobody speaks a newer version, or all do: then it rises by itself.
    pub fn find(members: &Members, spoken: impl Fn(NodeId) -> Option<Spoken>) -> Option<Self> {
        let known = members.nodes.iter().map(|node| (node, spoken(node.id)));
        let newest = known.clone().filter_map(|(_, spoken)| Some(spoken?.newest)).max()?;
        let is_older = |spoken: &Option<Spoken>| spoken.is_none_or(|spoken| spoken.newest < newest);
        let by = known.filter(|(_, spoken)| is_older(spoken));
        let by: Vec<_> = by.map(|(node, spoken)| (node.address.clone(), spoken)).collect();
        let is_held = newest > members.protocol && !by.is_empty();
        is_held.then_some(Self { protocol: members.protocol, newest, by })
    }
}

impl fmt::Display for HeldBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, newest, by } = self;
        write!(
            f,
            "The servers' protocol stays at version {protocol}, although some speak {newest}: "
        )?;
        for (at, (address, spoken)) in by.iter().enumerate() {
            let comma = if at > 0 { "; " } else { "" };
            match spoken {
                None => write!(
                    f,
                    "{comma}{address} can't be reached, so nobody knows what it speaks (start it with the new program; if it is gone for \
                     good, also if it was excluded: exclude failed {address})"
                )?,
                Some(spoken) => write!(
                    f,
                    "{comma}{address} speaks no newer one than {} (restart it with the new program, without --peer-protocol)",
                    spoken.newest
                )?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_both_speak_is_taken() {
        let spoken = |oldest, newest| Spoken { oldest, newest };
        for (one, other, common) in [
            (spoken(1, 2), spoken(1, 1), Some(1)),
            (spoken(1, 3), spoken(2, 5), Some(3)),
            (spoken(1, 1), spoken(2, 3), None),
        ] {
            assert_eq!((one.common(other), other.common(one)), (common, common));
        }
        assert_eq!(Spoken::up_to(1), Ok(spoken(1, 1)));
        for wrong in [0, Spoken::THIS.newest + 1] {
            assert_eq!(Spoken::up_to(wrong), Err(ReplicationError::Invalid(String::new())));
        }
    }

    #[test]
    fn who_holds_a_protocol_back_is_named() {
        let address = |node: u64| (node, format!("10.0.0.{node}:4500"));
        let members = Members::of_voters((1..=3).map(address)).with_learner("10.0.0.4:4500");
        let spoken = |oldest, newest| Some(Spoken { oldest, newest });
        let find =
            |known: [Option<Spoken>; 4]| HeldBack::find(&members, |node| known[node as usize - 1]);
        let new = spoken(1, 2);
        assert_eq!(find([new; 4]), None, "it rises by itself");
        assert_eq!(
            find([spoken(1, 1), None, None, spoken(1, 1)]),
            None,
            "nobody speaks a newer one"
        );
        let risen = members.with_protocol(2);
        assert_eq!(HeldBack::find(&risen, |node| new.filter(|_| node == 1)), None, "it has risen");
        // A learner counts, be it one that was excluded.
        let told = find([new, new, new, None]).unwrap().to_string();
        assert!(
            told.contains("stays at version 1") && told.contains("exclude failed 10.0.0.4:4500"),
            "{told}"
        );
        assert!(!told.contains("10.0.0.3"), "{told}");
        let told = find([new, spoken(1, 1), new, None]).unwrap().to_string();
        assert!(told.contains("10.0.0.2:4500 speaks no newer one than 1"), "{told}");
        assert!(told.contains("10.0.0.4:4500 can't be reached"), "{told}");
    }

    #[test]
    fn who_can_not_read_what_a_cluster_writes_is_told_what_to_do() {
        let spoken = Spoken { oldest: 2, newest: 3 };
        assert_eq!((spoken.check(2), spoken.check(3)), (Ok(()), Ok(())));
        for (protocol, told) in [(4, "newer"), (1, "older")] {
            let why = spoken.check(protocol).unwrap_err();
            assert!(
                matches!(why, ReplicationError::Incompatible(_)) && why.detail().contains(told),
                "{why}"
            );
        }
    }
}
