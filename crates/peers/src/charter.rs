//! What a cluster was founded with: its identity, its secret, who its nodes are. On disk the file
//! `CHARTER` of each node.
//!
//! The file is its owner's alone, and replaced in one step. It is written before a node's directory
//! is anything else, so a node that crashed while its directory was made knows what to make; and
//! once more when the cluster has begun, since a node may neither vote nor serve before it knows
//! that. Where the directory has a key it is sealed, as all else that tells something: whoever has
//! the secret can speak as a node. [The page](../../../docs/format/charter.md) draws it.

use crate::failure::{PeerError, PeerResult};
use crate::secret::{self, Secret};
use plinth_env::Env;
use plinth_format::crypt::{ENVELOPE_LEN, TAG_LEN, numbered};
use plinth_format::{Cipher, Flaw, Keys};
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
/// The formats: in the clear, and sealed.
const CLEAR: u32 = 1;
const SEALED: u32 = 2;
/// Bytes of magic and format, about which the file's key is sealed.
const HEAD: usize = 12;
/// What is sealed is the only body.
const BODY: u64 = 0;

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
    /// `Locked` if it is sealed, and not with one of the keys; `Corrupt` if it is damaged,
    /// `NewerFormat` if it is of a later format; those of files.
    pub async fn read(env: &Env, dir: &Path, keys: &Keys) -> PeerResult<Option<Self>> {
        Ok(Self::load(env, dir, keys).await?.map(|(standing, _)| standing))
    }

    /// The same, and how it is kept.
    pub(crate) async fn load(
        env: &Env,
        dir: &Path,
        keys: &Keys,
    ) -> PeerResult<Option<(Self, Cipher)>> {
        let path = dir.join(FILE_NAME);
        let bytes = match env.files().read(&path).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let standing = Self::decode(&bytes, keys).map_err(|error| {
            let what = format!("{}: {}", path.display(), error.summary());
            match error {
                PeerError::NewerFormat(_) => PeerError::NewerFormat(what),
                PeerError::Locked(_) => PeerError::Locked(what),
                _ => PeerError::Corrupt(what),
            }
        })?;
        Ok(Some(standing))
    }

    /// Writes the file, durably and in one step; sealed if there are keys.
    ///
    /// # Errors
    /// Those of files.
    pub async fn write(&self, env: &Env, dir: &Path, keys: &Keys) -> PeerResult<()> {
        let bytes = self.encode(keys, |random| env.fill_random(random));
        Ok(env.keeping_private().files().replace(dir.join(FILE_NAME), &bytes).await?)
    }

    fn encode(&self, keys: &Keys, random: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.put_u32(if keys.is_none() { CLEAR } else { SEALED });
        let (cipher, envelope) = keys.of_new_file(&bytes, 0, random);
        bytes.extend(envelope.into_iter().flatten());
        let head = bytes.len();
        bytes.put_u32(self.begun.into());
        bytes.put_u64(self.node);
        self.charter.encode(&mut bytes);
        if let Some(key) = cipher.key() {
            let (head, body) = bytes.split_at_mut(head);
            let tag = key.seal(numbered(BODY), head, body);
            bytes.extend(tag);
        }
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    fn decode(bytes: &[u8], keys: &Keys) -> PeerResult<(Self, Cipher)> {
        let corrupt = |what: String| Err(PeerError::Corrupt(what));
        let Some((all, checksum)) = bytes.split_last_chunk::<4>() else {
            return corrupt(format!("{} bytes are no charter", bytes.len()));
        };
        let Some(rest) = all.strip_prefix(&MAGIC) else {
            return corrupt("it is no charter".to_owned());
        };
        let format = Reader::new(rest).u32()?;
        if format > SEALED {
            let detail =
                format!("format {format}, newer than the {SEALED} that this program reads");
            return Err(PeerError::NewerFormat(detail));
        }
        let (expected, found) = (u32::from_le_bytes(*checksum), crc32c::crc32c(all));
        if expected != found {
            return corrupt(format!("its checksum is {expected:08x}, its bytes have {found:08x}"));
        }
        let (head, body) = all.split_at(HEAD);
        if format < SEALED {
            return Ok((Self::decode_body(body)?, Cipher::Clear));
        }
        let (body, cipher) = opened(head, body, keys)?;
        Ok((Self::decode_body(&body)?, cipher))
    }

    fn decode_body(body: &[u8]) -> PeerResult<Self> {
        let mut reader = Reader::new(body);
        let begun = reader.u32()? == 1;
        let node = reader.u64()?;
        let charter = Charter::decode(&mut reader)?;
        reader.end()?;
        if node == 0 {
            return Err(PeerError::Corrupt("node 0".to_owned()));
        }
        Ok(Self { charter, node, begun })
    }
}

/// What is sealed behind the envelope with which `rest` begins.
fn opened(head: &[u8], rest: &[u8], keys: &Keys) -> PeerResult<(Vec<u8>, Cipher)> {
    let flawed = |Flaw { what, expected, found }: Flaw| {
        PeerError::Corrupt(format!("{what}: {expected} expected, {found} found"))
    };
    let cipher = keys.of_file(rest, head, 0).map_err(flawed)?;
    if let Some(id) = cipher.locked() {
        return Err(PeerError::Locked(keys.lack("it", id)));
    }
    let (envelope, sealed) = rest.split_at(ENVELOPE_LEN.min(rest.len()));
    let about = [head, envelope].concat();
    let mut body = sealed.to_vec();
    let len = cipher.key().and_then(|key| key.open(numbered(BODY), &about, &mut body));
    let Some(len) = len.filter(|len| len + TAG_LEN == sealed.len()) else {
        return Err(PeerError::Corrupt("it isn't what the file's key has sealed".to_owned()));
    };
    body.truncate(len);
    Ok((body, cipher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_format::crypt::Key;

    /// The checksum of the sealed sample.
    const GOLDEN: [u8; 4] = [9, 57, 152, 0];

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

    fn in_the_clear(standing: &Standing) -> Vec<u8> {
        standing.encode(&Keys::none(), |_| unreachable!("nothing is sealed"))
    }

    fn keys(of: &[u8]) -> Keys {
        let key = |byte: &u8| Key::of_file(&[*byte; 32]).expect("32 bytes are a key");
        Keys::new(&of.iter().map(key).collect::<Vec<_>>())
    }

    fn sealed(keys: &Keys) -> Vec<u8> {
        sample().encode(keys, |random| random.fill(0x33))
    }

    #[test]
    fn the_bytes_of_a_charter() {
        let bytes = in_the_clear(&sample());
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
        let (found, cipher) = Standing::decode(&bytes, &keys(&[1])).unwrap();
        assert_eq!((found, cipher.key_id()), (sample(), None), "in the clear it stays readable");
    }

    #[test]
    fn the_bytes_of_a_sealed_charter() {
        let ours = keys(&[1]);
        let bytes = sealed(&ours);
        let clear = in_the_clear(&sample());
        assert_eq!(bytes.len(), clear.len() + ENVELOPE_LEN + TAG_LEN);
        assert_eq!(bytes[..HEAD], *b"PLNTHCHR\x02\0\0\0");
        assert_eq!(bytes[HEAD..HEAD + 16], *b"PLNTHKEY\x01\0\0\0\x60\0\0\0");
        assert_eq!(bytes.last_chunk(), Some(&GOLDEN), "the bytes behind are others");
        // Of two keys the first has sealed what is written, and both open.
        for (keys, is_outdated) in [(ours, false), (keys(&[1, 2]), false), (keys(&[2, 1]), true)] {
            let (found, cipher) = Standing::decode(&bytes, &keys).unwrap();
            assert_eq!((found, cipher.is_outdated(&keys)), (sample(), is_outdated));
        }
        for lacking in [Keys::none(), keys(&[2])] {
            let error = Standing::decode(&bytes, &lacking).unwrap_err();
            assert!(matches!(&error, PeerError::Locked(what) if what.contains("key")), "{error}");
        }
        let words = |bytes: &[u8], word: &[u8]| bytes.windows(word.len()).any(|one| one == word);
        for word in [&b"a:b"[..], b"h:1", &[0x11; 16], &[0x22; 32]] {
            assert!(words(&clear, word) && !words(&bytes, word), "{word:?}");
        }
    }

    #[test]
    fn a_damaged_one_is_refused() {
        let keys = keys(&[1]);
        for good in [in_the_clear(&sample()), sealed(&keys)] {
            for len in 0..good.len() {
                Standing::decode(&good[..len], &keys).expect_err("cut short");
            }
            for bit in 0..good.len() * 8 {
                let mut bytes = good.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                Standing::decode(&bytes, &keys).expect_err("one bit is another");
            }
            // Somebody who can make checksums.
            let body = good.len() - 4;
            for byte in HEAD..body {
                let mut bytes = good[..body].to_vec();
                bytes[byte] ^= 1;
                bytes.put_u32(crc32c::crc32c(&bytes));
                let found = Standing::decode(&bytes, &keys);
                assert!(found.is_err() || good[8] == 1, "byte {byte} of a sealed one is another");
            }
        }
        let wrong = [
            Charter { members: vec![], ..sample().charter },
            Charter { members: vec![Peer { node: 7, address: String::new() }], ..sample().charter },
            Charter { members: vec![sample().charter.members[1].clone(); 2], ..sample().charter },
        ];
        for charter in wrong {
            let bytes = in_the_clear(&Standing { charter, ..sample() });
            Standing::decode(&bytes, &keys).expect_err("no cluster is founded so");
        }
        let nobody = Standing { node: 0, ..sample() };
        Standing::decode(&in_the_clear(&nobody), &keys).expect_err("no node");
    }
}
