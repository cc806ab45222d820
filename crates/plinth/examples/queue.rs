//! A queue for many producers and many consumers. What is pushed gets its key when its transaction
//! commits: the versionstamp, which grows from commit to commit. So pushing never conflicts, and
//! the order is that of the commits.
//!
//! `cargo run --example queue`

use plinth::tuple::Versionstamp;
use plinth::{Local, RangeOptions, Result, Subspace, Transaction};
use std::sync::Mutex;

struct Queue {
    items: Subspace,
}

impl Queue {
    fn new(items: Subspace) -> Self {
        Self { items }
    }

    /// Adds an item at the end. `place` orders the items that one transaction pushes.
    fn push(&self, tr: &Transaction, place: u16, item: &str) -> Result<()> {
        let key = self.items.pack_with_versionstamp(&Versionstamp::incomplete(place))?;
        tr.set_versionstamped_key(key, item);
        Ok(())
    }

    /// Takes the first item. Two consumers that take the same one conflict, and one of them tries
    /// again.
    fn pop(&self, tr: &Transaction) -> Result<Option<String>> {
        let first = tr.get_range(RangeOptions::from(&self.items).limit(1)).wait()?;
        let Some((key, item)) = first.rows.row(0) else { return Ok(None) };
        tr.clear(key);
        Ok(Some(String::from_utf8_lossy(item).into_owned()))
    }
}

pub(crate) fn main() -> Result<()> {
    let db = Local::in_memory()?.into_database();
    let queue = Queue::new(Subspace::new(&"jobs"));
    let taken = Mutex::new(Vec::new());

    std::thread::scope(|scope| {
        for producer in 0..3 {
            let (db, queue) = (&db, &queue);
            scope.spawn(move || {
                (0..10).try_for_each(|job| {
                    db.transact_blocking(|tr| {
                        queue.push(tr, 0, &format!("job {job} of producer {producer}"))
                    })
                })
            });
        }
    });
    std::thread::scope(|scope| {
        for _consumer in 0..2 {
            scope.spawn(|| -> Result<()> {
                while let Some(item) = db.transact_blocking(|tr| queue.pop(tr))? {
                    println!("{item}");
                    taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(item);
                }
                Ok(())
            });
        }
    });

    let mut taken = taken.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 30, "each item was taken once");
    Ok(())
}
