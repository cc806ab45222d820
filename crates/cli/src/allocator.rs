//! What the C library's allocator does with large blocks of memory.
//!
//! It takes blocks of 128 KiB and more from the system and gives them back to it when they are let
//! go, until the first of them is let go: from then on it counts everything shorter than that one
//! as small, and what is let go among the small stays with the process, in a part of memory for
//! each of many threads. Filters, indexes, keys of the last seconds: a database with a memory of
//! 256 MiB took 124 % of it, and 102 % with a limit that stays where it begins.
//!
//! A limit that stays also leaves the other one where it begins: as soon as 128 KiB lie free at the
//! end of a thread's part of memory, they go back to the system, which then tells every processor.
//! Two threads that read ranges of a thousand keys, 100 KB each, spent a third of their time on
//! that: 12 M keys/s, and 19 M with half a MiB.
//!
//! A library leaves that to its process; this is our own process.

/// What is set: the parameters' numbers in malloc.h, and their values in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const SETTINGS: [(std::ffi::c_int, std::ffi::c_int); 2] = [
    // M_MMAP_THRESHOLD: the length from which on blocks come from the system, where it begins.
    (-3, 128 << 10),
    // M_TRIM_THRESHOLD: how much may lie free at the end of a part of memory. There are up to eight
    // parts a processor.
    (-1, 512 << 10),
];

/// Has large blocks always go back to the system, and small ones once they are many. For the
/// beginning of the program. Says whether the allocator knows all settings.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library's setting has no safe form")]
pub fn give_large_blocks_back() -> bool {
    unsafe extern "C" {
        fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
    }
    // SAFETY: the function is glibc's, with the types that malloc.h declares; it may be called at
    // any time, takes numbers only, and refuses those that it doesn't know, which changes nothing.
    SETTINGS.iter().all(|(parameter, value)| unsafe { mallopt(*parameter, *value) } == 1)
}

/// Other allocators have no such limit.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_large_blocks_back() -> bool {
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_allocator_knows_what_is_set() {
        assert!(super::give_large_blocks_back());
    }
}
