//! `plinth demo`: a guided tour on a temporary database, told as it happens.
//!
//! Nothing in it is staged: each line shows what the database just answered, and what the tour
//! claims it also checks. If a claim doesn't hold, the tour ends there with exit code 1.

mod chapters;
mod cluster;
mod crash;
mod speed;
mod story;
pub mod writer;

use crate::failure::Failure;
use crate::interrupt;
use crate::scratch::Scratch;
use crate::terminal::Terminal;
use plinth::{Database, Local};
use plinth_env::Env;
use std::path::Path;
use story::Story;

/// Takes the tour; `short` measures for an instant and crashes once, for tests.
pub fn run(short: bool) -> Result<u8, Failure> {
    let env = Env::real();
    let stop = interrupt::flag();
    let scratch = Scratch::new(&env, "plinth-demo")?;
    let story = Story::new(Terminal::stdout(), env.clone(), stop);
    story.open(scratch.path())?;
    {
        let path = scratch.path().join("shop");
        let database = open(&path)?;
        chapters::transactions(&story, &database)?;
        chapters::conflict(&story, &database)?;
        chapters::watch(&story, &database)?;
    }
    crash::chapter(&story, &scratch.path().join("crash"), if short { 1 } else { 3 })?;
    cluster::chapter(&story, &scratch.path().join("cluster"), short)?;
    speed::chapter(&story, &scratch.path().join("bench"), short)?;
    story.close()?;
    Ok(0)
}

fn open(path: &Path) -> Result<Database, Failure> {
    Local::open(path)
        .map(Local::into_database)
        .map_err(|error| Failure::of(format!("cannot open {}", path.display()), error))
}
