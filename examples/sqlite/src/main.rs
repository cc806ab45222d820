//! `plinth-to-sqlite CLUSTER_FILE PREFIX FILE`: keeps FILE in step until it is stopped.

use plinth::{Database, block_on};
use plinth_to_sqlite::{Failure, Mirror};

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [cluster_file, prefix, file] = &arguments[..] else {
        return Err("usage: plinth-to-sqlite CLUSTER_FILE PREFIX FILE".into());
    };
    let db = Database::connect(cluster_file)?;
    let mut mirror = block_on(Mirror::open(&db, prefix.as_bytes(), file.as_ref()))?;
    loop {
        let changes = block_on(mirror.step())?;
        if changes > 0 {
            println!("{changes} changes, up to version {}", mirror.position());
        }
    }
}
