//! The target `cluster_file` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("cluster_file").expect("it is in the list").run)(bytes));
