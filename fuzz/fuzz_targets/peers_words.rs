//! The target `peers_words` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("peers_words").expect("it is in the list").run)(bytes));
