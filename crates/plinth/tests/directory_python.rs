//! Directories that FoundationDB's own Python binding made are seen as that binding sees them.

use plinth::Transaction;
use plinth::directory::Directory;

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/database.rs"));

const FIXTURE: &str = include_str!("fixtures/python_directories.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.strip_prefix('-').unwrap_or(hex);
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What there is below a directory, in the fixture's words.
fn view(tr: &Transaction, path: &[String], lines: &mut Vec<String>) {
    let root = Directory::root();
    for name in root.list(tr, path).wait().unwrap() {
        let path = [path, &[name]].concat();
        let directory = root.open(tr, &path).wait().unwrap();
        let layer = match std::str::from_utf8(directory.layer()).unwrap() {
            "" => "-",
            layer => layer,
        };
        // A partition doesn't tell its prefix: where its directories are says it.
        let prefix = directory.subspace().map(|subspace| hex(subspace.prefix()));
        let prefix = prefix.unwrap_or_else(|error| error.code().to_string());
        lines.push(format!("{} {layer} {prefix}", hex(path.join("/").as_bytes())));
        view(tr, &path, lines);
    }
}

#[test]
fn the_python_bindings_directories_are_seen_as_it_sees_them() {
    let (rows, seen) = FIXTURE.split_once("--\n").unwrap();
    let db = in_memory();
    let tr = db.create_transaction();
    for row in rows.lines().filter(|line| !line.starts_with('#')) {
        let (key, value) = row.split_once(' ').unwrap();
        tr.set(bytes(key), bytes(value));
    }
    let expected: Vec<_> = seen
        .lines()
        .map(|line| match line.split_once(" partition ") {
            Some((path, _)) => format!("{path} partition 2262"),
            None => line.to_owned(),
        })
        .collect();
    let mut lines = Vec::new();
    view(&tr, &[], &mut lines);
    assert_eq!(lines, expected);
    // What is made beside them takes none of their prefixes.
    let before = tr.range(..b"\xfe").collect_blocking().unwrap();
    for n in 0..50 {
        let new = Directory::root().create(&tr, ["new".to_owned(), n.to_string()]).wait().unwrap();
        assert!(before.iter().all(|row| !new.subspace().unwrap().contains(&row.key)));
    }
    Directory::root().remove(&tr, "new").wait().unwrap();
    let mut lines = Vec::new();
    view(&tr, &[], &mut lines);
    assert_eq!(lines, expected);
    assert_eq!(tr.range(..b"\xfe").collect_blocking().unwrap(), before);
}
