//! Tuples on the shell's lines: `("app", 1)` stands for the bytes that every FoundationDB binding
//! packs that tuple into.
//!
//! What is read is what is shown elsewhere, by `plinth::tuple::printable` and by the console. A
//! tuple begins a word, so that a key which begins with a parenthesis is written `\x28`.

use super::escapes::escape;
use plinth::tuple::{self, Element, Versionstamp};
use std::borrow::Cow;

/// How deep tuples may stand in tuples.
const DEPTH: usize = 24;

/// Why characters are no tuple.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoTuple {
    /// Where, in characters from the parenthesis.
    pub at: usize,
    pub why: &'static str,
}

/// The bytes of the tuple that begins here, and how many characters it takes.
pub fn read(characters: &[char]) -> Result<(Vec<u8>, usize), NoTuple> {
    let mut reader = Reader { characters, at: 0 };
    let elements = reader.tuple(0)?;
    Ok((tuple::pack(&elements), reader.at))
}

struct Reader<'a> {
    characters: &'a [char],
    at: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, why: &'static str) -> Result<T, NoTuple> {
        Err(NoTuple { at: self.at, why })
    }

    fn next(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while self.next().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    /// Steps over this character, if it is next.
    fn takes(&mut self, wanted: char) -> bool {
        let found = self.next() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    fn tuple(&mut self, depth: usize) -> Result<Vec<Element<'static>>, NoTuple> {
        if depth > DEPTH {
            return self.fail("tuples stand too deep in tuples");
        }
        self.at += 1; // the parenthesis
        let mut elements = Vec::new();
        loop {
            self.skip_spaces();
            if self.takes(')') {
                return Ok(elements);
            }
            elements.push(self.element(depth)?);
            self.skip_spaces();
            match self.next() {
                Some(',') => self.at += 1,
                Some(')') => {}
                None => return self.fail("the tuple is not closed"),
                Some(_) => return self.fail("there must be a comma between elements"),
            }
        }
    }

    fn element(&mut self, depth: usize) -> Result<Element<'static>, NoTuple> {
        match (self.next(), self.characters.get(self.at + 1)) {
            (None, _) => self.fail("the tuple is not closed"),
            (Some('('), _) => Ok(Element::Tuple(self.tuple(depth + 1)?)),
            (Some('"'), _) => {
                let begin = self.at;
                let Ok(text) = String::from_utf8(self.quoted()?) else {
                    self.at = begin;
                    return self.fail("text is UTF-8; bytes are written b\"...\"");
                };
                Ok(Element::String(Cow::Owned(text)))
            }
            (Some('b'), Some('"')) => {
                self.at += 1;
                Ok(Element::Bytes(tuple::Bytes(Cow::Owned(self.quoted()?))))
            }
            _ => self.word(),
        }
    }

    /// What stands in quotes, with the line's escapes and those of texts.
    fn quoted(&mut self) -> Result<Vec<u8>, NoTuple> {
        let begin = self.at;
        self.at += 1;
        let mut bytes = Vec::new();
        loop {
            match self.next() {
                None => {
                    self.at = begin;
                    return self.fail("the quote is not closed");
                }
                Some('"') => {
                    self.at += 1;
                    return Ok(bytes);
                }
                Some('\\') => {
                    let control = match self.characters.get(self.at + 1) {
                        Some('n') => Some((b'\n', 2)),
                        Some('t') => Some((b'\t', 2)),
                        Some('r') => Some((b'\r', 2)),
                        Some('0') => Some((0, 2)),
                        _ => escape(&self.characters[self.at..]),
                    };
                    let Some((byte, length)) = control else { return self.fail("no such escape") };
                    bytes.push(byte);
                    self.at += length;
                }
                Some(other) => {
                    bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                    self.at += 1;
                }
            }
        }
    }

    /// A number, or a word with a meaning.
    fn word(&mut self) -> Result<Element<'static>, NoTuple> {
        let rest = &self.characters[self.at..];
        let length = rest
            .iter()
            .position(|c| c.is_whitespace() || ",();".contains(*c))
            .unwrap_or(rest.len());
        let word: String = rest[..length].iter().collect();
        if word == "versionstamp" && rest.get(length) == Some(&'(') {
            self.at += length;
            return self.versionstamp();
        }
        let element = match word.as_str() {
            "null" | "None" | "nil" => Element::Nil,
            "true" | "True" => Element::Bool(true),
            "false" | "False" => Element::Bool(false),
            number => {
                match (number.parse(), number.strip_suffix('f').map(str::parse), number.parse()) {
                    (Ok(integer), _, _) => Element::Int(integer),
                    (_, Some(Ok(single)), _) => Element::Float(single),
                    (_, _, Ok(double)) if number.contains(['.', 'e', 'E', 'n']) => {
                        Element::Double(double)
                    }
                    _ => {
                        return self.fail(
                        "an element is \"text\", b\"bytes\", a number of 64 bits, true, false, null, or a tuple",
                    );
                    }
                }
            }
        };
        self.at += length;
        Ok(element)
    }

    /// `(20 digits, number)`
    fn versionstamp(&mut self) -> Result<Element<'static>, NoTuple> {
        let rest: String = self.characters[self.at..].iter().collect();
        let inside = rest.find(')').map(|end| (&rest[1..end], end + 1));
        let parsed = inside.and_then(|(inside, length)| {
            let (digits, user) = inside.split_once(',')?;
            let digits = digits.trim();
            if digits.len() != 20 || !digits.is_ascii() {
                return None;
            }
            let mut stamp = [0; 10];
            for (at, byte) in stamp.iter_mut().enumerate() {
                *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
            }
            Some((Versionstamp::complete(stamp, user.trim().parse().ok()?), length))
        });
        match parsed {
            Some((stamp, length)) => {
                self.at += length;
                Ok(Element::Versionstamp(stamp))
            }
            None => {
                self.fail("a versionstamp is written versionstamp(20 hexadecimal digits, number)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &str) -> Result<Vec<u8>, NoTuple> {
        let characters: Vec<char> = text.chars().collect();
        read(&characters).map(|(bytes, length)| {
            assert_eq!(length, characters.len(), "{text}");
            bytes
        })
    }

    #[test]
    fn what_is_shown_is_read_as_the_same_tuple() {
        let stamp = Versionstamp::complete([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 7);
        let tuples = [
            tuple::pack(&("app", 1)),
            tuple::pack(&("", -1_i64, i64::MIN, i64::MAX)),
            tuple::pack(&(2.5, -0.0, f64::INFINITY, true, false)),
            tuple::pack(&(tuple::Bytes::from(&b"\x00\xff\" \\"[..]), "Gr\u{fc}n \"x\"\n")),
            tuple::pack(&(("a", ("b",), ()), None::<i64>)),
            tuple::pack(&("s", stamp)),
            tuple::pack(&((),)),
        ];
        for bytes in tuples {
            let shown = tuple::printable(&bytes);
            assert_eq!(packed(&shown), Ok(bytes), "{shown}");
        }
    }

    #[test]
    fn people_may_write_it_their_way() {
        for text in ["(\"app\",1)", "( \"app\" , 1 , )"] {
            assert_eq!(packed(text), Ok(tuple::pack(&("app", 1))), "{text}");
        }
        assert_eq!(packed("()"), Ok(Vec::new()));
        assert_eq!(packed("(None, 1.5f)"), Ok(tuple::pack(&(None::<i64>, 1.5_f32))));
    }

    #[test]
    fn what_is_no_tuple_says_where_and_why() {
        let told = |text| {
            packed(text)
                .map_err(|no| (no.at, no.why.split(' ').take(4).collect::<Vec<_>>().join(" ")))
        };
        assert_eq!(told("(\"app\""), Err((6, "the tuple is not".to_owned())));
        assert_eq!(told("(1 2)"), Err((3, "there must be a".to_owned())));
        assert_eq!(told("(\"app"), Err((1, "the quote is not".to_owned())));
        assert_eq!(told("(app)"), Err((1, "an element is \"text\",".to_owned())));
        assert_eq!(told("(\"\\xff\")"), Err((1, "text is UTF-8; bytes".to_owned())));
        assert_eq!(told("(99999999999999999999)"), Err((1, "an element is \"text\",".to_owned())));
        assert_eq!(
            told("(versionstamp(12, 1))"),
            Err((13, "a versionstamp is written".to_owned()))
        );
        let deep = "(".repeat(200);
        assert!(packed(&deep).unwrap_err().why.contains("too deep"));
    }
}
