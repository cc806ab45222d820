//! The shell's words: how a line is cut into commands and words, and how bytes are written so that
//! they can be read again.
//!
//! The rules are those of FoundationDB's shell. Words are separated by spaces, commands by
//! semicolons. Double quotes keep spaces and semicolons in a word. A backslash begins an escape,
//! inside quotes and outside: `\xHH` is a byte, and `\\`, `\"`, `\;` and backslash-space are the
//! second character. A word that begins with a parenthesis is a tuple (`tuples.rs`). What is
//! printed uses `\xHH` and `\\`, and is read back as the same bytes.

use super::escapes::escape;
use super::tuples;
use std::fmt;

/// A command: its words, each any bytes.
pub type Words = Vec<Vec<u8>>;

/// Why a line can't be cut into words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A backslash, and nothing that it could begin.
    Escape {
        /// Where the backslash is, in characters from 1.
        at: usize,
        /// The backslash and what follows it.
        found: String,
    },
    /// A quote that isn't closed.
    Quote {
        /// Where it was opened, in characters from 1.
        at: usize,
    },
    /// A parenthesis, and no tuple behind it.
    Tuple {
        /// Where it goes wrong, in characters from 1.
        at: usize,
        why: &'static str,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Escape { at, found } => write!(
                f,
                "no such escape at character {at}: {found} (there are \\xHH, \\\\, \\\", \\; and \"\\ \"; see help escaping)"
            ),
            Self::Quote { at } => write!(f, "the quote at character {at} is not closed"),
            Self::Tuple { at, why } => write!(
                f,
                "no tuple at character {at}: {why} (a key that begins with a parenthesis is written \\x28; see help escaping)"
            ),
        }
    }
}

/// A line that can't be cut into words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uncut {
    /// The first word of the command in which it happened; empty if not even that is whole.
    pub command: Vec<u8>,
    pub why: Malformed,
}

/// The commands of a line; those without a word are left out.
pub fn commands(line: &str) -> Result<Vec<Words>, Uncut> {
    let characters: Vec<char> = line.chars().collect();
    let mut cut = Cut::default();
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let quoted = cut.quote.is_some();
        match character {
            '\\' => {
                let Some((byte, length)) = escape(&characters[at..]) else {
                    let found = excerpt(&characters[at..]);
                    return Err(cut.fail(Malformed::Escape { at: at + 1, found }));
                };
                cut.push(&[byte]);
                at += length;
                continue;
            }
            '"' => {
                cut.quote = if quoted { None } else { Some(at + 1) };
                // Two quotes with nothing between are a word, too: the empty one.
                cut.push(&[]);
            }
            '(' if !quoted && cut.word.is_none() => match tuples::read(&characters[at..]) {
                Ok((bytes, length)) => {
                    cut.push(&bytes);
                    at += length;
                    continue;
                }
                Err(no) => {
                    return Err(cut.fail(Malformed::Tuple { at: at + no.at + 1, why: no.why }));
                }
            },
            ' ' | '\t' | '\n' | '\r' if !quoted => cut.end_word(),
            ';' if !quoted => cut.end_command(),
            other => cut.push(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        at += 1;
    }
    if let Some(at) = cut.quote {
        return Err(cut.fail(Malformed::Quote { at }));
    }
    cut.end_command();
    Ok(cut.commands)
}

/// A line that is being cut.
#[derive(Default)]
struct Cut {
    commands: Vec<Words>,
    words: Words,
    word: Option<Vec<u8>>,
    /// Where the open quote is, in characters from 1.
    quote: Option<usize>,
}

impl Cut {
    fn push(&mut self, bytes: &[u8]) {
        self.word.get_or_insert_default().extend_from_slice(bytes);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.commands.push(words);
        }
    }

    fn fail(self, why: Malformed) -> Uncut {
        Uncut { command: self.words.into_iter().next().unwrap_or_default(), why }
    }
}

fn excerpt(characters: &[char]) -> String {
    characters.iter().take(4).collect()
}

/// A word as it is written on a line: with escapes, and in quotes if it has a space or a semicolon,
/// is empty, or would be taken for a tuple.
pub fn quoted(word: &[u8]) -> String {
    let text = plinth::printable(word).replace('"', "\\\"");
    if text.is_empty() || text.contains([' ', ';']) || text.starts_with('(') {
        format!("\"{text}\"")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<String>> {
        let commands = commands(line).unwrap_or_else(|error| panic!("{line}: {error:?}"));
        commands
            .iter()
            .map(|words| words.iter().map(|word| plinth::printable(word)).collect())
            .collect()
    }

    #[test]
    fn lines_are_cut_at_spaces_and_semicolons_but_not_in_quotes() {
        assert_eq!(words("get a"), [["get", "a"]]);
        assert_eq!(words("  get\ta ;; set b  c; "), [vec!["get", "a"], vec!["set", "b", "c"]]);
        assert_eq!(words("set \"a b;c\" \"\""), [["set", "a b;c", ""]]);
        assert_eq!(words("set a\" \"b c"), [["set", "a b", "c"]]);
        assert!(words("").is_empty() && words(" ; ;").is_empty());
    }

    #[test]
    fn escapes_are_bytes_inside_quotes_and_outside() {
        assert_eq!(
            commands("set \\x00\\xFF \"\\\\\\\"\\;\\ \""),
            Ok(vec![vec![b"set".to_vec(), vec![0, 255], b"\\\"; ".to_vec()]])
        );
        assert_eq!(commands("get ü"), Ok(vec![vec![b"get".to_vec(), "ü".as_bytes().to_vec()]]));
    }

    #[test]
    fn what_cannot_be_cut_says_where_and_why() {
        for line in ["get \\q", "get \\", "get \\x", "get \\x1", "get \\xg0", "get \\n"] {
            let error = commands(line).unwrap_err();
            assert!(matches!(error.why, Malformed::Escape { at: 5, .. }), "{line}: {error:?}");
        }
        let failed = |line| commands(line).unwrap_err();
        assert_eq!(
            failed("get \"a b"),
            Uncut { command: b"get".to_vec(), why: Malformed::Quote { at: 5 } }
        );
        assert!(failed("get \\q").why.to_string().contains("character 5: \\q"));
        assert_eq!(failed("get a; set b \\q").command, b"set");
        assert_eq!(failed("g\\q").command, b"", "the name itself can't be read");
    }

    #[test]
    fn what_is_written_is_read_as_the_same_bytes() {
        let mut seed = 7_u64;
        for length in 0..300 {
            let mut next = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Every other byte one of those that need care.
                if seed >> 63 == 0 {
                    (seed >> 40) as u8
                } else {
                    b" ;\"\\x0"[(seed >> 40) as usize % 6]
                }
            };
            let word: Vec<u8> = (0..length % 40).map(|_| next()).collect();
            let line = format!("get {}", quoted(&word));
            assert_eq!(commands(&line), Ok(vec![vec![b"get".to_vec(), word]]), "{line}");
        }
    }
}
