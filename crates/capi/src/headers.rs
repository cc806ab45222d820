//! The generated headers, from the same tables that the code goes by: `fdb_c_options.g.h`, options
//! and other enumerations for C, and `fdb.options`, the same as XML for those who generate them for
//! other languages.
//!
//! The files are checked in, so that a build writes nothing; a test below fails when a table has
//! changed, and writes them anew when `PLINTH_WRITE_HEADERS` is set. Other tests hold the headers
//! written by hand against what is exported.

use crate::network_options::{self, Kind};
use plinth_client::{DatabaseOption, OptionParameter, TransactionOption};
use std::collections::BTreeSet;
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
    let network =
        network_options::ALL.iter().map(|(code, name, kind)| (*code, *name, kind.words()));
    enumeration(&mut out, "FDBNetworkOption", "NET_OPTION", network);
    let words = |parameter: &OptionParameter| match parameter {
        OptionParameter::None => "no value",
        OptionParameter::Int => "integer: 8 bytes, little-endian",
        OptionParameter::String => "text",
        OptionParameter::Bytes => "bytes",
    };
    let database = DatabaseOption::ALL.iter().map(|(code, name, kind)| (*code, *name, words(kind)));
    enumeration(&mut out, "FDBDatabaseOption", "DB_OPTION", database);
    let transaction =
        TransactionOption::ALL.iter().map(|(code, name, kind)| (*code, *name, words(kind)));
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
    // No comma after the last: C90 knows none there.
    let mut members = members.peekable();
    while let Some((code, member, words)) = members.next() {
        let comma = if members.peek().is_some() { "," } else { "" };
        let comment = if words.is_empty() { String::new() } else { format!(" /* {words} */") };
        let _ = writeln!(
            out,
            "    FDB_{prefix}_{} = {code}{comma}{comment}",
            member.to_ascii_uppercase()
        );
    }
    let _ = writeln!(out, "}} {name};\n");
}

/// One option of `fdb.options`: code, name, the type of its value.
type Listed<'a> = (i32, &'a str, Option<&'a str>);

/// The options as XML, in the form that FoundationDB's generators read.
fn options_list() -> String {
    let mut out = String::from(
        "<?xml version=\"1.0\"?>\n<!-- Made from the tables in the source; see crates/capi/src/headers.rs. -->\n<Options>\n",
    );
    let parameter = |parameter: &OptionParameter| match parameter {
        OptionParameter::None => None,
        OptionParameter::Int => Some("Int"),
        OptionParameter::String => Some("String"),
        OptionParameter::Bytes => Some("Bytes"),
    };
    let kind = |kind: &Kind| match kind {
        Kind::None => None,
        Kind::Int => Some("Int"),
        Kind::Text => Some("String"),
        Kind::Bytes => Some("Bytes"),
    };
    scope(
        &mut out,
        "NetworkOption",
        network_options::ALL.iter().map(|(code, name, k)| (*code, *name, kind(k))),
    );
    let database =
        DatabaseOption::ALL.iter().map(|(code, name, kind)| (*code, *name, parameter(kind)));
    scope(&mut out, "DatabaseOption", database);
    let transaction =
        TransactionOption::ALL.iter().map(|(code, name, kind)| (*code, *name, parameter(kind)));
    scope(&mut out, "TransactionOption", transaction);
    for (name, members, parameter) in [
        ("StreamingMode", &MODES[..], None),
        ("MutationType", &MUTATIONS[..], Some("Bytes")),
        ("ConflictRangeType", &CONFLICTS[..], None),
        ("ErrorPredicate", &PREDICATES[..], None),
    ] {
        scope(&mut out, name, members.iter().map(|(code, name)| (*code, *name, parameter)));
    }
    out.push_str("</Options>\n");
    out
}

fn scope<'a>(out: &mut String, name: &str, members: impl Iterator<Item = Listed<'a>>) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "  <Scope name=\"{name}\">");
    for (code, member, parameter) in members {
        let parameter = parameter.map(|kind| format!(" paramType=\"{kind}\"")).unwrap_or_default();
        let hidden = if HIDDEN.contains(&(name, code)) { " hidden=\"true\"" } else { "" };
        let _ = writeln!(out, "    <Option name=\"{member}\" code=\"{code}\"{parameter}{hidden}/>");
    }
    out.push_str("  </Scope>\n");
}

/// What bindings leave out.
const HIDDEN: [(&str, i32); 9] = [
    ("NetworkOption", 1000),
    ("NetworkOption", 1001),
    ("NetworkOption", 1002),
    ("TransactionOption", 40),
    ("TransactionOption", 50),
    ("TransactionOption", 400),
    ("TransactionOption", 504),
    ("TransactionOption", 710),
    ("TransactionOption", 1102),
];

#[test]
fn the_headers_are_as_the_tables_are() {
    let env = plinth_env::Env::real();
    let files = env.files();
    for (name, text) in [("fdb_c_options.g.h", options_header()), ("fdb.options", options_list())] {
        let path = format!("{}/include/foundationdb/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("PLINTH_WRITE_HEADERS").is_some() {
            plinth_env::block_on(files.replace(&path, text.as_bytes()))
                .expect("the source folder can be written");
        }
        let kept = plinth_env::block_on(files.read(&path)).unwrap_or_default();
        assert!(
            kept == text.as_bytes(),
            "{path} is old: run this test with PLINTH_WRITE_HEADERS=1"
        );
    }
}

/// The functions that a text names.
fn functions(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("fdb_") && !word.ends_with('_')).collect()
}

/// The functions that the library exports.
fn exported() -> BTreeSet<&'static str> {
    const SOURCES: &str = concat!(
        include_str!("exports/changes.rs"),
        include_str!("exports/database.rs"),
        include_str!("exports/future.rs"),
        include_str!("exports/legacy.rs"),
        include_str!("exports/network.rs"),
        include_str!("exports/retired.rs"),
        include_str!("exports/tenant.rs"),
        include_str!("exports/transaction.rs"),
    );
    let code = SOURCES.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(functions).collect()
}

#[test]
fn the_headers_declare_what_is_exported() {
    const HEADERS: &str = concat!(
        include_str!("../include/foundationdb/fdb_c.h"),
        include_str!("../include/foundationdb/fdb_c_internal.h"),
    );
    // A declaration begins with this word; the function's name is the last before the first
    // bracket.
    let declarations = HEADERS.split("DLLEXPORT ").skip(1);
    let names =
        declarations.filter_map(|text| text.split('(').next()?.split([' ', '*']).next_back());
    let declared: BTreeSet<&str> = names.filter(|name| name.starts_with("fdb_")).collect();
    // Programs compiled for a version that old are not served by these headers.
    let undeclared = ["fdb_future_is_error"];
    let all: BTreeSet<&str> = declared.iter().copied().chain(undeclared).collect();
    let exported = exported();
    assert_eq!(
        exported.difference(&all).copied().collect::<Vec<&str>>(),
        [""; 0],
        "exported, not declared"
    );
    assert_eq!(
        all.difference(&exported).copied().collect::<Vec<&str>>(),
        [""; 0],
        "declared, not exported"
    );
}

const PAGE: &str = include_str!("../../../docs/compatibility.md");

#[test]
fn every_function_stands_on_the_page_of_compatibility() {
    let shown = functions(PAGE);
    let missing: Vec<&str> = exported().difference(&shown).copied().collect();
    assert_eq!(missing, [""; 0], "not on docs/compatibility.md");
}

/// The rows of the page's table under a heading: their first two columns.
fn rows(heading: &str) -> BTreeSet<(i32, &'static str)> {
    let section = PAGE.split(&format!("\n{heading}\n")).nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('#'));
    let columns = lines.filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    columns
        .filter_map(|(number, rest)| {
            Some((number.parse().ok()?, rest.split('|').next()?.trim().trim_matches('`')))
        })
        .collect()
}

#[test]
fn every_option_stands_on_the_page_of_compatibility() {
    let network: BTreeSet<_> =
        network_options::ALL.iter().map(|(code, name, _)| (*code, *name)).collect();
    assert_eq!(rows("### Network options"), network);
    let database: BTreeSet<_> =
        DatabaseOption::ALL.iter().map(|(code, name, _)| (*code, *name)).collect();
    assert_eq!(rows("### Database options"), database);
    let transaction: BTreeSet<_> =
        TransactionOption::ALL.iter().map(|(code, name, _)| (*code, *name)).collect();
    assert_eq!(rows("### Transaction options"), transaction);
}

#[test]
fn every_error_stands_on_the_page_of_compatibility() {
    let raised = rows("## Errors");
    // A line may end between number and name.
    let text: Vec<&str> = PAGE.split_whitespace().collect();
    let text = text.join(" ");
    let missing: Vec<String> = (1..10_000)
        .map(plinth_types::Error::from_code)
        .filter(|error| error.name() != "unknown_error")
        .filter(|error| {
            !raised.contains(&(error.code(), error.name()))
                && !text.contains(&format!(" {} `{}`", error.code(), error.name()))
        })
        .map(|error| format!("{} `{}`", error.code(), error.name()))
        .collect();
    assert_eq!(missing, [""; 0], "not on docs/compatibility.md");
    for (code, name) in raised {
        assert_eq!(plinth_types::Error::from_code(code).name(), name, "{code}");
    }
}
