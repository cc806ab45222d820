//! Directories against a naive tree: random operations, partitions and moves included, give the
//! same results, the same errors and keep the same data; and prefixes never meet.
//!
//! Every directory that an operation gives gets a row with a number of its own, by which it is
//! known after moves. Each transaction has a few operations and is committed or given up, the tree
//! with it.

#[path = "directory_model/model.rs"]
mod model;
mod place {
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/provided/place.rs"));
}

use model::{Model, Outcome};
use place::Place;
use plinth::directory::Directory;
use plinth::{Builder, Database, Result, Transaction};
use plinth_env::simulated::{Random, Simulation};
use std::collections::BTreeSet;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const LAYERS: [&str; 4] = ["", "", "x", "partition"];

/// One operation, relative to the directory that was opened at `base`.
#[derive(Clone, Debug)]
enum Operation {
    Open { path: Vec<String>, layer: &'static str, may_open: bool, may_create: bool },
    List(Vec<String>),
    Exists(Vec<String>),
    Remove(Vec<String>),
    RemoveIfExists(Vec<String>),
    Move(Vec<String>, Vec<String>),
    MoveTo(Vec<String>),
}

fn pick<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[random.index(choices.len())]
}

fn random_path(random: &mut Random, longest: usize) -> Vec<String> {
    (0..random.index(longest + 1)).map(|_| (*pick(random, &NAMES)).to_owned()).collect()
}

fn random_operation(random: &mut Random) -> Operation {
    let path = random_path(random, 4);
    match random.index(12) {
        0..=3 => {
            let (may_open, may_create) =
                *pick(random, &[(true, true), (true, false), (false, true), (true, true)]);
            Operation::Open {
                path,
                layer: LAYERS[random.index(LAYERS.len())],
                may_open,
                may_create,
            }
        }
        4 => Operation::List(path),
        5 => Operation::Exists(path),
        6 => Operation::Remove(path),
        7 => Operation::RemoveIfExists(path),
        8 | 9 => Operation::Move(path, random_path(random, 4)),
        _ => Operation::MoveTo(random_path(random, 5)),
    }
}

/// Carries an operation out; whatever directory it gives gets a row that names it.
async fn run(tr: &Transaction, base: &Directory, operation: &Operation) -> Result<Outcome> {
    Ok(match operation.clone() {
        Operation::Open { path, layer, may_open, may_create } => {
            let open = match (may_open, may_create) {
                (true, true) => base.create_or_open(tr, path),
                (true, false) => base.open(tr, path),
                _ => base.create(tr, path),
            };
            outcome(tr, open.layer(layer).await?).await?
        }
        Operation::List(path) => Outcome::Names(base.list(tr, path).await?),
        Operation::Exists(path) => Outcome::Bool(base.exists(tr, path).await?),
        Operation::Remove(path) => base.remove(tr, path).await.map(|()| Outcome::Bool(true))?,
        Operation::RemoveIfExists(path) => Outcome::Bool(base.remove_if_exists(tr, path).await?),
        Operation::Move(old, new) => outcome(tr, base.move_directory(tr, old, new).await?).await?,
        Operation::MoveTo(new) => outcome(tr, base.move_to(tr, new).await?).await?,
    })
}

async fn outcome(tr: &Transaction, directory: Directory) -> Result<Outcome> {
    let mut data = None;
    if let Ok(subspace) = directory.subspace() {
        let stored = tr.get(subspace.pack(&"who")).await?;
        data = stored.map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()));
    }
    Ok(Outcome::Directory {
        path: directory.path().to_vec(),
        layer: directory.layer().to_vec(),
        data,
    })
}

fn run_model(model: &mut Model, base: &[String], operation: &Operation) -> Result<Outcome, i32> {
    let at = |path: &[String]| [base, path].concat();
    let home = model.home_of_children(base);
    match operation {
        Operation::Open { path, layer, may_open, may_create } => {
            model.open(&at(path), home, layer, *may_open, *may_create)
        }
        Operation::List(path) => model.list(&at(path)).map(Outcome::Names),
        Operation::Exists(path) => Ok(Outcome::Bool(model.exists(&at(path)))),
        Operation::Remove(path) => match model.remove(&at(path))? {
            true => Ok(Outcome::Bool(true)),
            false => Err(2257),
        },
        Operation::RemoveIfExists(path) => model.remove(&at(path)).map(Outcome::Bool),
        Operation::Move(old, new) => model.rename(home, &at(old), &at(new)),
        Operation::MoveTo(_) if base.is_empty() => Err(2267),
        Operation::MoveTo(new) => {
            let home = model.home_of(base);
            if new.starts_with(&base[..home]) { model.rename(home, base, new) } else { Err(2261) }
        }
    }
}

/// A transaction of a few operations, committed or given up.
async fn step(db: &Database, model: &mut Model, random: &mut Random, seen: &mut BTreeSet<i32>) {
    let tr = db.create_transaction();
    let mut after = model.clone();
    for _ in 0..=random.index(3) {
        let base = pick(random, &after.paths()).clone();
        let directory = match base.is_empty() {
            true => Directory::root(),
            false => Directory::root().open(&tr, &base).await.unwrap(),
        };
        let operation = random_operation(random);
        let mut got = run(&tr, &directory, &operation).await.map_err(|error| error.code());
        let expected = run_model(&mut after, &base, &operation);
        // Who is new gets a name by which it is known from then on.
        if let (
            Ok(Outcome::Directory { path, data, .. }),
            Ok(Outcome::Directory { data: Some(who), .. }),
        ) = (&mut got, &expected)
            && data.is_none()
        {
            let subspace =
                Directory::root().open(&tr, &*path).await.unwrap().subspace().unwrap().clone();
            tr.set(subspace.pack(&"who"), who.to_le_bytes());
            *data = Some(*who);
        }
        assert_eq!(got, expected, "{operation:?} of {base:?} in {after:?}");
        seen.extend(expected.err());
    }
    if random.index(5) > 0 {
        tr.commit().await.unwrap();
        *model = after;
    }
}

/// Every directory is where the model has it, nothing else is there, and no prefix meets another.
async fn check_all(db: &Database, model: &Model) {
    let tr = db.create_transaction();
    let (mut prefixes, mut named) = (Vec::new(), 0);
    for path in model.paths().into_iter().filter(|path| !path.is_empty()) {
        let directory = Directory::root().open(&tr, &path).await.unwrap();
        let mut names = directory.list(&tr, ()).await.unwrap();
        names.sort();
        assert_eq!(Ok(names), model.list(&path));
        let Ok(subspace) = directory.subspace() else { continue };
        prefixes.push(subspace.prefix().clone());
        // Directories that only came to be above another one have no name yet.
        if let Some(who) = tr.get(subspace.pack(&"who")).await.unwrap() {
            assert_eq!(
                Some(u64::from_le_bytes(who[..].try_into().unwrap())),
                model.who(&path),
                "{path:?}"
            );
            named += 1;
        }
    }
    prefixes.sort();
    assert!(prefixes.windows(2).all(|pair| !pair[1].starts_with(&pair[0])), "{prefixes:?}");
    let rows = tr.range(..).collect().await.unwrap();
    assert_eq!(rows.iter().filter(|row| row.key.ends_with(b"\x02who\0")).count(), named);
    if model.paths().len() == 1 {
        let metadata_only = |key: &[u8]| {
            key.starts_with(b"\xfe\x01\xfe\0\x01hca") || key.ends_with(b"\x01version\0")
        };
        assert!(rows.iter().all(|row| metadata_only(&row.key)), "{rows:?}");
    }
}

async fn run_seed(db: Database, random: &mut Random, seen: &mut BTreeSet<i32>) {
    let mut model = Model::default();
    for round in 0..60 {
        step(&db, &mut model, random, seen).await;
        if round % 10 == 9 {
            check_all(&db, &model).await;
        }
    }
    for name in NAMES {
        let gone = db
            .transact(|tr| async move { Directory::root().remove_if_exists(&tr, name).await })
            .await;
        assert_eq!(Ok(gone.unwrap()), model.remove(&[name.to_owned()]));
    }
    check_all(&db, &model).await;
}

#[test]
fn random_operations_agree_with_a_tree() {
    let mut seen = BTreeSet::new();
    for seed in 0..20 {
        eprintln!("seed {seed}");
        let simulation = Simulation::new(seed);
        let place = Place::new(&simulation);
        let mut random = simulation.random();
        simulation.run_until(async {
            let db = place.open(Builder::in_memory()).await;
            run_seed(db, &mut random, &mut seen).await;
        });
    }
    let errors = [2255, 2256, 2257, 2258, 2259, 2261, 2266, 2267];
    assert_eq!(seen, BTreeSet::from(errors), "every error was met");
}
