//! How a connection begins: the client says hello, the server says welcome, or why not.
//!
//! Both carry the range of protocol versions that their side speaks, so that an older client and a
//! newer server find the newest version that both know, or can say precisely what is missing. The
//! form of these two messages never changes; later versions may append to them, and readers ignore
//! what they don't know. Around them is what `envelope.rs` puts there.

use crate::envelope;
use crate::reply::code;
use crate::wire::{Put, Reader, malformed};
use plinth_types::{Error, Result};

/// What a connection begins with, in both directions: no text, and damaged by whatever changes line
/// ends.
pub const MAGIC: [u8; 8] = *b"\x89PLNTH\r\n";
/// The oldest version of the protocol that this crate speaks.
pub const OLDEST: u16 = 1;
/// The newest version of the protocol that this crate speaks.
pub const NEWEST: u16 = 9;
/// Longest text in either message; longer ones are cut.
const MAX_TEXT: usize = 1024;

/// What a client begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The oldest version of the protocol that the client speaks.
    pub oldest: u16,
    /// The newest one.
    pub newest: u16,
    /// Optional abilities, a bit each; none is defined yet.
    pub features: u64,
    /// `description:id` of its cluster file, so that it doesn't end up at another database; empty
    /// for any.
    pub cluster: String,
    /// What program it is, for people.
    pub name: String,
}

impl Hello {
    /// The hello of this crate's client.
    pub fn new(cluster: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            oldest: OLDEST,
            newest: NEWEST,
            features: 0,
            cluster: cluster.into(),
            name: name.into(),
        }
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        envelope::put(out, MAGIC, |content| {
            content.put_u16(self.oldest);
            content.put_u16(self.newest);
            content.put_u64(self.features);
            content.put_bytes(cut(&self.cluster));
            content.put_bytes(cut(&self.name));
        });
    }

    /// The hello that `bytes` begin with, and how many of them it takes; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// `client_invalid_operation` or `checksum_failed` if it is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let Some((content, len)) = envelope::split(bytes, MAGIC)? else { return Ok(None) };
        let mut reader = Reader::new(content);
        let hello = Self {
            oldest: reader.u16()?,
            newest: reader.u16()?,
            features: reader.u64()?,
            cluster: text(reader.bytes()?),
            name: text(reader.bytes()?),
        };
        Ok(Some((hello, len)))
    }

    /// The version of the protocol for a connection with this client.
    ///
    /// # Errors
    /// `incompatible_protocol_version`, with what both speak, if there is none.
    pub fn choose(&self) -> Result<u16> {
        self.choose_up_to(NEWEST)
    }

    /// The version of the protocol for a connection of this client with a server that offers none
    /// newer than `offered`.
    ///
    /// # Errors
    /// As [`Hello::choose`].
    pub fn choose_up_to(&self, offered: u16) -> Result<u16> {
        let newest = self.newest.min(offered);
        if newest >= self.oldest.max(OLDEST) {
            return Ok(newest);
        }
        Err(Error::incompatible_protocol_version().with_detail(format!(
            "the client speaks versions {} to {} of the protocol, the server {OLDEST} to {offered}",
            self.oldest, self.newest
        )))
    }
}

/// What a server answers to a hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The version that the connection speaks from here on; 0 if it was refused.
    pub version: u16,
    /// The oldest version of the protocol that the server speaks.
    pub oldest: u16,
    /// The newest one.
    pub newest: u16,
    /// The abilities that both have.
    pub features: u64,
    /// The identity of the database; empty if the connection was refused.
    pub cluster_id: String,
    /// Why the connection was refused; it is closed after this.
    pub refused: Option<Error>,
}

impl Welcome {
    /// The answer of this crate's server to a hello that it accepts.
    pub fn accept(hello: &Hello, version: u16, cluster_id: impl Into<String>) -> Self {
        let cluster_id = cluster_id.into();
        let features = hello.features & FEATURES;
        Self { version, oldest: OLDEST, newest: NEWEST, features, cluster_id, refused: None }
    }

    /// The answer to one that it refuses.
    pub fn refuse(error: Error) -> Self {
        let refused = Some(error);
        Self {
            version: 0,
            oldest: OLDEST,
            newest: NEWEST,
            features: 0,
            cluster_id: String::new(),
            refused,
        }
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        envelope::put(out, MAGIC, |content| {
            content.put_u16(self.version);
            content.put_u16(self.oldest);
            content.put_u16(self.newest);
            content.put_u64(self.features);
            content.put_bytes(cut(&self.cluster_id));
            content.put_u16(self.refused.as_ref().map_or(0, code));
            let detail = self.refused.as_ref().and_then(Error::detail);
            content.put_bytes(cut(detail.unwrap_or_default()));
        });
    }

    /// The welcome that `bytes` begin with, and how many of them it takes; `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// `client_invalid_operation` or `checksum_failed` if it is none.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let Some((content, len)) = envelope::split(bytes, MAGIC)? else { return Ok(None) };
        let mut reader = Reader::new(content);
        let (version, oldest, newest) = (reader.u16()?, reader.u16()?, reader.u16()?);
        let features = reader.u64()?;
        let cluster_id = text(reader.bytes()?);
        let code = reader.u16()?;
        let detail = text(reader.bytes()?);
        let refused = (code != 0).then(|| Error::from_code(code.into()).with_detail(detail));
        if refused.is_none() && !(OLDEST..=NEWEST).contains(&version) {
            return Err(malformed(format!("the server chose version {version} of the protocol")));
        }
        Ok(Some((Self { version, oldest, newest, features, cluster_id, refused }, len)))
    }
}

/// The abilities that this crate knows.
const FEATURES: u64 = 0;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn cut(text: &str) -> &[u8] {
    let text = text.as_bytes();
    text.get(..MAX_TEXT).unwrap_or(text)
}
