//! zstd, where the program is built with it (feature `zstd`, whose library is C); elsewhere nothing
//! is compressed so, and a block that is says what is missing.

use plinth_format::Flaw;
/// zstd's own usual level.
#[cfg(feature = "zstd")]
const LEVEL: i32 = 3;

/// Bytes that a compressed body of this length takes at most; 0: it can't be compressed.
#[cfg(feature = "zstd")]
pub(super) fn most(len: usize) -> usize {
    zstd::zstd_safe::compress_bound(len)
}

#[cfg(not(feature = "zstd"))]
pub(super) fn most(_len: usize) -> usize {
    0
}

/// Compresses into `out`; gives the length there.
#[cfg(feature = "zstd")]
pub(super) fn compress(body: &[u8], out: &mut [u8]) -> Option<usize> {
    use std::cell::RefCell;
    use zstd::bulk::Compressor;

    thread_local! {
        // Its tables are larger than a block, so it is made once for each thread that writes.
        static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = Compressor::new(LEVEL).ok();
        }
        compressor.as_mut()?.compress_to_buffer(body, out).ok()
    })
}

#[cfg(not(feature = "zstd"))]
pub(super) fn compress(_body: &[u8], _out: &mut [u8]) -> Option<usize> {
    None
}

/// Puts the body that was compressed into `raw`; gives its length there.
#[cfg(feature = "zstd")]
pub(super) fn decompress(stored: &[u8], raw: &mut [u8]) -> Result<usize, Flaw> {
    zstd::bulk::decompress_to_buffer(stored, raw)
        .map_err(|error| Flaw::new("compressed body", "zstd", error))
}

#[cfg(not(feature = "zstd"))]
pub(super) fn decompress(_stored: &[u8], _raw: &mut [u8]) -> Result<usize, Flaw> {
    Err(Flaw::new(
        "compressed body",
        "LZ4 or none, for this program is built without the feature zstd",
        "zstd",
    ))
}
