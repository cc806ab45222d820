//! The target `gzip` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("gzip").expect("it is in the list").run)(bytes));
