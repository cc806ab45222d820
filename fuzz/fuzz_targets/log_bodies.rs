//! The target `log_bodies` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("log_bodies").expect("it is in the list").run)(bytes));
