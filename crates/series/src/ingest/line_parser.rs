//! How parsers of lines are fed: all of them the same way, whatever a line means to them.

use super::intake::Intake;
use super::lines::{Line, Lines};

/// A parser of lines.
pub(super) trait LineParser {
    /// Where in its stream it is.
    fn lines(&mut self) -> &mut Lines;

    /// Takes a line, without its end, which has been counted.
    fn line(&mut self, intake: &mut Intake, line: &[u8]);

    /// Takes the message that the bytes begin with, if it is whole, and of the kind that comes
    /// most, and nothing else is open: how many bytes it has. What it doesn't take comes line by
    /// line, and means the same there.
    #[inline]
    fn message(&mut self, _intake: &mut Intake, _bytes: &[u8]) -> Option<usize> {
        None
    }

    /// Refuses a line beyond the limit, which has been counted.
    fn too_long(&mut self, intake: &mut Intake);

    /// Takes or refuses what the stream ends with: a line without an end, which has been counted,
    /// or nothing.
    fn end(&mut self, intake: &mut Intake, rest: &[u8]);

    /// Takes the whole lines of `bytes`, until there is something to save. Says how many bytes
    /// those were.
    #[inline]
    fn feed(&mut self, intake: &mut Intake, bytes: &[u8]) -> usize {
        let mut at = 0;
        while !intake.is_full() && !intake.wants_sync {
            if let Some(len) = self.message(intake, &bytes[at..]) {
                at += len;
                continue;
            }
            match self.lines().next(bytes, &mut at) {
                Some(Line::Whole(line)) => self.line(intake, line),
                Some(Line::TooLong) => self.too_long(intake),
                None => break,
            }
        }
        at
    }

    /// Ends the stream behind `rest`.
    fn finish(&mut self, intake: &mut Intake, rest: &[u8]) {
        self.lines().number += u64::from(!rest.is_empty());
        self.end(intake, rest);
    }
}
