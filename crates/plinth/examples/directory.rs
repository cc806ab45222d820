//! Directories: each user of an application has one; moving it costs nothing, and removing it
//! removes all that it holds.
//!
//! `cargo run --example directory`

use plinth::directory::Directory;
use plinth::{Local, Result};

pub(crate) fn main() -> Result<()> {
    let db = Local::in_memory()?.into_database();
    let root = Directory::root();

    // Creating directories and writing to them is one transaction, or nothing.
    db.transact_blocking(|tr| {
        for user in ["ada", "grace", "alan"] {
            let notes = root.create_or_open(tr, ["app", "users", user]).layer("notes").wait()?;
            let notes = notes.subspace()?;
            tr.set(notes.pack(&(1, "title")), format!("{user}'s first note"));
        }
        Ok(())
    })?;

    db.transact_blocking(|tr| {
        root.create_or_open(tr, ["app", "archive"]).wait()?;
        root.move_directory(tr, ["app", "users", "alan"], ["app", "archive", "alan"]).wait()?;
        root.remove(tr, ["app", "users", "grace"]).wait()
    })?;

    let (users, title) = db.transact_blocking(|tr| {
        let users = root.list(tr, ["app", "users"]).wait()?;
        let notes = root.open(tr, ["app", "archive", "alan"]).layer("notes").wait()?;
        println!("{notes:?}");
        let title = tr.get(notes.subspace()?.pack(&(1, "title"))).wait()?;
        Ok((users, title))
    })?;
    println!("users: {users:?}");
    assert_eq!(users, ["ada"]);
    assert_eq!(title.as_deref(), Some(&b"alan's first note"[..]));
    Ok(())
}
