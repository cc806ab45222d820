//! Protocol buffers' encoding, as far as messages from senders need it: fields one after the other,
//! borrowed from the message, without a copy and without a type for each message.

/// What a field of a message has.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    Number(u64),
    Eight(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no field here has.
    Other,
}

/// The fields of a message, by their numbers; ends with the first error.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// What was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// A message behind its length, where there are several, one after the other.
    pub(crate) fn delimited(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn field(&mut self) -> Option<(u64, Payload<'a>)> {
        let tag = self.number()?;
        let payload = match tag & 7 {
            0 => Payload::Number(self.number()?),
            1 => Payload::Eight(u64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            2 => Payload::Bytes(self.delimited()?),
            5 => self.take(4).map(|_| Payload::Other)?,
            _ => return None,
        };
        Some((tag >> 3, payload))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Payload<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = b"";
        }
        Some(field.ok_or_else(|| {
            "the message ends in the middle of a field, or has one of an unknown kind".to_string()
        }))
    }
}

/// Takes the numbers of 8 bytes of a repeated field, packed or not.
pub(crate) fn eights(payload: Payload<'_>, mut take: impl FnMut(u64)) {
    match payload {
        Payload::Eight(bits) => take(bits),
        Payload::Bytes(packed) => {
            packed.as_chunks::<8>().0.iter().for_each(|bits| take(u64::from_le_bytes(*bits)))
        }
        Payload::Number(_) | Payload::Other => {}
    }
}

/// Takes the numbers of variable length of a repeated field, packed or not.
///
/// # Errors
/// If they are none.
pub(crate) fn numbers(payload: Payload<'_>, mut take: impl FnMut(u64)) -> Result<(), String> {
    match payload {
        Payload::Number(number) => take(number),
        Payload::Bytes(packed) => {
            let mut rest = Fields(packed);
            while !rest.0.is_empty() {
                take(rest.number().ok_or("a number is cut off")?);
            }
        }
        Payload::Eight(_) | Payload::Other => {}
    }
    Ok(())
}

/// Appends a number of variable length.
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a field of bytes.
pub(crate) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_number(u64::from(field) << 3 | 2, out);
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
