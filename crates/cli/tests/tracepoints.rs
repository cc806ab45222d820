//! What tracers look for is in the program: a note for each tracepoint, with its provider, name and
//! arguments, and each of them is described to those who listen.
//!
//! The test reads the executable as bpftrace and perf would, with a few lines that know where ELF
//! keeps its sections.
#![cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]

use plinth_env::{Env, block_on};
use std::collections::BTreeMap;

/// Each tracepoint, and how many arguments it has.
const TRACEPOINTS: [(&str, usize); 5] =
    [("commit", 3), ("fsync", 3), ("read", 2), ("read_range", 2), ("transaction_start", 2)];

/// A number of so many bytes at a place.
fn number(file: &[u8], at: usize, bytes: usize) -> usize {
    file[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// The text at a place, up to its zero.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).expect("a text ends with a zero");
    std::str::from_utf8(&bytes[..end]).unwrap()
}

/// The bytes of a section.
fn section<'f>(file: &'f [u8], wanted: &str) -> Option<&'f [u8]> {
    assert_eq!(&file[..5], b"\x7fELF\x02");
    let (table, size) = (number(file, 0x28, 8), number(file, 0x3a, 2));
    let (count, names) = (number(file, 0x3c, 2), number(file, 0x3e, 2));
    let head = |at: usize| &file[table + at * size..][..size];
    let content = |at: usize| &file[number(head(at), 0x18, 8)..][..number(head(at), 0x20, 8)];
    let name = |at: usize| text(&content(names)[number(head(at), 0, 4)..]);
    (0..count).find(|at| name(*at) == wanted).map(content)
}

/// Where code is in the file, and where it comes to be in memory.
fn code(file: &[u8]) -> Vec<(usize, usize)> {
    const LOADED: usize = 1;
    const EXECUTABLE: usize = 1;
    let (table, size, count) =
        (number(file, 0x20, 8), number(file, 0x36, 2), number(file, 0x38, 2));
    let heads = (0..count).map(|at| &file[table + at * size..][..size]);
    let loaded =
        heads.filter(|head| number(head, 0, 4) == LOADED && number(head, 4, 4) & EXECUTABLE != 0);
    loaded.map(|head| (number(head, 8, 8), number(head, 16, 8))).collect()
}

/// Tracepoints by name, each with its arguments as tracers are told them.
fn notes(section: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < section.len() {
        let (name, content) = (number(section, at, 4), number(section, at + 4, 4));
        assert_eq!((number(section, at + 8, 4), text(&section[at + 12..])), (3, "stapsdt"));
        let begin = at + 12 + name.next_multiple_of(4);
        // Behind three addresses: provider, name, arguments.
        let mut rest = &section[begin + 24..begin + content];
        let mut next = || {
            let next = text(rest).to_owned();
            rest = &rest[next.len() + 1..];
            next
        };
        let (provider, name, arguments) = (next(), next(), next());
        assert_eq!(provider, "plinth");
        found.insert(name, arguments);
        at = begin + content.next_multiple_of(4);
    }
    found
}

#[test]
fn every_tracepoint_leaves_its_note_in_the_program_and_is_described() {
    let env = Env::real();
    let file = block_on(env.files().read(env!("CARGO_BIN_EXE_plinth"))).unwrap();
    let notes = notes(section(&file, ".note.stapsdt").expect("there are tracepoints"));
    let found: Vec<_> = notes
        .iter()
        .map(|(name, arguments)| (name.as_str(), arguments.split_whitespace().count()))
        .collect();
    assert_eq!(found, TRACEPOINTS, "{notes:?}");
    for (in_file, in_memory) in code(&file) {
        assert_eq!(
            in_file, in_memory,
            "perf takes the one for the other, and would miss every tracepoint"
        );
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");
    let page = String::from_utf8(block_on(env.files().read(page)).unwrap()).unwrap();
    for (name, _) in TRACEPOINTS {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "docs/monitoring.md doesn't describe {name}"
        );
    }
}
