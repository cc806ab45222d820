//! From the text of a template to pieces: text as it is, and what stands between `{{` and `}}` as
//! tokens.
//!
//! `{{-` and `-}}` take the blanks beside them away; a comment is nothing. Bytes that are no text
//! can't come: a template is a text already.

/// A token of an action.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// A keyword, a function, `true`, `false` or `nil`.
    Word(String),
    /// `.a`: a field of what is before it, or of the dot.
    Field(String),
    /// `.` alone.
    Dot,
    /// `$a`, or `$` alone.
    Variable(String),
    /// A text in quotes.
    Text(String),
    /// A number that is whole, and how it was written.
    Int(i64),
    Float(f64),
    /// `:=`, `=`, `|`, `(`, `)` or `,`.
    Sign(&'static str),
}

/// A token, where it begins in the template, and whether a blank is before it.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: usize,
    pub(super) is_apart: bool,
}

/// A piece of a template.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Action(Vec<Placed>, usize),
}

/// What is wrong, and at which byte.
pub(super) type Wrong = (usize, String);

const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// The pieces of a template.
pub(super) fn pieces(text: &str) -> Result<Vec<Piece>, Wrong> {
    let mut all = Vec::new();
    let (mut at, mut trims) = (0, false);
    loop {
        let rest = &text[at..];
        let open = rest.find("{{");
        let mut plain = &rest[..open.unwrap_or(rest.len())];
        if trims {
            plain = plain.trim_start_matches(BLANKS);
        }
        let Some(open) = open else {
            push_text(&mut all, plain);
            return Ok(all);
        };
        let begin = at + open;
        let mut inner = begin + 2;
        if is_trim(&text[inner..]) {
            plain = plain.trim_end_matches(BLANKS);
            inner += 1;
        }
        push_text(&mut all, plain);
        let comment = text[inner..].trim_start_matches(BLANKS);
        if comment.starts_with("/*") {
            let from = text.len() - comment.len();
            let Some(end) = text[from..].find("*/") else {
                return Err((begin, "unclosed comment".into()));
            };
            (at, trims) = closed(text, from + end + 2)
                .ok_or((begin, "comment ends before closing delimiter".to_string()))?;
            continue;
        }
        let (tokens, end) = Action { text, at: inner, begin, nesting: 0 }.tokens()?;
        all.push(Piece::Action(tokens, begin));
        (at, trims) = closed(text, end).unwrap_or((end, false));
    }
}

fn push_text(all: &mut Vec<Piece>, text: &str) {
    if !text.is_empty() {
        all.push(Piece::Text(text.to_string()));
    }
}

/// Whether an action begins with a mark that takes blanks away: `-` and a blank.
fn is_trim(inner: &str) -> bool {
    inner.strip_prefix('-').is_some_and(|rest| rest.starts_with(BLANKS))
}

/// Behind an action's end, if it is here, and whether blanks behind it go.
fn closed(text: &str, at: usize) -> Option<(usize, bool)> {
    let rest = &text[at..];
    let inner = rest.trim_start_matches(BLANKS);
    let skipped = rest.len() - inner.len();
    if skipped > 0 && inner.starts_with("-}}") {
        return Some((at + skipped + 3, true));
    }
    inner.starts_with("}}").then_some((at + skipped + 2, false))
}

/// An action being read.
struct Action<'a> {
    text: &'a str,
    at: usize,
    begin: usize,
    nesting: usize,
}

impl<'a> Action<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, why: &str) -> Result<T, Wrong> {
        Err((self.at, why.to_string()))
    }

    /// The tokens, and where the end of the action is.
    fn tokens(mut self) -> Result<(Vec<Placed>, usize), Wrong> {
        let mut tokens = Vec::new();
        loop {
            let before = self.at;
            if closed(self.text, self.at).is_some() {
                if self.nesting > 0 {
                    return self.wrong("unclosed left paren");
                }
                return Ok((tokens, self.at));
            }
            self.at = self.text.len() - self.rest().trim_start_matches(BLANKS).len();
            if self.rest().is_empty() {
                return Err((self.begin, "unclosed action".into()));
            }
            let (at, is_apart) = (self.at, self.at > before);
            let token = self.token()?;
            tokens.push(Placed { token, at, is_apart });
        }
    }

    fn token(&mut self) -> Result<Token, Wrong> {
        let rest = self.rest();
        for sign in [":=", "=", "|", "(", ")", ","] {
            if rest.starts_with(sign) {
                self.at += sign.len();
                match sign {
                    "(" => self.nesting += 1,
                    ")" if self.nesting == 0 => return self.wrong("unexpected right paren"),
                    ")" => self.nesting -= 1,
                    _ => {}
                }
                return Ok(Token::Sign(sign));
            }
        }
        let first = rest.chars().next().unwrap_or(' ');
        let second = rest.chars().nth(1).unwrap_or(' ');
        match first {
            '"' => self.quoted(),
            '`' => {
                let Some(end) = rest[1..].find('`') else {
                    return self.wrong("unterminated raw quoted string");
                };
                self.at += end + 2;
                Ok(Token::Text(rest[1..=end].replace('\r', "")))
            }
            '\'' => self.wrong("character constants are not known here"),
            '.' if second.is_ascii_digit() => self.number(),
            '.' => {
                self.at += 1;
                let name = self.word();
                Ok(if name.is_empty() { Token::Dot } else { Token::Field(name) })
            }
            '$' => {
                self.at += 1;
                Ok(Token::Variable(self.word()))
            }
            '0'..='9' => self.number(),
            '+' | '-' if second.is_ascii_digit() || second == '.' => self.number(),
            first if is_part_of_word(first) => Ok(Token::Word(self.word())),
            first => self.wrong(&format!("unexpected {first:?} in an action")),
        }
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !is_part_of_word(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word.to_string()
    }

    fn number(&mut self) -> Result<Token, Wrong> {
        let rest = self.rest();
        let is_part = |place: usize, c: char| {
            let follows_exponent =
                matches!(rest.as_bytes().get(place.wrapping_sub(1)), Some(b'e' | b'E'));
            c.is_ascii_alphanumeric()
                || c == '.'
                || c == '_'
                || (matches!(c, '+' | '-') && (place == 0 || follows_exponent))
        };
        let end = rest.char_indices().find(|(place, c)| !is_part(*place, *c));
        let word = &rest[..end.map_or(rest.len(), |(place, _)| place)];
        let digits = word.replace('_', "");
        let unsigned = digits.trim_start_matches(['+', '-']);
        let hex = unsigned.strip_prefix("0x").or(unsigned.strip_prefix("0X"));
        let whole = match hex {
            Some(hex) => i64::from_str_radix(hex, 16).ok(),
            None if unsigned.len() > 1 && unsigned.starts_with('0') => {
                i64::from_str_radix(unsigned.trim_start_matches(['o', 'O', '0']), 8).ok()
            }
            None => unsigned.parse().ok(),
        };
        let is_decimal = unsigned.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
        let found = match whole {
            Some(whole) if digits.starts_with('-') => Some(Token::Int(-whole)),
            Some(whole) => Some(Token::Int(whole)),
            None if is_decimal => digits.parse().ok().map(Token::Float),
            None => None,
        };
        let Some(token) = found else {
            return self.wrong(&format!("bad number syntax: {word:?}"));
        };
        self.at += word.len();
        Ok(token)
    }

    /// A text in quotes, with the escapes of Go.
    fn quoted(&mut self) -> Result<Token, Wrong> {
        let rest = self.rest();
        let mut text = String::new();
        let mut characters = rest.char_indices().skip(1);
        while let Some((place, character)) = characters.next() {
            match character {
                '"' => {
                    self.at += place + 1;
                    return Ok(Token::Text(text));
                }
                '\n' => break,
                '\\' => {
                    let Some((_, escaped)) = characters.next() else { break };
                    let long = match escaped {
                        'n' => Err('\n'),
                        't' => Err('\t'),
                        'r' => Err('\r'),
                        'a' => Err('\x07'),
                        'b' => Err('\x08'),
                        'f' => Err('\x0c'),
                        'v' => Err('\x0b'),
                        '\\' | '"' => Err(escaped),
                        'x' => Ok(2),
                        'u' => Ok(4),
                        'U' => Ok(8),
                        _ => return self.wrong(&format!("unknown escape \\{escaped} in a text")),
                    };
                    let found = match long {
                        Err(character) => Some(character),
                        Ok(long) => {
                            let hex: String =
                                characters.by_ref().take(long).map(|(_, c)| c).collect();
                            u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)
                        }
                    };
                    match found {
                        Some(character) => text.push(character),
                        None => return self.wrong("an escape that is no character"),
                    }
                }
                other => text.push(other),
            }
        }
        self.wrong("unterminated quoted string")
    }
}

fn is_part_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
