//! Numbers and byte strings in a body: little-endian, lengths before bytes.
//!
//! A [`Reader`] walks foreign bytes and never gives more than there are. Counts are held against
//! the bytes that are left before anything is allocated for them, so that a lie about a count costs
//! nothing.

use plinth_types::{Error, Result};

/// Stands for "there is none" in the place of a length.
const NONE: u32 = u32::MAX;

/// Writes to the end of a buffer.
pub trait Put {
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// How many there are of something, in four bytes.
    ///
    /// # Panics
    /// If they are 2^32 or more: no message has room for so many.
    fn put_count(&mut self, count: usize);
    /// Eight bytes, signed.
    fn put_i64(&mut self, value: i64);
    /// A length and the bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// The same, or the mark that there are none.
    fn put_optional(&mut self, bytes: Option<&[u8]>);
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("a message has no room for so many"));
    }

    #[inline]
    fn put_i64(&mut self, value: i64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        // Not as many as stand for none.
        debug_assert_ne!(u32::try_from(bytes.len()), Ok(NONE));
        self.put_count(bytes.len());
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_optional(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.put_bytes(bytes),
            None => self.put_u32(NONE),
        }
    }
}

/// Walks the body of a message.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the begin of a body.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or_else(too_short)?;
        self.rest = rest;
        Ok(*array)
    }

    /// A number of one byte.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A number of two bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of four bytes that counts bytes or elements.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn size(&mut self) -> Result<usize> {
        size(self.u32()?)
    }

    /// A number of eight bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A signed number of four bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    /// A signed number of eight bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// A byte that is 0 or 1.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    pub fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(malformed(format!("a flag is {other}"))),
        }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or_else(too_short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// A length and as many bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.size()?;
        self.take(len)
    }

    /// The same, unless there is the mark for none.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn optional(&mut self) -> Result<Option<&'a [u8]>> {
        match self.u32()? {
            NONE => Ok(None),
            len => self.take(size(len)?).map(Some),
        }
    }

    /// How many elements follow, each of at least `least` bytes.
    ///
    /// # Errors
    /// `client_invalid_operation` if they aren't there.
    #[inline]
    pub fn count(&mut self, least: usize) -> Result<usize> {
        let count = self.size()?;
        if count > self.rest.len() / least {
            return Err(malformed(format!(
                "{count} elements are claimed in {} bytes",
                self.rest.len()
            )));
        }
        Ok(count)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// `client_invalid_operation` if something is.
    #[inline]
    pub fn end(self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(malformed(format!("{} bytes are left over", self.rest.len())))
    }
}

#[inline]
fn size(number: u32) -> Result<usize> {
    // Where memory is smaller than that, so many bytes don't follow.
    usize::try_from(number).map_err(|_| too_short())
}

/// What is said of bytes that are no message.
pub fn malformed(what: impl std::fmt::Display) -> Error {
    Error::client_invalid_operation().with_detail(format!("malformed message: {what}"))
}

#[cold]
fn too_short() -> Error {
    malformed("it ends too early")
}
