//! Names of series in their canonical form: `metric tag1=a tag2=b`, the tags sorted, one space
//! between the parts.
//!
//! There may be no tags: what sums over all of them has none. What a client sends may have the tags
//! in any order and more spaces; `\ ` is a space that belongs to a part. Names that mean the same
//! are the same bytes afterwards. Nothing else in a name has a meaning.

use crate::error::{Error, Result};
use std::borrow::Cow;
use std::fmt;

/// Longest name in its canonical form, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;
/// Most tags of a name.
pub const MAX_TAGS: usize = 128;

/// The canonical name of a series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name {
    text: String,
}

impl Name {
    /// The name that `text` means.
    ///
    /// # Errors
    /// [`Error::Name`] without a metric, for a tag that is not `key=value`, for a key that occurs
    /// twice, for a backslash at the end that escapes nothing, and beyond [`MAX_NAME_BYTES`] and
    /// [`MAX_TAGS`].
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            Err(Error::Name { name: text.chars().take(200).collect(), why: why.to_string() })
        };
        // In its place among sorted tags it would make one of two.
        if text.chars().fold(false, |escaped, character| character == '\\' && !escaped) {
            return wrong("the backslash at its end escapes nothing");
        }
        let mut parts = parts(text);
        let Some(metric) = parts.next() else { return wrong("it has no metric") };
        let mut tags: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    tags.push((key, value))
                }
                _ => return wrong("a tag is not of the form key=value"),
            }
            if tags.len() > MAX_TAGS {
                return wrong("it has more than 128 tags");
            }
        }
        tags.sort_unstable();
        if tags.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return wrong("a tag occurs twice");
        }
        let mut canonical = metric.to_string();
        for (key, value) in tags {
            canonical.extend([" ", key, "=", value]);
        }
        if canonical.len() > MAX_NAME_BYTES {
            return wrong("it is longer than 4096 bytes");
        }
        Ok(Self { text: canonical })
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What is measured.
    pub fn metric(&self) -> &str {
        parts(&self.text).next().unwrap_or_default()
    }

    /// The tags, sorted by key.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        parts(&self.text).skip(1).filter_map(|part| part.split_once('='))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A part of a name as people mean it: without the backslashes that mark blanks and backslashes as
/// its own.
pub(crate) fn plain(part: &str) -> Cow<'_, str> {
    if !part.contains('\\') {
        return part.into();
    }
    let mut plain = String::with_capacity(part.len());
    let mut characters = part.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some(' ' | '\\')) => plain.extend(characters.next()),
            _ => plain.push(character),
        }
    }
    plain.into()
}

/// A part of a name, its blanks marked as its own where they are not. Backslashes stay what they
/// are.
pub(crate) fn with_own_blanks(part: &str) -> String {
    let mut marked = String::with_capacity(part.len());
    let mut escaped = false;
    for character in part.chars() {
        if character == ' ' && !escaped {
            marked.push('\\');
        }
        escaped = character == '\\' && !escaped;
        marked.push(character);
    }
    marked
}

/// The ways in which a part may be written that means `plain`.
pub(crate) fn written(plain: &str) -> Vec<String> {
    let mut all = vec![with_own_blanks(plain), plain.replace('\\', "\\\\").replace(' ', "\\ ")];
    all.dedup();
    all
}

/// What stands between spaces that are not escaped.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    let split = text.split(move |character| {
        let ends = character == ' ' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    });
    split.filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_tags_and_spaces_means_nothing() {
        let name = Name::parse("  cpu.user  os=linux host=a\\ b ").unwrap();
        assert_eq!(name.as_str(), "cpu.user host=a\\ b os=linux");
        assert_eq!(name.metric(), "cpu.user");
        assert_eq!(name.tags().collect::<Vec<_>>(), [("host", "a\\ b"), ("os", "linux")]);
        assert_eq!(Name::parse(name.as_str()).unwrap(), name);
        let bare = Name::parse(" m ").unwrap();
        assert_eq!((bare.as_str(), bare.metric(), bare.tags().count()), ("m", "m", 0));
    }

    /// `m b=2 a=1\` became `m a=1\ b=2`, which is another name, of one tag. Found by reading, for
    /// the fuzzer's oracle.
    #[test]
    fn sorting_tags_makes_no_other_name() {
        assert!(Name::parse("m b=2 a=1\\").is_err());
        let name = Name::parse("m b=2 a=1\\\\").unwrap();
        assert_eq!(name.tags().collect::<Vec<_>>(), [("a", "1\\\\"), ("b", "2")]);
        assert_eq!(Name::parse(name.as_str()).unwrap(), name);
    }

    #[test]
    fn parts_with_blanks_and_backslashes_are_found_by_what_they_mean() {
        for (part, means) in [
            ("a", "a"),
            ("a\\ b", "a b"),
            ("C:\\x", "C:\\x"),
            ("C:\\\\x\\ y", "C:\\x y"),
            ("\\", "\\"),
        ] {
            assert_eq!(plain(part), means, "{part}");
            assert!(written(means).contains(&part.to_string()), "{part}: {:?}", written(means));
        }
        assert_eq!(with_own_blanks("a b\\ c\\\\ d"), "a\\ b\\ c\\\\\\ d");
        assert_eq!(written("a"), ["a"]);
    }

    #[test]
    fn the_longest_name_is_one_however_it_is_written() {
        let longest = format!("m host={}", "x".repeat(MAX_NAME_BYTES - 7));
        for text in [longest.clone(), longest.replace(' ', "   "), format!(" {longest} ")] {
            assert_eq!(Name::parse(&text).unwrap().as_str(), longest);
        }
        let error = Name::parse(&format!("{longest}x")).unwrap_err().to_string();
        assert!(error.contains("longer than 4096 bytes"), "{error}");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("m host={}", "x".repeat(MAX_NAME_BYTES));
        let many: String = (0..1000).map(|tag| format!(" t{tag}=1")).collect();
        for text in ["", "  ", "m host", "m =a", "m a=", "m a=1 a=2", &long, &format!("m{many}")] {
            assert!(Name::parse(text).is_err(), "{}", text.len());
        }
    }
}
