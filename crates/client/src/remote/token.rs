//! Tokens that say for whom something is asked: [`Shown`], what a connection's server knows of
//! them.
//!
//! All transactions share the connections, whoever they are for. A token holds for what is sent
//! behind it until the next one, so it is sent where it changes, and only there: a client without
//! tokens sends none.
//!
//! Always: nothing is sent behind a token that isn't its own.

use plinth_proto::frame::{NO_ID, TOKENS};
use plinth_proto::request;
use std::sync::Arc;

/// What somebody shows, as he gave it; never empty.
pub(super) type Token = Arc<[u8]>;

/// The token that holds at a place of what is sent, if one does.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Shown(Option<Token>);

impl Shown {
    /// Has this token, or none, hold for what is sent next. A server that is too old for tokens
    /// judges without.
    #[inline]
    pub(super) fn put(&mut self, out: &mut Vec<u8>, token: Option<&Token>, version: u16) {
        if self.0.as_ref() == token || version < TOKENS {
            return;
        }
        self.0 = token.cloned();
        request::put_token(out, NO_ID, token.map_or(&[], |token| token));
    }

    /// Has the one of another place hold again.
    #[inline]
    pub(super) fn go_back(&mut self, out: &mut Vec<u8>, other: &Self, version: u16) {
        self.put(out, other.0.as_ref(), version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tokens: &[&str], version: u16) -> Vec<u8> {
        let (mut shown, mut out) = (Shown::default(), Vec::new());
        for token in tokens {
            let token = (!token.is_empty()).then(|| Token::from(token.as_bytes()));
            shown.put(&mut out, token.as_ref(), version);
            out.push(b'|');
        }
        out
    }

    #[test]
    fn a_token_is_sent_where_it_changes() {
        let frame = |token: &str| {
            let mut out = Vec::new();
            request::put_token(&mut out, NO_ID, token.as_bytes());
            out
        };
        assert_eq!(shown(&["", ""], TOKENS), b"||");
        assert_eq!(shown(&["a", "a"], TOKENS - 1), b"||");
        let expected =
            [frame("a"), b"||".to_vec(), frame("b"), b"|".to_vec(), frame(""), b"|".to_vec()];
        assert_eq!(shown(&["a", "a", "b", ""], TOKENS), expected.concat());
    }
}
