//! Why there is no connection: a refusal, of a server or on the way to it; and which are for good.

use plinth_types::{Error, codes};

/// Why an attempt to connect failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub why: Error,
    /// Whether a server said so. It knows more than what can be seen from here.
    pub is_told: bool,
}

impl From<Error> for Failed {
    fn from(why: Error) -> Self {
        Self { why, is_told: false }
    }
}

/// Whether another attempt to connect can't help.
pub(super) fn is_final(error: &Error) -> bool {
    matches!(
        error.code(),
        codes::INCOMPATIBLE_PROTOCOL_VERSION | codes::CONNECTION_STRING_INVALID | codes::TLS_ERROR
    )
}
