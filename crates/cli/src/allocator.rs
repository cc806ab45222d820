//! What the C library's allocator does with large blocks of memory.
//!
//! It takes blocks of 128 KiB and more from the system and gives them back to it when they are let go, until the first of
//! them is let go: from then on it counts everything shorter than that one as small, and what is let go among the small stays with the
//! process, in a part of memory for each of many threads. Filters, indexes, keys of the last seconds: a database with a memory
//! of 256 MiB took 124 % of it, and 102 % with a limit that stays where it begins.
//!
//! A library leaves that to its process; this is our own process.

/// The parameter of `mallopt` for the length from which on blocks come from the system (`M_MMAP_THRESHOLD`, malloc.h).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_FROM: std::ffi::c_int = -3;

/// Where the C library's limit begins.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LIMIT: std::ffi::c_int = 128 << 10;

/// Has large blocks always go back to the system. For the beginning of the program.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library's setting has no safe form")]
pub fn give_large_blocks_back() {
    unsafe extern "C" {
        fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
    }
    // SAFETY: the function is glibc's, with the types that malloc.h declares; it may be called at any time, takes numbers only, and
    // refuses those that it doesn't know, which changes nothing.
    unsafe { mallopt(LARGE_FROM, LIMIT) };
}

/// Other allocators have no such limit.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_large_blocks_back() {}
