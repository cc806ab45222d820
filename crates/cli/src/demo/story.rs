//! How the tour speaks: headings, plain sentences, and lines of code with what they answered.

use crate::failure::Failure;
use crate::terminal::{self, Terminal};
use plinth_env::{Env, block_on};
use std::cell::Cell;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wide enough for the calls, narrow enough for the answers beside them.
const CODE_WIDTH: usize = 58;

/// The teller.
pub struct Story {
    /// The clock, and tasks for what happens at the same time.
    pub env: Env,
    /// Raised by Ctrl-C.
    pub stop: Arc<AtomicBool>,
    terminal: Terminal,
    chapter: Cell<u32>,
}

impl Story {
    /// A teller for this terminal.
    pub fn new(terminal: Terminal, env: Env, stop: Arc<AtomicBool>) -> Self {
        Self { env, stop, terminal, chapter: Cell::new(0) }
    }

    /// The first words.
    pub fn open(&self, directory: &Path) -> Result<(), Failure> {
        self.show(&format!("{}\n", self.terminal.heading("Plinth: a guided tour")))?;
        self.say(
            "An ordered, transactional key-value database, running in this very process. Everything below",
        )?;
        self.say(&format!(
            "happens as you read it, in {}, which is removed at the end.",
            directory.display()
        ))
    }

    /// The last words.
    pub fn close(&self) -> Result<(), Failure> {
        self.show(&format!("\n{}\n", self.terminal.heading("That was it")))?;
        self.say("plinth bench --help   what else can be measured")?;
        self.say(
            "docs/ARCHITECTURE.md  of the sources: how it works, and in which order to read it",
        )
    }

    /// A new chapter.
    pub fn chapter(&self, title: &str) -> Result<(), Failure> {
        self.chapter.set(self.chapter.get() + 1);
        let title = format!("{}. {title}", self.chapter.get());
        self.show(&format!("\n{}\n", self.terminal.heading(&title)))
    }

    /// A sentence.
    pub fn say(&self, text: &str) -> Result<(), Failure> {
        self.show(&format!("{text}\n"))
    }

    /// A line of code, and what it answered.
    pub fn code(&self, code: &str, answer: impl Display) -> Result<(), Failure> {
        let answer = answer.to_string();
        let space = if answer.is_empty() {
            0
        } else {
            CODE_WIDTH.saturating_sub(code.chars().count()).max(1)
        };
        self.show(&format!("    {}{}{answer}\n", self.terminal.code(code), " ".repeat(space)))
    }

    /// Something claimed, and whether it holds. If it doesn't, the tour is over.
    pub fn claim(&self, text: &str, holds: bool) -> Result<(), Failure> {
        if holds {
            return self.show(&format!("    {} {text}\n", self.terminal.good("ok")));
        }
        self.show(&format!("    {} {text}\n", self.terminal.bad("NO")))?;
        Err(Failure::new(format!(
            "the tour claims something that does not hold: {text}; please report it"
        )))
    }

    /// Lets time pass.
    pub fn pause(&self, time: Duration) {
        block_on(self.env.sleep(time));
    }

    /// The terminal told on.
    pub fn terminal(&self) -> Terminal {
        self.terminal
    }

    /// Text as it is; also the place where Ctrl-C is noticed.
    pub fn show(&self, text: &str) -> Result<(), Failure> {
        terminal::print(text)?;
        if self.stop.load(Ordering::Relaxed) { Err(Failure::interrupted()) } else { Ok(()) }
    }
}
