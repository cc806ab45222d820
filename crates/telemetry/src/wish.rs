//! How somebody says what is to be told: the form of an event's line, and how much.

use tracing::Level;

/// How events are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// For people.
    Text,
    /// For programs that gather logs.
    Json,
    /// Not at all.
    Off,
}

/// What a wish may be.
pub const ALLOWED: &str =
    "text, json or off is allowed, and a level behind it, such as \"json,debug\"";

/// Whether a wish may be this. Nobody needs to wish for anything.
pub fn makes_sense(wish: &str) -> bool {
    wish.is_empty() || read(wish).is_some()
}

/// What a wish says; `None` if it says nothing that can be done.
pub fn read(wish: &str) -> Option<(Form, Level)> {
    let (form, level) = wish.split_once(',').unwrap_or((wish, "info"));
    let form = match form {
        "text" => Form::Text,
        "json" => Form::Json,
        "off" => Form::Off,
        _ => return None,
    };
    Some((form, level.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_or_refused() {
        assert_eq!(read("text"), Some((Form::Text, Level::INFO)));
        assert_eq!(read("json,debug"), Some((Form::Json, Level::DEBUG)));
        assert_eq!((read("xml"), read("json,loud"), read("")), (None, None, None));
    }
}
