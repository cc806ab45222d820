//! What connections between nodes refuse, and FoundationDB's number for it.
//!
//! A variant is there where somebody reacts to it, here or at the other node; the text says what
//! happened in particular. Nodes tell each other numbers (see [`Welcome`](crate::hello::Welcome)),
//! so what was heard of another one has a number and no variant: [`PeerError::Told`].

use plinth_env::{IoError, IoErrorKind, Unanswered};
use plinth_replication::ReplicationError;
use plinth_types::{Error, codes, layer_error};

/// What a connection to another node answers.
pub type PeerResult<T> = Result<T, PeerError>;

/// A node was not reached or not understood, was refused or has refused.
///
/// Equality is by variant, and that of what came from elsewhere: the text is for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PeerError {
    /// Bytes, or words at a time, that no node sends.
    Malformed(String),
    /// There is no connection, or nothing comes by it.
    Unreachable(String),
    /// Not by this node, or not yet: it doesn't lead, or is yet to begin.
    Behind(String),
    /// It took longer than it may.
    TimedOut,
    /// Cluster files, charters or addresses of the two don't go together.
    Mismatch(String),
    /// The other side hasn't proven what it must, or secrets could be overheard on the way to it.
    Untrusted(String),
    /// Somebody speaks in the clear where TLS is spoken.
    InTheClear(String),
    /// No version of the protocol is spoken by both.
    Incompatible(String),
    /// A charter is damaged, or none that a cluster can be founded with.
    Corrupt(String),
    /// A charter is encrypted, and its key was not given.
    Locked(String),
    /// A charter has a format that this program doesn't read.
    NewerFormat(String),
    /// This node ends the connection: it ends itself, or there is a newer one.
    Closed,
    /// A call on a file or a socket failed.
    Io(IoError),
    /// A frame, or what it says of members and versions, is not as it must be.
    Replication(ReplicationError),
    /// Whoever should have answered has not.
    Unanswered(Unanswered),
    /// By somebody who speaks in numbers: the other node, TLS, or whoever makes directories and
    /// takes nodes in.
    Told(Error),
}

impl PeerError {
    /// Bytes that are no message.
    pub(crate) fn malformed(what: impl std::fmt::Display) -> Self {
        Self::Malformed(format!("malformed message: {what}"))
    }

    /// Whether a member is to be told of: another program than a node's, or one that is broken, has
    /// sent that.
    pub(crate) fn is_misbehaviour(&self) -> bool {
        use ReplicationError as E;
        match self {
            Self::Replication(error) => {
                matches!(error, E::Malformed(_) | E::Damaged(_) | E::TooLarge(_) | E::Forgotten(_))
            }
            other => matches!(other, Self::Malformed(_)),
        }
    }

    /// Whether another node is to be asked, or this one later.
    pub(crate) fn is_behind(&self) -> bool {
        match self {
            Self::Told(error) => error.code() == codes::PROCESS_BEHIND,
            other => matches!(other, Self::Behind(_)),
        }
    }

    /// Whether nobody is there, as far as can be told.
    pub(crate) fn is_unreachable(&self) -> bool {
        match self {
            Self::Io(error) => {
                matches!(error.kind(), IoErrorKind::NotConnected | IoErrorKind::TooManyConnections)
            }
            Self::Told(error) => error.code() == codes::CONNECTION_FAILED,
            other => matches!(other, Self::Unreachable(_)),
        }
    }

    /// FoundationDB's number, and what happened in particular.
    fn number(&self) -> (Error, &str) {
        match self {
            Self::Malformed(what) => (Error::client_invalid_operation(), what),
            Self::Unreachable(what) => (Error::connection_failed(), what),
            Self::Behind(what) => (Error::process_behind(), what),
            Self::TimedOut => (Error::timed_out(), ""),
            Self::Mismatch(what) => (Error::connection_string_invalid(), what),
            Self::Untrusted(what) => (Error::permission_denied(), what),
            Self::InTheClear(what) => (Error::tls_error(), what),
            Self::Incompatible(what) => (Error::incompatible_protocol_version(), what),
            Self::Corrupt(what) => (Error::file_corrupt(), what),
            Self::Locked(what) => (Error::encrypt_key_not_found(), what),
            Self::NewerFormat(what) => (Error::unsupported_operation(), what),
            Self::Closed => (Error::shutdown_in_progress(), ""),
            Self::Io(error) => (error.into(), ""),
            Self::Replication(error) => (error.into(), ""),
            Self::Unanswered(why) => ((*why).into(), ""),
            Self::Told(error) => (error.clone(), ""),
        }
    }
}

layer_error!(PeerError {
    Io(IoError),
    Replication(ReplicationError),
    Unanswered(Unanswered),
    Told(Error),
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Other nodes, of other programs too, are told these numbers.
    #[test]
    fn each_variant_has_its_number_of_foundationdbs() {
        let what = || "what happened".to_owned();
        let numbers = [
            (PeerError::Malformed(what()), 2000),
            (PeerError::Unreachable(what()), 1026),
            (PeerError::Behind(what()), 1037),
            (PeerError::Mismatch(what()), 2104),
            (PeerError::Untrusted(what()), 6000),
            (PeerError::InTheClear(what()), 2107),
            (PeerError::Incompatible(what()), 2100),
            (PeerError::Corrupt(what()), 1522),
            (PeerError::Locked(what()), 2702),
            (PeerError::NewerFormat(what()), 2108),
        ];
        for (error, number) in numbers {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, Some("what happened")), "{error:?}");
            assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
        }
        for (error, number) in [(PeerError::TimedOut, 1004), (PeerError::Closed, 1043)] {
            let told = Error::from(&error);
            assert_eq!((told.code(), told.detail()), (number, None), "{error:?}");
        }
    }

    #[test]
    fn what_another_node_says_is_reacted_to_as_what_is_found_here() {
        let heard = |code: i32| PeerError::Told(Error::from_code(code).with_detail("heard"));
        let io = |kind: IoErrorKind| PeerError::from(IoError::new(kind, "connect"));
        assert!(PeerError::Behind(String::new()).is_behind() && heard(1037).is_behind());
        assert!(!heard(1026).is_behind());
        assert!(PeerError::Unreachable(String::new()).is_unreachable());
        assert!(heard(1026).is_unreachable() && io(IoErrorKind::NotConnected).is_unreachable());
        assert!(!heard(1037).is_unreachable() && !io(IoErrorKind::UnknownHost).is_unreachable());
    }

    /// A member is counted and told of for what its program should not say, and not for what has
    /// merely ended.
    #[test]
    fn what_no_node_sends_is_misbehaviour_and_an_end_is_none() {
        let of = |error: ReplicationError| PeerError::from(error).is_misbehaviour();
        assert!(PeerError::malformed("a ping").is_misbehaviour());
        assert!(of(ReplicationError::Damaged(String::new())));
        assert!(of(ReplicationError::Malformed(String::new())));
        assert!(!of(ReplicationError::Behind(String::new())));
        assert!(!PeerError::Unreachable(String::new()).is_misbehaviour());
        assert!(!PeerError::Closed.is_misbehaviour());
    }
}
