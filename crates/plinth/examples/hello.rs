//! The smallest thing that works: write, read, and read a range.
//!
//! `cargo run --example hello`

use plinth::{Local, Result, tuple};

pub(crate) fn main() -> Result<()> {
    let db = Local::in_memory()?.into_database();

    db.transact_blocking(|tr| {
        tr.set("hello", "world");
        for (city, people) in [("Oslo", 709_000), ("Riga", 605_000), ("Turin", 841_000)] {
            tr.set(tuple::pack(&("city", city)), tuple::pack(&people));
        }
        Ok(())
    })?;

    let cities = db.transact_blocking(|tr| {
        let hello = tr.get("hello").wait()?;
        assert_eq!(hello.as_deref(), Some(&b"world"[..]));
        tr.get_range(tuple::range(&("city",))).wait()
    })?;
    for (key, value) in cities.rows.iter() {
        let (_, city): (String, String) = tuple::unpack(key)?;
        let people: u32 = tuple::unpack(value)?;
        println!("{city}: {people}");
    }
    assert_eq!(cities.rows.len(), 3);
    Ok(())
}
