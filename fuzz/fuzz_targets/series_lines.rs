//! The target `series_lines` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("series_lines").expect("it is in the list").run)(bytes));
