//! Files that mean harm: the corpus of the fuzzer's target `settings`, and mutations of it.

use super::file;
use plinth_env::{Env, block_on};
use std::path::Path;

/// Parses, and looks at what is told: it must name the file.
fn try_out(bytes: &[u8]) {
    if let Err(failure) = file::parse("F.toml", &String::from_utf8_lossy(bytes)) {
        assert!(failure.to_string().starts_with("F.toml"), "{failure}");
    }
}

#[test]
fn no_file_with_settings_does_harm() {
    let env = Env::real();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/settings");
    let names = block_on(env.files().list(&dir)).expect("the corpus is there");
    assert!(!names.is_empty());
    for name in names {
        let bytes = block_on(env.files().read(dir.join(name))).expect("it can be read");
        try_out(&bytes);
        // Cut off anywhere, and with each byte in turn another.
        for at in 0..bytes.len() {
            try_out(&bytes[..at]);
            let mut other = bytes.clone();
            other[at] = b"\"'=[]{}\n\\#.0\xff"[at % 13];
            try_out(&other);
        }
    }
}
