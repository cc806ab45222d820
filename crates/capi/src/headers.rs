//! The generated header, `fdb_c_options.g.h`: options and other enumerations from the same tables that the code goes by.
//!
//! The file is checked in, so that a build writes nothing; the test below fails when a table has changed, and writes it
//! anew when `PLINTH_WRITE_HEADERS` is set.

use crate::network_options;
use plinth_client::{DatabaseOption, OptionParameter, TransactionOption};
use std::fmt::Write;

const PREDICATES: [(i32, &str); 3] =
    [(50_000, "retryable"), (50_001, "maybe_committed"), (50_002, "retryable_not_committed")];
const MODES: [(i32, &str); 7] = [
    (-2, "want_all"),
    (-1, "iterator"),
    (0, "exact"),
    (1, "small"),
    (2, "medium"),
    (3, "large"),
    (4, "serial"),
];
const MUTATIONS: [(i32, &str); 15] = [
    (2, "add"),
    (6, "and"),
    (6, "bit_and"),
    (7, "or"),
    (7, "bit_or"),
    (8, "xor"),
    (8, "bit_xor"),
    (9, "append_if_fits"),
    (12, "max"),
    (13, "min"),
    (14, "set_versionstamped_key"),
    (15, "set_versionstamped_value"),
    (16, "byte_min"),
    (17, "byte_max"),
    (20, "compare_and_clear"),
];
const CONFLICTS: [(i32, &str); 2] = [(0, "read"), (1, "write")];

/// The header's text.
fn options_header() -> String {
    let mut out = String::from(
        "/* Made from the tables in the source; see crates/capi/src/headers.rs. */\n\
         #ifndef FDB_C_OPTIONS_G_H\n#define FDB_C_OPTIONS_G_H\n#pragma once\n\n",
    );
    let network = network_options::ALL.iter().map(|(code, name, kind)| (*code, *name, kind.words()));
    enumeration(&mut out, "FDBNetworkOption", "NET_OPTION", network);
    let words = |parameter: &OptionParameter| match parameter {
        OptionParameter::None => "no value",
        OptionParameter::Int => "integer: 8 bytes, little-endian",
        OptionParameter::String => "text",
        OptionParameter::Bytes => "bytes",
    };
    let database = DatabaseOption::ALL.iter().map(|(code, name, kind)| (*code, *name, words(kind)));
    enumeration(&mut out, "FDBDatabaseOption", "DB_OPTION", database);
    let transaction = TransactionOption::ALL.iter().map(|(code, name, kind)| (*code, *name, words(kind)));
    enumeration(&mut out, "FDBTransactionOption", "TR_OPTION", transaction);
    for (name, prefix, members) in [
        ("FDBStreamingMode", "STREAMING_MODE", &MODES[..]),
        ("FDBMutationType", "MUTATION_TYPE", &MUTATIONS[..]),
        ("FDBConflictRangeType", "CONFLICT_RANGE_TYPE", &CONFLICTS[..]),
        ("FDBErrorPredicate", "ERROR_PREDICATE", &PREDICATES[..]),
    ] {
        enumeration(&mut out, name, prefix, members.iter().map(|(code, name)| (*code, *name, "")));
    }
    out.push_str("#endif\n");
    out
}

fn enumeration<'a>(
    out: &mut String,
    name: &str,
    prefix: &str,
    members: impl Iterator<Item = (i32, &'a str, &'a str)>,
) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "typedef enum {{");
    for (code, member, words) in members {
        let comment = if words.is_empty() { String::new() } else { format!(" /* {words} */") };
        let _ = writeln!(out, "    FDB_{prefix}_{} = {code},{comment}", member.to_ascii_uppercase());
    }
    let _ = writeln!(out, "}} {name};\n");
}

#[test]
fn the_header_is_as_the_tables_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/foundationdb/fdb_c_options.g.h");
    let env = plinth_env::Env::real();
    let files = env.files();
    let text = options_header();
    if std::env::var_os("PLINTH_WRITE_HEADERS").is_some() {
        plinth_env::block_on(files.replace(path, text.as_bytes())).expect("the source folder can be written");
    }
    let kept = plinth_env::block_on(files.read(path)).unwrap_or_default();
    assert!(kept == text.as_bytes(), "{path} is old: run this test with PLINTH_WRITE_HEADERS=1");
}

#[test]
fn every_function_of_the_header_is_exported() {
    let header = include_str!("../include/foundationdb/fdb_c.h");
    let exports = [
        include_str!("exports/database.rs"),
        include_str!("exports/future.rs"),
        include_str!("exports/legacy.rs"),
        include_str!("exports/network.rs"),
        include_str!("exports/retired.rs"),
        include_str!("exports/tenant.rs"),
        include_str!("exports/transaction.rs"),
    ]
    .concat();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let exported: std::collections::BTreeSet<&str> = exports.split(|c| !is_word(c)).collect();
    let declared = header.lines().filter(|line| line.starts_with("DLLEXPORT"));
    let names: Vec<&str> =
        declared.filter_map(|line| line.split('(').next()?.rsplit(|c| !is_word(c)).next()).collect();
    assert!(names.len() > 80, "{}", names.len());
    for name in names {
        assert!(exported.contains(name), "{name}");
    }
}
