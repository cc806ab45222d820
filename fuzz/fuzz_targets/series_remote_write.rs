//! The target `series_remote_write` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("series_remote_write").expect("it is in the list").run)(bytes));
