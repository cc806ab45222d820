//! Regular expressions, as Go's programs write them, with a bound of all that they take.
//!
//! What stands for a set of characters or for a text in Go's syntax and for something else in the
//! library's is rewritten: `\Q..\E`, `[[a&&b--c]`, `a{,2}`, `\141`.
//!
//! `regex-lite` bounds what is compiled. A search takes two tables besides, with room for each
//! group in each state: a pattern of a hundred kilobytes, `()()()` and so on, which is within the
//! limit, would make them a hundred gigabytes.

/// A regular expression that was compiled.
pub use regex_lite::Regex as Pattern;
use regex_lite::{Regex, RegexBuilder};
use std::borrow::Cow;

/// What the tables of a search may take in bytes.
const MAX_TABLES: usize = 64 << 20;

/// A regular expression that takes at most so many bytes when it is compiled, and some mebibytes
/// when it is searched for.
///
/// # Errors
/// What is wrong with it.
pub fn compiled(pattern: &str, most: usize) -> Result<Regex, String> {
    let rewritten = rewritten(pattern);
    let build = |most| RegexBuilder::new(&rewritten).size_limit(most).build();
    let regex = build(most).map_err(|error| match error.to_string() {
        why if why.contains("size limit") => format!(
            "it takes more than {most} bytes when compiled; take fewer alternatives at a time"
        ),
        why => why,
    })?;
    // A state has 32 bytes, and a group in it 16 in each table: as much as the state for both.
    let fits = MAX_TABLES / regex.captures_len();
    match fits < most {
        true => build(fits).map_err(|_| "too many groups in so large a pattern".to_string()),
        false => Ok(regex),
    }
}

/// A pattern of Go's as the library reads it. What is right in neither stays as it is.
fn rewritten(pattern: &str) -> Cow<'_, str> {
    if !pattern.contains(['[', '{', '\\']) {
        return Cow::Borrowed(pattern);
    }
    let (mut out, mut rest) = (String::with_capacity(pattern.len() + 8), pattern);
    while let Some(c) = rest.chars().next() {
        let behind = &rest[c.len_utf8()..];
        rest = match c {
            '\\' => match behind.strip_prefix('Q') {
                Some(quoted) => {
                    let (text, behind) = quoted.split_once("\\E").unwrap_or((quoted, ""));
                    out.push_str(&regex_lite::escape(text));
                    behind
                }
                None => escape(behind, &mut out),
            },
            '[' => set(behind, &mut out),
            '{' => match repetition(behind) {
                Some(len) => {
                    out.push('{');
                    out.push_str(&behind[..len]);
                    &behind[len..]
                }
                // It is a text.
                None => {
                    out.push_str("\\{");
                    behind
                }
            },
            c => {
                out.push(c);
                behind
            }
        };
    }
    Cow::Owned(out)
}

/// How long `2}`, `2,}` or `2,3}` is that this begins with.
fn repetition(behind: &str) -> Option<usize> {
    let end = behind.find('}')?;
    let (least, most) = behind[..end].split_once(',').unwrap_or((&behind[..end], ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && are_digits(least) && are_digits(most)).then_some(end + 1)
}

/// Rewrites what stands behind a backslash: gives what is behind that.
fn escape<'p>(behind: &'p str, out: &mut String) -> &'p str {
    let Some(c) = behind.chars().next() else {
        out.push('\\');
        return behind;
    };
    let octal = behind.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    // One digit alone, but for 0, would be a reference to a group: there are none in either.
    if let Ok(number) = u32::from_str_radix(&behind[..octal], 8)
        && (octal > 1 || c == '0')
    {
        out.push_str(&format!("\\x{{{number:x}}}"));
        return &behind[octal..];
    }
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        // A sign is itself: `\<` isn't where a word begins.
        out.push_str(&regex_lite::escape(&behind[..1]));
        return &behind[1..];
    }
    let mut len = c.len_utf8();
    if behind.starts_with("x{") {
        len = behind.find('}').map_or(len, |end| end + 1);
    }
    out.push('\\');
    out.push_str(&behind[..len]);
    &behind[len..]
}

/// Rewrites a set of characters, whose bracket was read. Go knows neither sets within nor signs
/// that put two together, and `-` is itself unless it stands between two characters.
fn set<'p>(behind: &'p str, out: &mut String) -> &'p str {
    out.push('[');
    let mut rest = behind;
    if let Some(behind) = rest.strip_prefix('^') {
        out.push('^');
        rest = behind;
    }
    let mut is_first = true;
    while !rest.is_empty() {
        if let Some(behind) = rest.strip_prefix(']').filter(|_| !is_first) {
            out.push(']');
            return behind;
        }
        is_first = false;
        // A class by its name, as `[:alpha:]`.
        if let Some(end) = rest.strip_prefix("[:").and_then(|name| name.find(":]")) {
            let len = "[:".len() + end + ":]".len();
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let (is_single, behind) = member(rest, out);
        rest = behind;
        let last = rest.strip_prefix('-').filter(|last| !last.is_empty() && !last.starts_with(']'));
        if let Some(last) = last.filter(|_| is_single) {
            out.push('-');
            rest = member(last, out).1;
        }
    }
    rest
}

/// Rewrites a character of a set: whether it is one, and not a class of them; and what is behind.
fn member<'p>(text: &'p str, out: &mut String) -> (bool, &'p str) {
    if let Some(behind) = text.strip_prefix('\\') {
        let is_class = behind.starts_with(['d', 'D', 's', 'S', 'w', 'W', 'p', 'P']);
        return (!is_class, escape(behind, out));
    }
    let len = text.chars().next().map_or(0, char::len_utf8);
    out.push_str(&regex_lite::escape(&text[..len]));
    (true, &text[len..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_reads_otherwise_is_rewritten() {
        for (pattern, texts, others) in [
            (r"\Qa.b|c\Ed", &["a.b|cd"][..], &["axb|cd", "a.b"][..]),
            (r"[a&&b]", &["a", "&", "b"], &["ab", ""]),
            (r"[a~~b]", &["a", "~", "b"], &["c"]),
            (r"[+--]", &["+", ",", "-"], &["."]),
            (r"[--/]", &["-", ".", "/"], &["0"]),
            (r"[^--/]", &["0"], &["-", ".", "/"]),
            (r"[a-z--9]", &["b", "-", ".", "9"], &[","]),
            (r"[---a]", &["-", "a"], &[".", "0"]),
            (r"[\w-.]", &["a", "-", "."], &["/"]),
            (r"[a-]", &["a", "-"], &["b"]),
            (r"[-a]", &["a", "-"], &["b"]),
            (r"[[a]", &["[", "a"], &["b"]),
            (r"[[:]", &["[", ":"], &["b"]),
            (r"[]a]", &["]", "a"], &["b"]),
            (r"[^]a]", &["b", "["], &["]", "a"]),
            (r"[é-ü]", &["é", "ê"], &["e"]),
            (r"[[:digit:]x]+", &["1x"], &[":"]),
            (r"[\]\d]+", &["]1"], &["d"]),
            (r"a{,2}", &["a{,2}"], &["aa", ""]),
            (r"a{ 2}", &["a{ 2}"], &["aa"]),
            (r"a{id}", &["a{id}"], &["aid"]),
            (r"a{1,2}", &["a", "aa"], &["aaa"]),
            (r"a{2,}", &["aa", "aaa"], &["a"]),
            (r"\x{61}\x62", &["ab"], &["x"]),
            (r"\141\060", &["a0"], &["b"]),
            (r"[\141-\143]", &["a", "b", "c"], &["d"]),
            (r"\<a\_\>", &["<a_>"], &["a_"]),
            (r"a\.\-\[\d{2}", &["a.-[12"], &["ab-[12"]),
        ] {
            let whole = format!("^(?:{pattern})$");
            let compiled =
                compiled(&whole, 1 << 20).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            texts.iter().for_each(|text| assert!(compiled.is_match(text), "{pattern}: {text}"));
            others.iter().for_each(|text| assert!(!compiled.is_match(text), "{pattern}: {text}"));
        }
        // A text without an end takes in what was put behind it, in Go's programs, too.
        for pattern in
            [r"(\Qa)", "[a", "(", r"\1", "[b-a]", r"\", r"[\", "[a-", r"\x{61", "[[:no:]]"]
        {
            compiled(pattern, 1 << 20).expect_err(pattern);
        }
    }

    #[test]
    fn one_that_is_only_too_large_is_told_so() {
        let names: Vec<String> = (0..10_000).map(|n| format!("v{n}.*x")).collect();
        let why = compiled(&names.join("|"), 1 << 20).unwrap_err();
        assert!(why.contains("more than 1048576 bytes") && why.contains("fewer"), "{why}");
    }

    /// Any client could ask for such a pattern, and the server was out of memory.
    #[test]
    fn a_pattern_of_nothing_but_groups_is_refused() {
        let groups = "()".repeat(10_000);
        let why = compiled(&groups, 4 << 20).unwrap_err();
        assert!(why.contains("too many groups"), "{why}");
        assert!(compiled(&"(?:)".repeat(10_000), 4 << 20).unwrap().is_match("a"));
        assert!(compiled(&"(a)".repeat(100), 4 << 20).unwrap().is_match(&"a".repeat(100)));
        assert!(compiled("a{5000}", 1 << 10).unwrap_err().contains("more than 1024 bytes"));
    }
}
