//! The target `replication_frames` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("replication_frames").expect("it is in the list").run)(bytes));
