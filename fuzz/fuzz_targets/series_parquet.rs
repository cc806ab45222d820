//! The target `series_parquet` of `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (plinth_fuzz::target("series_parquet").expect("it is in the list").run)(bytes));
