//! From text to words, numbers, durations, texts in quotes and signs.
//!
//! A word may have points, as metrics of Akumuli have, and letters of any script; else all is as in
//! Prometheus. Times are nanoseconds.

use crate::fault::ParseError;

/// A piece of the text.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token {
    Word(String),
    Number(f64),
    /// Nanoseconds of `5m` or `1h30m`.
    Duration(i64),
    String(String),
    Sign(&'static str),
    End,
}

/// Longer ones first.
const SIGNS: [&str; 26] = [
    "==", "=~", "!=", "!~", ">=", "<=", ">/", "</", "=", ">", "<", "+", "-", "*", "/", "%", "^",
    "(", ")", "{", "}", "[", "]", ",", ":", "@",
];
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
const MILLISECOND: i64 = 1_000_000;

/// Gives tokens with the bytes that they stand at.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, at: usize, why: &str) -> Result<T, ParseError> {
        Err(ParseError::new(self.text, at, why))
    }

    /// The next token, where it begins and where it ends.
    pub(crate) fn next(&mut self) -> Result<(Token, usize, usize), ParseError> {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            if !rest.starts_with('#') {
                break;
            }
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
        let (begin, rest) = (self.at, self.rest());
        let Some(first) = rest.chars().next() else { return Ok((Token::End, begin, begin)) };
        let second = rest.chars().nth(1);
        let token = match first {
            '0'..='9' => self.number()?,
            '.' if second.is_some_and(|c| c.is_ascii_digit()) => self.number()?,
            '"' | '\'' | '`' => self.string(first)?,
            _ if first.is_alphabetic() || first == '_' || is_colon_of_a_name(rest) => {
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.');
                let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
                self.at += word.len();
                Token::Word(word.to_string())
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Token::Sign(sign)
                }
                None => {
                    return self.wrong(begin, &format!("unexpected character: {first:?}"));
                }
            },
        };
        Ok((token, begin, self.at))
    }

    /// A number or a duration, of which both begin with digits.
    fn number(&mut self) -> Result<Token, ParseError> {
        let (begin, rest) = (self.at, self.rest());
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let mut end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let is_hex = rest.starts_with("0x") || rest.starts_with("0X");
        // The sign of an exponent.
        if !is_hex && rest[..end].ends_with(['e', 'E']) && rest[end..].starts_with(['+', '-']) {
            let more = &rest[end + 1..];
            end += 1 + more.find(|c| !is_part(c)).unwrap_or(more.len());
        }
        let word = &rest[..end];
        self.at += end;
        if let Some(number) = number(word) {
            return Ok(Token::Number(number));
        }
        match duration(word) {
            Some(Ok(duration)) => Ok(Token::Duration(duration)),
            Some(Err(why)) => self.wrong(begin, why),
            None => self.wrong(begin, &format!("bad number or duration syntax: {word:?}")),
        }
    }

    fn string(&mut self, quote: char) -> Result<Token, ParseError> {
        let (begin, rest) = (self.at, self.rest());
        let (mut text, mut characters) = (String::new(), rest.char_indices().skip(1).peekable());
        let mut bytes = Vec::new();
        while let Some((place, character)) = characters.next() {
            match character {
                _ if character == quote => {
                    self.at += place + quote.len_utf8();
                    bytes.extend(text.into_bytes());
                    return match String::from_utf8(bytes) {
                        Ok(text) => Ok(Token::String(text)),
                        Err(_) => self.wrong(begin, "a text in quotes is not UTF-8"),
                    };
                }
                '\\' if quote != '`' => match escaped(&mut characters, quote) {
                    Some(Escaped::Character(character)) => text.push(character),
                    Some(Escaped::Byte(byte)) => {
                        bytes.extend(std::mem::take(&mut text).into_bytes());
                        bytes.push(byte);
                    }
                    None => return self.wrong(begin + place, "unknown escape sequence"),
                },
                '\n' if quote != '`' => break,
                _ => text.push(character),
            }
        }
        self.wrong(begin, "unterminated quoted string")
    }
}

/// A name may begin with a colon; that of a subquery's step has a duration, a number or nothing
/// behind it.
fn is_colon_of_a_name(rest: &str) -> bool {
    let behind = rest.strip_prefix(':').and_then(|rest| rest.chars().next());
    behind.is_some_and(|c| c.is_alphabetic() || c == '_' || c == ':')
}

enum Escaped {
    Character(char),
    Byte(u8),
}

/// What stands behind a backslash, as Go reads it.
fn escaped(
    characters: &mut std::iter::Peekable<impl Iterator<Item = (usize, char)>>,
    quote: char,
) -> Option<Escaped> {
    let character = characters.next()?.1;
    let mut digits = |first: u32, count: usize, radix: u32| {
        let mut number = first;
        for _ in 0..count {
            number =
                number.checked_mul(radix)?.checked_add(characters.next()?.1.to_digit(radix)?)?;
        }
        Some(number)
    };
    let plain = match character {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' => '\\',
        character if character == quote => quote,
        'x' => return Some(Escaped::Byte(digits(0, 2, 16)? as u8)),
        'u' => char::from_u32(digits(0, 4, 16)?)?,
        'U' => char::from_u32(digits(0, 8, 16)?)?,
        '0'..='7' => {
            let byte = digits(character.to_digit(8)?, 2, 8)?;
            return u8::try_from(byte).ok().map(Escaped::Byte);
        }
        _ => return None,
    };
    Some(Escaped::Character(plain))
}

/// A number as Go reads it: hexadecimal, and with `_` between digits too.
pub(crate) fn number(word: &str) -> Option<f64> {
    if word.starts_with('_') || word.ends_with('_') || word.contains("__") || word.contains("_.") {
        return None;
    }
    let plain = word.replace('_', "");
    if let Some(digits) = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        return i64::from_str_radix(digits, 16).ok().map(|number| number as f64);
    }
    let is_octal =
        plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|b| b.is_ascii_digit());
    if is_octal && let Ok(number) = i64::from_str_radix(&plain, 8) {
        return Some(number as f64);
    }
    // The standard library would read `infinity` as well.
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    plain.chars().all(is_number).then(|| plain.parse().ok())?
}

/// Nanoseconds of `1h30m`, whose units come in order and once. `None` if it isn't one at all.
pub(crate) fn duration(word: &str) -> Option<Result<i64, &'static str>> {
    let (mut rest, mut sum, mut units) = (word, 0_i64, UNITS.as_slice());
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?;
        let unit = &rest[digits..];
        let unit = &unit[..unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len())];
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let count: Option<i64> = rest[..digits].parse().ok();
        let more =
            count.and_then(|count| count.checked_mul(units[place].1)?.checked_mul(MILLISECOND));
        let Some(all) = more.and_then(|more| sum.checked_add(more)) else {
            return Some(Err("duration out of range"));
        };
        sum = all;
        units = &units[place + 1..];
        rest = &rest[digits + unit.len()..];
    }
    (!word.is_empty()).then_some(Ok(sum))
}
