//! How a connection between nodes begins: hello, welcome, proof, verdict.
//!
//! Both sides say who they are and take a random number each; then each proves that it has the
//! cluster's secret, the one that was called first. Nothing else is believed of the other before
//! that. Nodes of which a cluster is yet to be formed have no secret: with them a connection
//! carries what [`forming`](mod@crate::forming) says, and no frame. Nor has a node that wants to
//! join: the leader calls it back where it says that it listens, and gives it the charter there.
//!
//! ```text
//!   caller   hello ─────────▶            ◀───────── welcome (with proof)   called
//!            proof ─────────▶            ◀───────── verdict
//!            packets ───────▶            ◀───────── answers to pings
//! ```

use crate::charter::Charter;
use crate::failure::{PeerError, PeerResult};
use crate::secret::LEN;
use plinth_proto::envelope;
use plinth_proto::wire::{Put, Reader};
use plinth_replication::{Members, NodeId, Spoken};
use plinth_types::Error;

/// What a connection between nodes begins with, in both directions.
pub const MAGIC: [u8; 8] = *b"\x89PLNPR\r\n";
/// Longest text; longer ones are cut.
const MAX_TEXT: usize = 1024;

/// What a node is called for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To be sent frames, by a member of its cluster.
    Frames,
    /// To form a cluster with the caller.
    Forming,
    /// To take the caller into its cluster, or to be taken into the caller's.
    Joining,
}

/// What the caller begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The versions of the protocol that it speaks.
    pub spoken: Spoken,
    /// What it wants.
    pub purpose: Purpose,
    /// `description:id` of its cluster file.
    pub cluster: String,
    /// The cluster it is a member of; zeros if none yet.
    pub cluster_id: [u8; 16],
    /// Which node it is; 0 if it is none yet.
    pub from: NodeId,
    /// Which node it believes to call; 0 if it can't know.
    pub to: NodeId,
    /// Random.
    pub nonce: [u8; LEN],
    /// Its own address, as its cluster file has it.
    pub address: String,
    /// All addresses of its cluster file in order, while a cluster is formed.
    pub addresses: String,
    /// For how many versions a transaction may read and commit there; 0 if it doesn't say.
    pub window: u64,
}

/// What has become of a node that is called.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Stage {
    /// Its directory is empty.
    #[default]
    Empty,
    /// It has a charter, and doesn't know whether its cluster has begun.
    Chartered,
    /// Its cluster has begun.
    Begun,
}

/// The answer to a hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version that the connection speaks from here on; 0 if it was refused.
    pub version: u16,
    /// Why it was refused; it is closed after this.
    pub refused: Option<Error>,
    /// The cluster of the one that was called; zeros if it has none yet.
    pub cluster_id: [u8; 16],
    /// Which node it is; 0 if none yet.
    pub node: NodeId,
    /// What has become of it.
    pub stage: Stage,
    /// Random.
    pub nonce: [u8; LEN],
    /// Proof that it has its cluster's secret; zeros if it has none.
    pub proof: [u8; LEN],
}

/// What else the two sides say before there are packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// The caller has the secret too.
    Proof([u8; LEN]),
    /// All is well, or why not.
    Verdict(Result<(), Error>),
    /// Found a cluster with this. Answered with a verdict, once the directory is durable.
    Found(Charter),
    /// The caller is no member of this cluster any more.
    Removed,
    /// Take part in a cluster that has begun, as this node of it. Answered with a verdict, once the
    /// directory is durable.
    Join(Charter, NodeId, Members, u64),
}

impl Hello {
    /// The version for a connection of this caller with a node that speaks this.
    ///
    /// # Errors
    /// `Incompatible`, with what both speak, if there is none. Both hear it.
    pub fn choose(&self, called: Spoken) -> PeerResult<u16> {
        let caller = self.spoken;
        caller.common(called).ok_or_else(|| {
            PeerError::Incompatible(format!(
                "the server that calls, {}, speaks versions {} to {} of the servers' protocol, the one that is called {} to {}",
                self.address, caller.oldest, caller.newest, called.oldest, called.newest
            ))
        })
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        envelope::put(out, MAGIC, |content| {
            content.put_u16(self.spoken.oldest);
            content.put_u16(self.spoken.newest);
            content.push(match self.purpose {
                Purpose::Frames => 1,
                Purpose::Forming => 2,
                Purpose::Joining => 3,
            });
            content.put_bytes(cut(&self.cluster));
            content.extend_from_slice(&self.cluster_id);
            content.put_u64(self.from);
            content.put_u64(self.to);
            content.extend_from_slice(&self.nonce);
            content.put_bytes(cut(&self.address));
            content.put_bytes(cut(&self.addresses));
            // Programs of before read no further than this.
            content.put_u64(self.window);
        });
    }

    /// The hello that `bytes` begin with, and how many of them it takes; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// `Malformed` or `Told` if it is none.
    pub fn decode(bytes: &[u8]) -> PeerResult<Option<(Self, usize)>> {
        let Some((content, len)) = envelope::split(bytes, MAGIC)? else { return Ok(None) };
        let mut reader = Reader::new(content);
        let spoken = Spoken { oldest: reader.u16()?, newest: reader.u16()? };
        let purpose = match reader.u8()? {
            1 => Purpose::Frames,
            2 => Purpose::Forming,
            3 => Purpose::Joining,
            other => return Err(PeerError::malformed(format!("purpose {other}"))),
        };
        let hello = Self {
            spoken,
            purpose,
            cluster: text(reader.bytes()?),
            cluster_id: reader.array()?,
            from: reader.u64()?,
            to: reader.u64()?,
            nonce: reader.array()?,
            address: text(reader.bytes()?),
            addresses: text(reader.bytes()?),
            window: reader.rest().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)),
        };
        Ok(Some((hello, len)))
    }
}

impl Welcome {
    /// The answer to a hello that is refused.
    pub fn refuse(why: impl Into<Error>) -> Self {
        Self {
            version: 0,
            refused: Some(why.into()),
            cluster_id: [0; 16],
            node: 0,
            stage: Stage::Empty,
            nonce: [0; LEN],
            proof: [0; LEN],
        }
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        envelope::put(out, MAGIC, |content| {
            content.put_u16(self.version);
            put_error(content, self.refused.as_ref());
            content.extend_from_slice(&self.cluster_id);
            content.put_u64(self.node);
            content.push(self.stage as u8);
            content.extend_from_slice(&self.nonce);
            content.extend_from_slice(&self.proof);
        });
    }

    /// The welcome that `bytes` begin with, and how many of them it takes; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// `Malformed` or `Told` if it is none; `Mismatch` if it is one for clients, with which a
    /// server answers that is no member of a cluster.
    pub fn decode(bytes: &[u8]) -> PeerResult<Option<(Self, usize)>> {
        if bytes.starts_with(&plinth_proto::hello::MAGIC) {
            return Err(PeerError::Mismatch(
                "a Plinth server is there, but one with a database of its own, not one of a cluster: give it another address, \
                 or start it with this cluster file and an empty directory"
                    .into(),
            ));
        }
        let Some((content, len)) = envelope::split(bytes, MAGIC)? else { return Ok(None) };
        let mut reader = Reader::new(content);
        let version = reader.u16()?;
        let refused = error(&mut reader)?;
        if refused.is_none() && !(Spoken::THIS.oldest..=Spoken::THIS.newest).contains(&version) {
            return Err(PeerError::malformed(format!(
                "the other node chose version {version} of the protocol"
            )));
        }
        let (cluster_id, node) = (reader.array()?, reader.u64()?);
        let stage = match reader.u8()? {
            0 => Stage::Empty,
            1 => Stage::Chartered,
            2 => Stage::Begun,
            other => return Err(PeerError::malformed(format!("stage {other}"))),
        };
        let (nonce, proof) = (reader.array()?, reader.array()?);
        Ok(Some((Self { version, refused, cluster_id, node, stage, nonce, proof }, len)))
    }

    /// What the called one proves over, and the caller after it.
    pub(crate) fn parts<'a>(hello: &'a [u8], welcome: &'a Self) -> [Vec<u8>; 2] {
        let mut bare = Vec::new();
        Self { proof: [0; LEN], ..welcome.clone() }.encode(&mut bare);
        [hello.to_vec(), bare]
    }
}

impl Word {
    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        envelope::put(out, MAGIC, |content| match self {
            Self::Proof(proof) => {
                content.push(1);
                content.extend_from_slice(proof);
            }
            Self::Verdict(verdict) => {
                content.push(2);
                put_error(content, verdict.as_ref().err());
            }
            Self::Found(charter) => {
                content.push(3);
                charter.encode(content);
            }
            Self::Removed => content.push(4),
            Self::Join(charter, node, members, index) => {
                content.push(5);
                charter.encode(content);
                content.put_u64(*node);
                content.put_bytes(&members.encode());
                content.put_u64(*index);
            }
        });
    }

    /// The word that `bytes` begin with, and how many of them it takes; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// `Malformed`, `Corrupt`, `Replication` or `Told` if it is none.
    pub fn decode(bytes: &[u8]) -> PeerResult<Option<(Self, usize)>> {
        let Some((content, len)) = envelope::split(bytes, MAGIC)? else { return Ok(None) };
        let mut reader = Reader::new(content);
        let word = match reader.u8()? {
            1 => Self::Proof(reader.array()?),
            2 => Self::Verdict(error(&mut reader)?.map_or(Ok(()), Err)),
            3 => Self::Found(Charter::decode(&mut reader)?),
            4 => Self::Removed,
            5 => {
                let (charter, node) = (Charter::decode(&mut reader)?, reader.u64()?);
                Self::Join(charter, node, Members::decode(reader.bytes()?)?, reader.u64()?)
            }
            other => return Err(PeerError::malformed(format!("word {other}"))),
        };
        Ok(Some((word, len)))
    }
}

fn put_error(out: &mut Vec<u8>, error: Option<&Error>) {
    out.put_u16(error.map_or(0, |error| error.code() as u16));
    out.put_bytes(cut(error.and_then(Error::detail).unwrap_or_default()));
}

fn error(reader: &mut Reader<'_>) -> PeerResult<Option<Error>> {
    let code = reader.u16()?;
    let detail = text(reader.bytes()?);
    Ok((code != 0).then(|| Error::from_code(code.into()).with_detail(detail)))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cut(text: &str) -> &[u8] {
    &text.as_bytes()[..text.len().min(MAX_TEXT)]
}

#[cfg(test)]
mod tests;
