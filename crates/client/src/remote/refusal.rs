//! Which refusals, of a server or on the way to it, are for good.

use plinth_types::{Error, codes};

/// Whether another attempt to connect can't help.
pub(super) fn is_final(error: &Error) -> bool {
    matches!(
        error.code(),
        codes::INCOMPATIBLE_PROTOCOL_VERSION | codes::CONNECTION_STRING_INVALID | codes::TLS_ERROR
    )
}
