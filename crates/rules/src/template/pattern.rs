//! Regular expressions of templates: compiled and searched for at a price.
//!
//! What a search takes is at most the text's bytes times the states of the pattern. How many those
//! are isn't told by who compiles it, so it is compiled with one limit after the other until one is
//! enough. What that limit allows is what is charged for each byte.

use super::context::{Context, Stop};
use regex_lite::Regex;

/// What a compiled pattern may take in bytes, and where it is begun to try.
const MOST: usize = 1 << 20;
const LEAST: usize = 1 << 10;
/// Compiled bytes that are one step: to make them, and to go over them with a byte of a text.
const MADE: usize = 64;
const SEARCHED: usize = 2048;

/// A pattern, compiled.
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The limit that was enough for it, in bytes.
    size: usize,
}

/// What is wrong with a pattern.
pub(super) fn check(pattern: &str) -> Result<(), String> {
    compiled(pattern, MOST).map(drop)
}

fn compiled(pattern: &str, most: usize) -> Result<Regex, String> {
    let compiled = plinth_promql::compiled(pattern, most);
    compiled.map_err(|error| format!("the pattern {pattern:?}: {error}"))
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// If it is none, or too large, or if there have been too many.
    pub(super) fn compiled(run: &mut Context<'_>, pattern: &str) -> Result<Self, Stop> {
        let mut size = LEAST;
        loop {
            run.visit(pattern.len() + size / MADE)?;
            match compiled(pattern, size) {
                Ok(regex) => return Ok(Self { regex, size }),
                Err(why) if size >= MOST => return Err(Stop::Wrong(why)),
                Err(_) => size *= 2,
            }
        }
    }

    /// Charges a search through a text.
    ///
    /// # Errors
    /// If there has been too much.
    pub(super) fn search(&self, run: &mut Context<'_>, within: &str) -> Result<(), Stop> {
        run.visit(1 + within.len().saturating_mul(self.size) / SEARCHED)
    }
}
