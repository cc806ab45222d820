//! Who a node is in its cluster, and who else is in it: the file `MEMBERS` in a member's directory.
//!
//! It is durable before `IDENTITY` says that the directory is a member's, so the one never lacks
//! the other. Each change is written down when it is committed, before anything that comes after
//! it: see `Keeper`. Its bytes stand in `docs/format/members.md`. What it says is checked wherever
//! it is made or read: nobody opens a member that could count itself twice, or not at all.

use crate::failure::{NodeError, NodeResult};
use plinth_env::Env;
use plinth_format::checksum;
use plinth_replication::{Doing, Members, NodeId, Records, ReplicationError, ReplicationResult};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the file.
pub(crate) const FILE_NAME: &str = "MEMBERS";
/// The name under which the next one is written.
pub(crate) const UNFINISHED_NAME: &str = "MEMBERS.new";

const FORMAT: u32 = 2;
/// The format of before members could change: voters alone.
const FOUNDED: u32 = 1;
const MAGIC: &[u8; 8] = b"PLNTHMEM";
const HEAD_LEN: usize = 8 + 4 + 16 + 8 + 8 + 4;

/// A node that a cluster is founded with.
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
    /// As of which entry of the log these are the members; 0: the cluster was founded with them.
    pub index: u64,
    /// Who is a member.
    pub members: Arc<Members>,
}

impl Membership {
    /// Of a node in a cluster that is founded with these voters.
    pub fn founding(cluster_id: [u8; 16], node: NodeId, voters: Vec<Voter>) -> Self {
        let members = Members::of_voters(voters.into_iter().map(|voter| (voter.id, voter.address)));
        Self { cluster_id, node, index: 0, members: Arc::new(members) }
    }

    /// What is written of it in a member's directory. Nothing is locked or changed.
    ///
    /// # Errors
    /// `Damaged` if there is no such file, or it is damaged; `NewerFormat` if it is of a later
    /// format; those of files.
    pub async fn read(env: &Env, dir: &Path) -> NodeResult<Self> {
        read(env, dir).await
    }

    /// The address of a member.
    pub fn address_of(&self, id: NodeId) -> Option<&str> {
        self.members.node(id).map(|node| node.address.as_str())
    }

    /// Whether this node was a member, and is none any more.
    pub fn is_removed(&self) -> bool {
        self.members.part(self.node).is_none() && self.node < self.members.next_id
    }

    /// How it takes part in the agreement.
    pub(crate) fn taking_part(&self) -> plinth_replication::Config {
        // Nodes that know each other differ in their timeouts, whatever the cluster.
        let seed = u64::from_le_bytes(*self.cluster_id.first_chunk().unwrap_or(&[0; 8]));
        plinth_replication::Config::of_members(self.node, (*self.members).clone(), self.index, seed)
    }

    /// Whether a node can be this.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong.
    pub fn check(&self) -> ReplicationResult<()> {
        self.members.check()?;
        if self.members.part(self.node).is_none() && !self.is_removed() {
            let detail = format!("node {} is none of the members", self.node);
            return Err(ReplicationError::Invalid(detail));
        }
        Ok(())
    }
}

/// What writes the file of a directory while the node runs.
pub(crate) struct Keeper {
    pub env: Env,
    pub dir: PathBuf,
    pub cluster_id: [u8; 16],
    pub node: NodeId,
}

impl Records for Keeper {
    fn keep<'a>(&'a self, members: &'a Members, index: u64) -> Doing<'a> {
        let members = Arc::new(members.clone());
        let membership =
            Membership { cluster_id: self.cluster_id, node: self.node, index, members };
        Box::pin(async move {
            membership.check()?;
            let (files, path) = (self.env.files(), self.dir.join(FILE_NAME));
            Ok(files.replace(path, &encode(&membership)).await?)
        })
    }
}

/// Writes the file, durably and in one step.
pub(crate) async fn write(env: &Env, dir: &Path, membership: &Membership) -> NodeResult<()> {
    membership.check()?;
    Ok(env.files().replace(dir.join(FILE_NAME), &encode(membership)).await?)
}

/// Reads the file.
///
/// # Errors
/// `Damaged` if it is missing, damaged, or can't be; `NewerFormat` if it is of a later format;
/// those of files.
pub(crate) async fn read(env: &Env, dir: &Path) -> NodeResult<Membership> {
    let path = dir.join(FILE_NAME);
    let corrupt = |what: String| NodeError::Damaged(format!("{}: {what}", path.display()).into());
    let bytes = match env.files().read(&path).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            return Err(corrupt(
                "expected the members of this node's cluster, found no file".into(),
            ));
        }
        Err(error) => return Err(error.into()),
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
        return Err(NodeError::NewerFormat(detail.into()));
    }
    let membership = decode(&bytes).map_err(corrupt)?;
    membership.check().map_err(|error| corrupt(error.detail().to_owned()))?;
    Ok(membership)
}

fn encode(membership: &Membership) -> Vec<u8> {
    let members = membership.members.encode();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&membership.cluster_id);
    bytes.extend_from_slice(&membership.node.to_le_bytes());
    bytes.extend_from_slice(&membership.index.to_le_bytes());
    bytes.extend_from_slice(&(members.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&members);
    let checksum = checksum(&bytes);
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
    let Some((body, found)) = bytes.split_last_chunk::<4>() else {
        return Err(format!("{} bytes, expected {HEAD_LEN} at least", bytes.len()));
    };
    let (found, expected) = (u32::from_le_bytes(*found), checksum(body));
    if found != expected {
        let at = body.len();
        return Err(format!("offset {at}: checksum is {found:#010x}, expected {expected:#010x}"));
    }
    let short = || format!("{} bytes, expected {} at least", bytes.len(), HEAD_LEN + 4);
    let mut rest = body;
    if take(&mut rest) != Some(*MAGIC) {
        return Err("offset 0: these are not the members of a cluster".into());
    }
    let format = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?);
    let cluster_id = take(&mut rest).ok_or_else(short)?;
    let node = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
    if format == FOUNDED {
        return founded(rest, cluster_id, node).ok_or_else(short);
    }
    let index = u64::from_le_bytes(take(&mut rest).ok_or_else(short)?);
    let len = u32::from_le_bytes(take(&mut rest).ok_or_else(short)?) as usize;
    if rest.len() != len {
        return Err(format!("offset {HEAD_LEN}: {} bytes of members, expected {len}", rest.len()));
    }
    let members = Members::decode(rest).map_err(|error| error.detail().to_owned())?;
    Ok(Membership { cluster_id, node, index, members: Arc::new(members) })
}

/// The rest of a file of format 1: how many voters, each with number and address.
fn founded(mut rest: &[u8], cluster_id: [u8; 16], node: NodeId) -> Option<Membership> {
    let count = u32::from_le_bytes(take(&mut rest)?);
    let mut voters = Vec::new();
    for _ in 0..count.min(16) {
        let id = u64::from_le_bytes(take(&mut rest)?);
        let [len] = take(&mut rest)?;
        let (address, tail) = rest.split_at_checked(usize::from(len))?;
        rest = tail;
        voters.push(Voter { id, address: std::str::from_utf8(address).ok()?.to_owned() });
    }
    rest.is_empty().then(|| Membership::founding(cluster_id, node, voters))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Membership {
        let voter = |id, address: &str| Voter { id, address: address.to_string() };
        Membership {
            index: 7,
            ..Membership::founding([9; 16], 3, vec![voter(1, "a:1"), voter(3, "b:2")])
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let bytes = encode(&sample());
        let node = [3, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        let head = [&b"PLNTHMEM\x02\0\0\0"[..], &[9; 16], &node, &[36, 0, 0, 0]].concat();
        let next = [1, 4, 0, 0, 0, 0, 0, 0, 0, 2];
        let one = [&[1, 0, 0, 0, 0, 0, 0, 0, 1, 3][..], b"a:1"].concat();
        let other = [&[3, 0, 0, 0, 0, 0, 0, 0, 1, 3][..], b"b:2"].concat();
        let expected = [&head[..], &next, &one, &other].concat();
        assert_eq!(bytes[..bytes.len() - 4], expected);
        assert_eq!(bytes[bytes.len() - 4..], checksum(&expected).to_le_bytes());
        assert_eq!(decode(&bytes), Ok(sample()));
    }

    #[test]
    fn a_file_of_before_members_could_change_is_read() {
        let head = [&b"PLNTHMEM\x01\0\0\0"[..], &[9; 16], &[3, 0, 0, 0, 0, 0, 0, 0], &[2, 0, 0, 0]]
            .concat();
        let one = [&[1, 0, 0, 0, 0, 0, 0, 0, 3][..], b"a:1"].concat();
        let other = [&[3, 0, 0, 0, 0, 0, 0, 0, 3][..], b"b:2"].concat();
        let bytes = [&head[..], &one, &other, &[241, 168, 144, 204]].concat();
        assert_eq!(decode(&bytes), Ok(Membership { index: 0, ..sample() }));
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
        let removed = Membership { node: 2, ..sample() };
        assert!(
            removed.is_removed() && removed.check().is_ok(),
            "its directory says what became of it"
        );
        let members = |members: Members| Membership { members: Arc::new(members), ..sample() };
        let wrong = [
            Membership { node: 4, ..sample() },
            members(Members { next_id: 3, ..(*sample().members).clone() }),
            members(sample().members.with_address(3, "a:1")),
        ];
        for membership in wrong {
            let refused = Err(ReplicationError::Invalid(String::new()));
            assert_eq!(membership.check(), refused, "{membership:?}");
        }
    }
}
