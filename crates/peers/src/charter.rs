//! What a cluster was founded with: its identity, its secret, who its nodes are. On disk the file
//! `CHARTER` of each node.
//!
//! The file is its owner's alone, and replaced in one step. It is written before a node's directory
//! is anything else, so a node that crashed while its directory was made knows what to make; and
//! once more when the cluster has begun, since a node may neither vote nor serve before it knows
//! that. [The page](../../../docs/format/charter.md) draws it.

use crate::failure::{PeerError, PeerResult};
use crate::secret::{self, Secret};
use plinth_env::Env;
use plinth_proto::wire::{Put, Reader};
use plinth_replication::NodeId;
use std::path::Path;

/// The name of the file.
pub const FILE_NAME: &str = "CHARTER";
/// Most nodes that a cluster may be formed of.
pub const MAX_MEMBERS: usize = 9;
/// Most bytes of an address.
const MAX_ADDRESS: usize = 255;
/// Most bytes of `description:id`.
const MAX_NAME: usize = 255;
const MAGIC: [u8; 8] = *b"PLNTHCHR";
const FORMAT: u32 = 1;

/// A node, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The node.
    pub node: NodeId,
    /// Where it listens, as `host:port`.
    pub address: String,
}

/// What a cluster was founded with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Charter {
    /// `description:id` of its cluster file.
    pub cluster: String,
    /// Its identity, which every file of its nodes names.
    pub cluster_id: [u8; 16],
    /// What its nodes know and nobody else.
    pub secret: Secret,
    /// Its nodes, in the order of their numbers.
    pub members: Vec<Peer>,
}

/// A charter as a node keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The charter.
    pub charter: Charter,
    /// Which node this is: one of the charter's, or one that was taken in later.
    pub node: NodeId,
    /// Whether the cluster has begun, as far as this node knows.
    pub begun: bool,
}

impl Charter {
    /// The node at an address.
    pub fn node_at(&self, address: &str) -> Option<NodeId> {
        self.members.iter().find(|peer| peer.address == address).map(|peer| peer.node)
    }

    /// Whether a cluster can be founded with it.
    ///
    /// # Errors
    /// `Corrupt`, saying what is wrong.
    pub fn check(&self) -> PeerResult<()> {
        let refuse = |what: String| Err(PeerError::Corrupt(format!("a charter with {what}")));
        let nodes: Vec<_> = self.members.iter().map(|peer| peer.node).collect();
        if nodes.first().is_none_or(|first| *first == 0)
            || !nodes.is_sorted_by(|one, next| one < next)
        {
            return refuse(format!(
                "nodes {nodes:?}: each has a number of its own, from 1, in order"
            ));
        }
        if nodes.len() > MAX_MEMBERS || self.cluster.len() > MAX_NAME {
            return refuse(format!(
                "{} nodes and a name of {} bytes",
                nodes.len(),
                self.cluster.len()
            ));
        }
        for (at, Peer { node, address }) in self.members.iter().enumerate() {
            let is_twice = self.members[..at].iter().any(|other| other.address == *address);
            if address.is_empty() || address.len() > MAX_ADDRESS || is_twice {
                return refuse(format!("node {node} at {address:?}"));
            }
        }
        Ok(())
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bytes(self.cluster.as_bytes());
        out.extend_from_slice(&self.cluster_id);
        out.extend_from_slice(self.secret.bytes());
        out.put_u32(self.members.len() as u32);
        for Peer { node, address } in &self.members {
            out.put_u64(*node);
            out.put_bytes(address.as_bytes());
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// `Told` or `Corrupt` if it is none.
    pub fn decode(reader: &mut Reader<'_>) -> PeerResult<Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let cluster = text(reader.bytes()?);
        let cluster_id = reader.array()?;
        let secret = Secret::from_bytes(reader.array::<{ secret::LEN }>()?);
        let count = reader.count(12)?;
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            members.push(Peer { node: reader.u64()?, address: text(reader.bytes()?) });
        }
        let charter = Self { cluster, cluster_id, secret, members };
        charter.check()?;
        Ok(charter)
    }
}

impl Standing {
    /// What the directory's file says; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged, `NewerFormat` if it is of a later format; those of files.
    pub async fn read(env: &Env, dir: &Path) -> PeerResult<Option<Self>> {
        let path = dir.join(FILE_NAME);
        let bytes = match env.files().read(&path).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let standing = Self::decode(&bytes).map_err(|error| {
            let what = format!("{}: {}", path.display(), error.summary());
            match error {
                PeerError::NewerFormat(_) => PeerError::NewerFormat(what),
                _ => PeerError::Corrupt(what),
            }
        })?;
        Ok(Some(standing))
    }

    /// Writes the file, durably and in one step.
    ///
    /// # Errors
    /// Those of files.
    pub async fn write(&self, env: &Env, dir: &Path) -> PeerResult<()> {
        Ok(env.keeping_private().files().replace(dir.join(FILE_NAME), &self.encode()).await?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.put_u32(FORMAT);
        bytes.put_u32(self.begun.into());
        bytes.put_u64(self.node);
        self.charter.encode(&mut bytes);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    fn decode(bytes: &[u8]) -> PeerResult<Self> {
        let corrupt = |what: String| Err(PeerError::Corrupt(what));
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return corrupt(format!("{} bytes are no charter", bytes.len()));
        };
        let Some(rest) = body.strip_prefix(&MAGIC) else {
            return corrupt("it is no charter".to_owned());
        };
        let mut reader = Reader::new(rest);
        let format = reader.u32()?;
        if format > FORMAT {
            let detail =
                format!("format {format}, newer than the {FORMAT} that this program reads");
            return Err(PeerError::NewerFormat(detail));
        }
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c::crc32c(body));
        if expected != found {
            return corrupt(format!("its checksum is {expected:08x}, its bytes have {found:08x}"));
        }
        let begun = reader.u32()? == 1;
        let node = reader.u64()?;
        let charter = Charter::decode(&mut reader)?;
        reader.end()?;
        if node == 0 {
            return corrupt("node 0".to_owned());
        }
        Ok(Self { charter, node, begun })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Standing {
        let peer = |node, address: &str| Peer { node, address: address.into() };
        let members = vec![peer(5, "h:1"), peer(7, "h:2")];
        let charter = Charter {
            cluster: "a:b".into(),
            cluster_id: [0x11; 16],
            secret: Secret::from_bytes([0x22; secret::LEN]),
            members,
        };
        Standing { charter, node: 7, begun: true }
    }

    #[test]
    fn the_bytes_of_a_charter() {
        let bytes = sample().encode();
        let expected = [
            &b"PLNTHCHR"[..],
            &[1, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0],
            &[3, 0, 0, 0],
            b"a:b",
            &[0x11; 16],
            &[0x22; 32],
            &[2, 0, 0, 0],
            &[5, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            b"h:1",
            &[7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0],
            b"h:2",
        ]
        .concat();
        assert_eq!(bytes[..bytes.len() - 4], expected);
        assert_eq!(Standing::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn a_damaged_one_is_refused() {
        let good = sample().encode();
        for len in 0..good.len() {
            Standing::decode(&good[..len]).expect_err("cut short");
        }
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            Standing::decode(&bytes).expect_err("one bit is another");
        }
        let wrong = [
            Charter { members: vec![], ..sample().charter },
            Charter { members: vec![Peer { node: 7, address: String::new() }], ..sample().charter },
            Charter { members: vec![sample().charter.members[1].clone(); 2], ..sample().charter },
        ];
        for charter in wrong {
            Standing::decode(&Standing { charter, ..sample() }.encode())
                .expect_err("no cluster is founded so");
        }
        let nobody = Standing { node: 0, ..sample() };
        Standing::decode(&nobody.encode()).expect_err("no node");
    }
}
