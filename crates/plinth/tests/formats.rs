//! Directories that earlier commits wrote open with every row, whatever has become of the formats
//! since.
//!
//! `tests/formats/VERSION/NAME.tar.gz` is a directory as it lay on a disk, `NAME.rows` what was in
//! it when it was written: rows as `row KEY VALUE` in hexadecimal digits, points of series as
//! `point NAME TIME VALUE`, and what other layers say (`formats/told.rs`). A directory stays there
//! for good; what is written today is written, and judged in the same way, by
//! `todays_directories_are_read`, which also leaves them in the directory that `PLINTH_FORMATS`
//! names. `docs/format/README.md` has the promise and says when
//! there is to be a new one.

#[path = "formats/archives.rs"]
mod archives;
#[path = "formats/damage.rs"]
mod damage;
#[path = "formats/fill.rs"]
mod fill;
#[path = "formats/layers.rs"]
mod layers;
#[path = "formats/told.rs"]
mod told;

use archives::{KEPT, hex, kept, list, pack, rows_of_archive, unpack};
use plinth::series::SeriesStore;
use plinth::{Builder, Database, Env, Key, Keys, TransactionOption, block_on};
use plinth_env::TemporaryDir;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test at a time: between fork and exec a `tar` that another thread starts holds the lock of a
/// directory that is closed here.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What encrypts the directories that have it in their name.
const KEY: [u8; Key::LEN] = [7; Key::LEN];

/// The keys of a directory of this name.
fn keys(name: &str) -> Vec<Key> {
    let key = name.contains("encrypted").then(|| Key::of_file(&KEY).expect("a key"));
    key.into_iter().collect()
}

fn opened(dir: &Path, name: &str) -> plinth::Result<plinth::Local> {
    Builder::new(dir).must_exist().encryption(&keys(name)).open()
}

/// A key that is added to a directory that was opened.
const ADDED: &[u8] = b"\x00added";

/// A temporary directory, and a database's below it.
struct Place {
    temporary: TemporaryDir,
}

impl Place {
    fn new() -> Self {
        Self { temporary: block_on(Env::real().files().temporary_dir("plinth-formats")).unwrap() }
    }

    fn outside(&self) -> &Path {
        self.temporary.path()
    }

    fn dir(&self) -> PathBuf {
        self.outside().join("db")
    }
}

/// A directory out of an archive.
fn unpacked(archive: &Path) -> Place {
    let place = Place::new();
    unpack(archive, place.outside());
    place
}

/// Every row of a database and every point of its series, each in a line, and what other layers
/// say.
fn rows(db: &Database) -> Vec<String> {
    let all = db.transact_blocking(|tr| {
        tr.set_option(TransactionOption::ReadSystemKeys)?;
        let mut rows = tr.range(&b""[..]..&b"\xff"[..]).collect_blocking()?;
        rows.extend(tr.range(&b"\xff/tenant/"[..]..&b"\xff/tenant0"[..]).collect_blocking()?);
        Ok(rows)
    });
    let line = |row: &plinth::KeyValue| format!("row {} {}", hex(&row.key), hex(&row.value));
    let mut lines: Vec<_> = all.unwrap().iter().map(line).collect();
    lines.extend(told::lines(db));
    lines
}

/// The first lines that two lists differ in.
fn difference(found: &BTreeSet<String>, expected: &BTreeSet<String>) -> String {
    let missing = expected.difference(found).map(|line| format!("- {line}"));
    let extra = found.difference(expected).map(|line| format!("+ {line}"));
    let first: Vec<_> = missing.chain(extra).take(8).collect();
    format!("{} lines found, {} expected\n{}", found.len(), expected.len(), first.join("\n"))
}

/// A directory is whole, opens with what is expected, takes commits, and has both after one more
/// opening.
fn judge(place: &Place, name: &str, expected: &[String]) {
    let dir = place.dir();
    let given = Keys::new(&keys(name));
    let report = block_on(plinth::check_with(&Env::real(), &dir, &given)).unwrap();
    assert!(report.problems.is_empty(), "{name}: {:?}", report.problems);
    assert!(report.locked.is_empty(), "{name}: {:?}", report.locked);
    let local = opened(&dir, name);
    let local = local.unwrap_or_else(|error| panic!("{name} doesn't open: {error}"));
    let db = local.database();
    let (mended, instead_of) = layers::mended(expected);
    let all = expected.iter().filter(|line| !line.starts_with("mend")).cloned();
    let (found, all): (BTreeSet<_>, BTreeSet<_>) = (rows(db).into_iter().collect(), all.collect());
    assert!(found == all, "{name}: {}", difference(&found, &all));
    layers::judge(db, expected);
    let committed = db.transact_blocking(|tr| {
        tr.set(ADDED, name);
        Ok(())
    });
    committed.unwrap_or_else(|error| panic!("{name} takes no commits: {error}"));
    local.checkpoint().unwrap();
    // Its owner's lock, and what it leaves behind, are of the same format too.
    block_on(async {
        let store = SeriesStore::open_with(db, layers::at_rest()).await?;
        store.series(fill::SERIES[0]).await?.append(fill::NEXT_POINT, 1.5)?;
        store.sync().await
    })
    .unwrap_or_else(|error| panic!("{name} takes no points: {error}"));
    local.close().unwrap();
    let db = opened(&dir, name).unwrap().into_database();
    // Rows of series have gone to a place of their own; they are compared as points.
    let of_series = format!("row {}", hex(b"\x02plinth.series\x00"));
    let lasting = |lines: BTreeSet<String>| -> BTreeSet<String> {
        lines.into_iter().filter(|line| !line.starts_with(&of_series)).collect()
    };
    let mut expected = lasting(all);
    expected.retain(|line| !instead_of.contains(line));
    expected.extend(mended);
    let series = fill::SERIES[0].replace(' ', ",");
    expected.insert(format!("row {} {}", hex(ADDED), hex(name.as_bytes())));
    expected.insert(format!("point {series} {} float:{:016x}", fill::NEXT_POINT, 1.5f64.to_bits()));
    let found = lasting(rows(&db).into_iter().collect());
    assert!(found == expected, "{name}, opened again: {}", difference(&found, &expected));
}

fn expected(archive: &Path) -> Vec<String> {
    rows_of_archive(archive).lines().map(str::to_owned).collect()
}

#[test]
fn directories_of_earlier_commits_open_with_every_row() {
    let _alone = alone();
    let kept = kept("");
    assert!(kept.len() >= 4, "{KEPT} has {kept:?}");
    for (name, archive) in &kept {
        let expected = expected(archive);
        assert!(expected.iter().any(|line| line.starts_with("point")), "{name} has no points");
        judge(&unpacked(archive), name, &expected);
    }
}

#[test]
fn todays_directories_are_read() {
    let _alone = alone();
    let out = std::env::var_os("PLINTH_FORMATS").map(PathBuf::from);
    for name in [
        "memory-closed",
        "memory-crashed",
        "memory-encrypted",
        "ssd-closed",
        "ssd-crashed",
        "ssd-encrypted",
        "memory-layers",
        "ssd-layers",
    ] {
        let place = Place::new();
        let (engine, end) = name.split_once('-').expect("two words");
        let (db, mended) = match end {
            "layers" => {
                let db = fill::create(&place.dir(), engine, &keys(name));
                let parts = if engine == "ssd" { 4 } else { 1 };
                let mended = layers::fill(&db, parts);
                assert_eq!(layers::kinds(db.database()), layers::KINDS.into());
                (db, mended)
            }
            _ => (fill::fill(&place.dir(), engine, &keys(name)), Vec::new()),
        };
        let mut expected = rows(db.database());
        expected.extend(mended);
        let archive = place.outside().join("db.tar.gz");
        if end != "closed" && name != "memory-layers" {
            // As it lies there: nothing is being written, and nobody has closed it.
            pack(place.outside(), "db", &archive);
            db.close().unwrap();
        } else {
            db.close().unwrap();
            pack(place.outside(), "db", &archive);
        }
        judge(&unpacked(&archive), name, &expected);
        if let Some(out) = &out {
            let files = Env::real();
            let files = files.files();
            block_on(async {
                files.create_dir_all(out).await?;
                files
                    .replace(out.join(format!("{name}.tar.gz")), &files.read(&archive).await?)
                    .await?;
                files
                    .replace(
                        out.join(format!("{name}.rows")),
                        (expected.join("\n") + "\n").as_bytes(),
                    )
                    .await
            })
            .unwrap();
        }
    }
}

#[test]
fn a_newer_format_is_refused_in_words_and_left_alone() {
    let _alone = alone();
    let mut tried = BTreeMap::new();
    for (name, archive) in kept("") {
        let first = unpacked(&archive);
        for file in damage::files_with_formats(&first.dir()) {
            let place = unpacked(&archive);
            let kind = damage::make_newer(&place.dir().join(&file));
            *tried.entry(kind).or_insert(0) += 1;
            let before = damage::contents(&place.dir());
            let error = opened(&place.dir(), &name)
                .err()
                .unwrap_or_else(|| panic!("{name}: {} of format 99 is opened", file.display()));
            let text = error.to_string();
            assert!(text.contains("newer"), "{name}, {}: {text}", file.display());
            assert!(text.contains("99"), "{name}, {}: {text}", file.display());
            assert!(
                damage::contents(&place.dir()) == before,
                "{name}, {}: the directory was changed",
                file.display()
            );
        }
    }
    let kinds: Vec<_> = tried.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["PLINTHDB", "PLNTHCKP", "PLNTHLOG", "PLNTHMAN", "PLNTHTBL"]);
}
