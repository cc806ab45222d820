//! Exemplars: examples of what was measured, each a value with labels of its own, such as the trace
//! that it came from. A record of a series holds one, and the last of a time counts.
//!
//! ```text
//!   | value, 8 bytes | how many labels | of each: length of the name, name, length of the value, value |
//! ```

use crate::codec::reader::{Reader, write_number};
use crate::error::Result;

/// Bytes of names and values of an exemplar's labels, at most.
pub(crate) const MAX_LABEL_BYTES: usize = 2048;
/// Labels, at most.
pub(crate) const MAX_LABELS: usize = 64;

/// An example of what was measured: a value, and what tells where it came from.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Exemplar {
    /// Names and values of its labels, which are none of its series': 64 of them, and 2048 bytes
    /// together, at most.
    pub labels: Vec<(String, String)>,
    /// The value.
    pub value: f64,
}

impl Exemplar {
    /// Whether its labels are few and short enough to be kept.
    pub(crate) fn fits(&self) -> bool {
        self.label_bytes() <= MAX_LABEL_BYTES && self.labels.len() <= MAX_LABELS
    }

    /// Bytes of names and values of its labels.
    fn label_bytes(&self) -> usize {
        self.labels.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Bytes that it takes in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.label_bytes() + self.labels.capacity() * size_of::<(String, String)>()
    }

    /// Its bytes; `None` if its labels are too many or too long to be kept.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        if !self.fits() {
            return None;
        }
        let mut out = self.value.to_le_bytes().to_vec();
        write_number(self.labels.len() as u64, &mut out);
        for text in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            write_number(text.len() as u64, &mut out);
            out.extend_from_slice(text.as_bytes());
        }
        Some(out)
    }

    /// The exemplar of some bytes.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] for bytes that [`Exemplar::encode`] did not make.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let value = f64::from_le_bytes(reader.fixed::<8>()?);
        let mut labels = Vec::new();
        for _ in 0..reader.count(MAX_LABELS)? {
            let name = text(&mut reader)?;
            labels.push((name, text(&mut reader)?));
        }
        match reader.is_empty() {
            true => Ok(Self { labels, value }),
            false => Err(reader.wrong("the end of an exemplar")),
        }
    }
}

fn text(reader: &mut Reader<'_>) -> Result<String> {
    let len = reader.count(MAX_LABEL_BYTES)?;
    let text = String::from_utf8(reader.take(len)?.to_vec());
    text.map_err(|_| reader.wrong("text in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for labels in [vec![], vec![label("trace_id", "0af7"), label("ä", "")]] {
            let exemplar = Exemplar { labels, value: -0.25 };
            let bytes = exemplar.encode().unwrap();
            assert_eq!(Exemplar::decode(&bytes).unwrap(), exemplar);
            for len in 0..bytes.len() {
                assert!(Exemplar::decode(&bytes[..len]).is_err(), "{len}");
            }
        }
        assert!(Exemplar::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0xff, 0]).is_err());
        let long = Exemplar { labels: vec![label("a", &"x".repeat(MAX_LABEL_BYTES))], value: 0.0 };
        let many = Exemplar { labels: vec![label("a", ""); MAX_LABELS + 1], value: 0.0 };
        assert!(long.encode().is_none() && many.encode().is_none());
    }
}
