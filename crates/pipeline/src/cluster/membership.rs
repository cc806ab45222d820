//! Who a node is in its cluster, and who else votes there: the file `MEMBERS` in a member's directory.
//!
//! It is durable before `IDENTITY` says that the directory is a member's, so the one never lacks the
//! other. Its bytes stand in `docs/format/members.md`. What it says is checked wherever it is made or
//! read: nobody opens a member that could count itself twice, or not at all.

use plinth_env::Env;
use plinth_replication::NodeId;
use plinth_types::{Error, Result};
use std::path::Path;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "MEMBERS";
/// The name under which the next one is written.
pub(crate) const UNFINISHED_NAME: &str = "MEMBERS.new";

const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"PLNTHMEM";
/// The most voters that a cluster may have.
const MAX_VOTERS: usize = 15;
/// The most bytes of an address.
const MAX_ADDRESS: usize = 255;
const HEAD_LEN: usize = 8 + 4 + 16 + 8 + 4;

/// A node that counts for the majority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Voter {
    /// Its number, which is never used again.
    pub id: NodeId,
    /// Where other nodes and clients reach it, as `ip:port`; may change.
    pub address: String,
}

/// Who a node is, and in which cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Membership {
    /// The cluster, as every file of its nodes names it.
    pub cluster_id: [u8; 16],
    /// This node.
    pub node: NodeId,
    /// Who votes, in the order of their numbers. This node is one of them.
    pub voters: Vec<Voter>,
}

impl Membership {
    /// The numbers of all voters.
    pub fn voter_ids(&self) -> Vec<NodeId> {
        self.voters.iter().map(|voter| voter.id).collect()
    }

    /// The address of a voter.
    pub fn address_of(&self, id: NodeId) -> Option<&str> {
        self.voters.iter().find(|voter| voter.id == id).map(|voter| voter.address.as_str())
    }

    /// How it takes part in the agreement.
    pub(crate) fn taking_part(&self) -> plinth_replication::Config {
        // Voters that know each other differ in their timeouts, whatever the cluster.
        let seed = u64::from_le_bytes(*self.cluster_id.first_chunk().unwrap_or(&[0; 8]));
        plinth_replication::Config::of_voters(self.node, self.voter_ids(), seed)
    }

    /// Whether a node can be this.
    ///
    /// # Errors
    /// `invalid_option_value`, saying what is wrong.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::invalid_option_value().with_detail(what));
        let ids = self.voter_ids();
        if ids.first().is_none_or(|first| *first == 0) || !ids.is_sorted_by(|one, next| one < next) {
            return refuse(format!("voters {ids:?}: each needs a number of its own, from 1, in order"));
        }
        if ids.len() > MAX_VOTERS {
            return refuse(format!("{} voters, there may be {MAX_VOTERS}", ids.len()));
        }
        if !ids.contains(&self.node) {
            return refuse(format!("node {} is none of the voters {ids:?}", self.node));
        }
        for (at, Voter { id, address }) in self.voters.iter().enumerate() {
            if address.is_empty() || address.len() > MAX_ADDRESS {
                return refuse(format!("the address of node {id} has {} bytes", address.len()));
            }
            if let Some(other) = self.voters[..at].iter().find(|other| other.address == *address) {
                return refuse(format!("nodes {} and {id} have the same address {address}", other.id));
            }
        }
        Ok(())
    }
}

/// Writes the file, durably and in one step.
pub(crate) async fn write(env: &Env, dir: &Path, membership: &Membership) -> Result<()> {
    membership.check()?;
    env.files().replace(dir.join(FILE_NAME), &encode(membership)).await
}

/// Reads the file.
///
/// # Errors
/// `file_corrupt` if it is missing, damaged, or can't be; `unsupported_operation` if it is of a later format;
/// those of files.
pub(crate) async fn read(env: &Env, dir: &Path) -> Result<Membership> {
    let path = dir.join(FILE_NAME);
    let corrupt = |what: String| Error::file_corrupt().with_detail(format!("{}: {what}", path.display()));
    let bytes = match env.files().read(&path).await {
        Ok(bytes) => bytes,
        Err(error) if error == Error::file_not_found() => {
            return Err(corrupt("expected the members of this node's cluster, found no file".into()));
        }
        Err(error) => return Err(error),
    };
    if let Some(format) = bytes.get(8..12).and_then(|bytes| bytes.first_chunk())
        && bytes.starts_with(MAGIC)
        && u32::from_le_bytes(*format) > FORMAT
    {
        let detail = format!(
            "{}: offset 8: format {}, newer than the {FORMAT} that this program reads; open it with a newer \
             version of Plinth",
            path.display(),
            u32::from_le_bytes(*format)
        );
        return Err(Error::unsupported_operation().with_detail(detail));
    }
    let membership = decode(&bytes).map_err(corrupt)?;
    membership.check().map_err(|error| corrupt(error.detail().unwrap_or_default().to_string()))?;
    Ok(membership)
}

fn encode(membership: &Membership) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&membership.cluster_id);
    bytes.extend_from_slice(&membership.node.to_le_bytes());
    bytes.extend_from_slice(&(membership.voters.len() as u32).to_le_bytes());
    for Voter { id, address } in &membership.voters {
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.push(address.len() as u8);
        bytes.extend_from_slice(address.as_bytes());
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Takes the next `N` bytes.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn decode(bytes: &[u8]) -> std::result::Result<Membership, String> {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(format!("{} bytes, expected {HEAD_LEN} at least", bytes.len()));
    };
    let (found, expected) = (u32::from_le_bytes(*checksum), crc32c::crc32c(body));
    if found != expected {
        let at = body.len();
        return Err(format!("offset {at}: checksum is {found:#010x}, expected {expected:#010x}"));
    }
    let short = || format!("{} bytes, fewer than its voters take", bytes.len());
    let mut rest = body;
    if take(&mut rest) != Some(*MAGIC) || take(&mut rest) != Some(FORMAT.to_le_bytes()) {
        return Err("offset 0: these are not the members of a cluster".into());
    }
    let cluster_id = take(&mut rest).ok_or_else(short)?;
    let node = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
    let count = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?) as usize;
    let mut voters = Vec::new();
    for _ in 0..count.min(MAX_VOTERS + 1) {
        let id = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
        let [len] = take(&mut rest).ok_or_else(short)?;
        let (address, tail) = rest.split_at_checked(usize::from(len)).ok_or_else(short)?;
        rest = tail;
        let address = String::from_utf8(address.to_vec()).map_err(|error| error.to_string())?;
        voters.push(Voter { id, address });
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes behind its voters", rest.len()));
    }
    Ok(Membership { cluster_id, node, voters })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Membership {
        let voter = |id, address: &str| Voter { id, address: address.to_string() };
        Membership { cluster_id: [9; 16], node: 3, voters: vec![voter(1, "a:1"), voter(3, "b:2")] }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = encode(&sample());
        let head = [&b"PLNTHMEM\x01\0\0\0"[..], &[9; 16], &[3, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0]].concat();
        let one = [&[1, 0, 0, 0, 0, 0, 0, 0, 3][..], b"a:1"].concat();
        let other = [&[3, 0, 0, 0, 0, 0, 0, 0, 3][..], b"b:2"].concat();
        let checksum = [241, 168, 144, 204];
        assert_eq!(bytes, [&head[..], &one, &other, &checksum].concat());
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = encode(&sample());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes).is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| decode(&good[..len]).is_err()));
    }

    #[test]
    fn what_no_node_can_be_is_refused() {
        assert_eq!(sample().check(), Ok(()));
        let wrong = [
            Membership { node: 2, ..sample() },
            Membership { voters: vec![], ..sample() },
            Membership { voters: [sample().voters, sample().voters].concat(), ..sample() },
            Membership { voters: sample().voters.into_iter().rev().collect(), ..sample() },
            Membership {
                voters: sample().voters.into_iter().map(|it| Voter { address: "a:1".into(), ..it }).collect(),
                ..sample()
            },
        ];
        for membership in wrong {
            assert_eq!(membership.check(), Err(Error::invalid_option_value()), "{membership:?}");
        }
    }
}
