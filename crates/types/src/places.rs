//! Where the members of a cluster are, as far as clients need it of the row that says who they are.
//!
//! What else is in that row, and how it changes, is the business of the crate `replication`.

use crate::Error;

/// A member of a cluster, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberPlace {
    /// Its number.
    pub node: u64,
    /// Whether it votes, now or once a change that is under way is over.
    pub votes: bool,
    /// Where it listens, as `ip:port`.
    pub address: String,
}

/// The members that a row names, in the order of their numbers.
///
/// # Errors
/// `file_corrupt` if it is no such row.
pub fn member_places(row: &[u8]) -> crate::Result<Vec<MemberPlace>> {
    let corrupt =
        || Error::file_corrupt().with_detail("the row of the cluster's members can't be read");
    parse(row).ok_or_else(corrupt)
}

/// The version of their protocol that all members speak, as a row says.
///
/// # Errors
/// `file_corrupt` if it is no such row.
pub fn members_protocol(row: &[u8]) -> crate::Result<u16> {
    member_places(row)?;
    let later = row.strip_prefix(&[2]).and_then(|rest| rest.first_chunk::<2>());
    Ok(later.map_or(1, |protocol| u16::from_le_bytes(*protocol)))
}

fn parse(row: &[u8]) -> Option<Vec<MemberPlace>> {
    let (format, rest) = row.split_first()?;
    // The second format has the cluster's protocol first.
    let rest = match format {
        1 => rest,
        2 => rest.split_first_chunk::<2>()?.1,
        _ => return None,
    };
    let ([.., count], mut rest) = rest.split_first_chunk::<9>()?;
    let mut places = Vec::new();
    for _ in 0..*count {
        let (node, tail) = rest.split_first_chunk::<8>()?;
        let ([part, len], tail) = tail.split_first_chunk::<2>()?;
        let (address, tail) = tail.split_at_checked(usize::from(*len))?;
        rest = tail;
        let address = std::str::from_utf8(address).ok()?.to_owned();
        places.push(MemberPlace {
            node: u64::from_le_bytes(*node),
            votes: matches!(part, 1 | 2),
            address,
        });
    }
    rest.is_empty().then_some(places)
}
