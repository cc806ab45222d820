//! The target `tls_peers` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("tls_peers").expect("it is in the list").run)(bytes));
