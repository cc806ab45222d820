//! Something measured with another thing beside it and without, in turns, so that both see the same
//! machine.

use crate::Result;

/// Pairs of turns.
pub const TURNS: u32 = 3;

/// Measures without and with what `begin` begins and `end` ends, turn after turn. A title is given
/// to each measurement.
pub fn in_turns<M, B>(
    [without, with]: [&str; 2],
    measure: impl Fn(&str) -> Result<M>,
    mut begin: impl FnMut() -> Result<B>,
    mut end: impl FnMut(B) -> Result<()>,
) -> Result<[Vec<M>; 2]> {
    let mut measured = [Vec::new(), Vec::new()];
    for number in 1..=TURNS {
        let title = |what: &str| format!("{what} ({number} of {TURNS})");
        measured[0].push(measure(&title(without))?);
        let beside = begin()?;
        let found = measure(&title(with));
        end(beside)?;
        measured[1].push(found?);
    }
    Ok(measured)
}
