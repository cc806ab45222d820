//! Rust source as the rules read it: with comments and the insides of literals blanked out.
//!
//! The rules look for words and match braces; a brace in a string or a word in a comment would
//! mislead them. A parser would know better, and would be most of xtask's build time. So one pass
//! over the bytes tells code from comments and literals, and writes a text of the same length and
//! the same lines in which everything but code is spaces: an offset in one is the same place in the
//! other.

use std::ops::Range;

/// One Rust file.
pub struct Source {
    text: String,
    code: String,
}

/// Something with a body: its name, the line it begins on, and how much there is of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    pub name: String,
    pub line: usize,
    /// Lines for a function, fields for a struct.
    pub size: usize,
}

impl Source {
    pub fn new(text: &str) -> Source {
        Source { text: text.to_string(), code: blank_out(text) }
    }

    /// The file as it is.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file with comments and the insides of literals replaced by spaces.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The line (from 1) on which `offset` lies.
    pub fn line_of(&self, offset: usize) -> usize {
        1 + self.code.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count()
    }

    /// Every function with a body, nested ones too: from the line of `fn` to that of its closing
    /// brace.
    pub fn functions(&self) -> Vec<Item> {
        let mut found = Vec::new();
        for at in words(&self.code, "fn") {
            let Some((name, after)) = identifier(&self.code, at + 2) else { continue };
            let Some(open) = find_outside_brackets(&self.code, after, b"{;") else { continue };
            if self.code.as_bytes()[open] == b'{' {
                let (line, end) = (self.line_of(at), self.line_of(closing(&self.code, open)));
                found.push(Item { name, line, size: end - line + 1 });
            }
        }
        found
    }

    /// The parts of the file that only tests see: the offsets of each item under `#[cfg(test)]`.
    pub fn test_items(&self) -> Vec<Range<usize>> {
        let marks = self.code.match_indices("#[cfg(test)]").map(|(at, mark)| (at, at + mark.len()));
        let items = marks
            .filter_map(|(at, after)| Some((at, find_outside_brackets(&self.code, after, b"{;")?)));
        items
            .map(|(at, open)| {
                at..if self.code.as_bytes()[open] == b'{' {
                    closing(&self.code, open)
                } else {
                    open
                }
            })
            .collect()
    }

    /// Every struct with named fields.
    pub fn structs(&self) -> Vec<Item> {
        let mut found = Vec::new();
        for at in words(&self.code, "struct") {
            let Some((name, after)) = identifier(&self.code, at + 6) else { continue };
            let Some(open) = find_outside_brackets(&self.code, after, b"{;") else { continue };
            if self.code.as_bytes()[open] == b'{' {
                let body = &self.code[open + 1..closing(&self.code, open)];
                found.push(Item { name, line: self.line_of(at), size: fields(body) });
            }
        }
        found
    }
}

/// Offsets of `word` where it stands alone.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part_of_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let bytes = text.as_bytes();
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !part_of_word(before) && !part_of_word(bytes.get(at + word.len()))
    })
}

/// The identifier that follows `from` after white space, and the offset behind it.
fn identifier(code: &str, from: usize) -> Option<(String, usize)> {
    let rest = &code[from..];
    let start = from + (rest.len() - rest.trim_start().len());
    let length = code[start..]
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(code.len() - start);
    (length > 0).then(|| (code[start..start + length].to_string(), start + length))
}

/// The first of `wanted` at or after `from` that lies in no parentheses and no square brackets.
fn find_outside_brackets(code: &str, from: usize, wanted: &[u8]) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            byte if depth == 0 && wanted.contains(&byte) => return Some(at),
            _ => {}
        }
    }
    None
}

/// The offset of the brace that closes the one at `open`; the end of the text if none does.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// How many fields stand between a struct's braces.
fn fields(body: &str) -> usize {
    let (mut depth, mut count, mut in_field, mut previous) = (0usize, 0, false, b' ');
    for byte in body.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b'>' if previous == b'-' => {}
            b')' | b']' | b'}' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => in_field = false,
            b':' if depth == 0 && !in_field => (in_field, count) = (true, count + 1),
            _ => {}
        }
        previous = byte;
    }
    count
}

/// Replaces comments and the insides of string and character literals by spaces; line ends stay.
fn blank_out(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_string_end(bytes, at),
            b'\'' => character_end(text, at),
            _ => at,
        };
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(code).expect("whole characters are blanked out, so the rest is still UTF-8")
}

/// Whether the byte at `at` continues an identifier, other than the `b` and `c` that mark a byte or
/// C string.
fn follows_word(bytes: &[u8], at: usize) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match at.checked_sub(1).map(|before| bytes[before]) {
        Some(b'b' | b'c') => at >= 2 && word(bytes[at - 2]),
        Some(byte) => word(byte),
        None => false,
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

fn block_comment_end(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < bytes.len() {
        match bytes[end] {
            b'\\' => end += 2,
            b'"' => return end + 1,
            _ => end += 1,
        }
    }
    bytes.len()
}

/// The end of the raw string that begins at the `r` at `at`; `at` itself if none does.
fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return at;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = at + 2 + hashes;
    let length = bytes[body..].windows(close.len()).position(|window| window == close);
    length.map_or(bytes.len(), |length| body + length + close.len())
}

/// The end of the character literal at `at`; `at` itself if the quote begins a lifetime.
fn character_end(text: &str, at: usize) -> usize {
    let mut characters = text[at + 1..].char_indices();
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            characters
                .find(|(_, c)| *c == '\'')
                .map_or(text.len(), |(length, _)| at + 1 + length + 1)
        }
        Some(_) => match characters.next() {
            Some((length, '\'')) => at + 1 + length + 1,
            _ => at,
        },
        None => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_out_and_nothing_else() {
        let text = "let a = \"} fn x\"; // } fn y\nlet b = '{'; let c: &'static str = r#\"\"}\"#; /* { /* } */ */ end";
        let source = Source::new(text);
        assert_eq!(source.code().len(), text.len());
        assert_eq!(source.code().lines().count(), 2);
        let left: Vec<&str> = source.code().split_whitespace().collect();
        assert_eq!(left.join(" "), "let a = ; let b = ; let c: &'static str = ; end");
    }

    #[test]
    fn escapes_and_non_ascii_characters_do_not_mislead() {
        let source =
            Source::new("f('\\'', '\\u{7d}', 'é', b'\\\\', \"\\\"}é\", br\"\\\", for_r\"x\") }");
        assert_eq!(source.code().matches('}').count(), 1);
        assert_eq!(source.code().matches(',').count(), 6);
        assert!(source.code().is_char_boundary(source.code().len() - 1));
    }

    #[test]
    fn functions_are_measured_from_signature_to_closing_brace() {
        let text = "\
trait T {
    fn declared(&self) -> [u8; 4];
    fn given(&self) {}
}
fn long<F>(
    f: fn(usize) -> bool,
) -> usize
where
    F: Fn(u8),
{
    let s = \"}\";
    fn inner() {
        0
    }
}
";
        let measured: Vec<(String, usize, usize)> =
            Source::new(text).functions().into_iter().map(|f| (f.name, f.line, f.size)).collect();
        let expected = [("given", 3, 1), ("long", 5, 11), ("inner", 12, 3)];
        assert_eq!(measured, expected.map(|(name, line, size)| (name.to_string(), line, size)));
    }

    #[test]
    fn fields_are_counted_whatever_their_types_hold() {
        let text = "
struct Unit;
struct Pair(u8, u8);
/// Doc, with a comma: and a colon.
pub struct Many<F: Fn(u8) -> u8> where F: Fn(u8) -> u8 {
    /// a, b: c
    #[cfg(any(a, b))]
    pub(crate) one: std::collections::HashMap<u8, Box<dyn Fn(u8, u8) -> Vec<u8>>>,
    two: (u8, u8), three: [u8; 3],
    four: F
}";
        let counted: Vec<(String, usize)> =
            Source::new(text).structs().into_iter().map(|s| (s.name, s.size)).collect();
        assert_eq!(counted, [("Many".to_string(), 4)]);
    }

    #[test]
    fn items_for_tests_are_known() {
        let text = "fn a() {} #[cfg(test)] mod tests { fn b() {} } fn c() {} #[cfg(test)] mod d; fn e() {}";
        let items: Vec<&str> =
            Source::new(text).test_items().into_iter().map(|item| &text[item]).collect();
        assert_eq!(items, ["#[cfg(test)] mod tests { fn b() {} ", "#[cfg(test)] mod d"]);
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("fn fnord fn_ a_fn (fn)", "fn").collect::<Vec<_>>(), [0, 19]);
    }
}
