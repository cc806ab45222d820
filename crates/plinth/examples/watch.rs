//! A watch: sleep until somebody changes a key, without asking again and again.
//!
//! `cargo run --example watch`

use plinth::{Local, Result};

pub(crate) fn main() -> Result<()> {
    let db = Local::in_memory()?.into_database();
    db.transact_blocking(|tr| {
        tr.set("light", "red");
        Ok(())
    })?;

    // What the transaction saw is what a change is measured against; the watch goes on after it has
    // committed.
    let (seen, watch) =
        db.transact_blocking(|tr| Ok((tr.get("light").wait()?, tr.watch("light"))))?;
    assert_eq!(seen.as_deref(), Some(&b"red"[..]));

    std::thread::scope(|scope| {
        scope.spawn(|| {
            db.transact_blocking(|tr| {
                tr.set("light", "green");
                Ok(())
            })
        });
        watch.wait()
    })?;

    let now = db.transact_blocking(|tr| tr.get("light").wait())?;
    println!("the light is {}", String::from_utf8_lossy(now.as_deref().unwrap_or_default()));
    assert_eq!(now.as_deref(), Some(&b"green"[..]));
    Ok(())
}
