//! The numbers of a node's errors, and what is the same whichever layer has said it.

use super::*;
use plinth_env::IoErrorKind;

fn what() -> Arc<str> {
    "what happened".into()
}

/// Scripts, bindings and clients know these numbers.
#[test]
fn each_variant_has_its_number_of_foundationdbs() {
    let numbers = [
        (NodeError::Unknown(what()), 1021),
        (NodeError::TooOld(Some(what())), 1007),
        (NodeError::Misused(what()), 2000),
        (NodeError::Option(what()), 2006),
        (NodeError::QueueFull(what()), 1042),
        (NodeError::GateFull(what()), 1078),
        (NodeError::MemoryFull(what()), 1000),
        (NodeError::Behind(Some(what())), 1037),
        (NodeError::Silent(what()), 1004),
        (NodeError::DiskSilent(what()), 1521),
        (NodeError::AddressTaken(what()), 2105),
        (NodeError::Removed(what()), 2000),
        (NodeError::Gone(what()), 2011),
        (NodeError::Lacking(what()), 1001),
        (NodeError::Missing(what()), 1511),
        (NodeError::Foreign(what()), 2000),
        (NodeError::Damaged(what()), 1522),
        (NodeError::NewerFormat(what()), 2108),
        (NodeError::Displaced(what()), 1510),
        (NodeError::Unsupported(what()), 2108),
        (NodeError::Closed(Some(what())), 1043),
        (NodeError::Internal(what()), 4100),
    ];
    for (error, number) in numbers {
        let told = Error::from(&error);
        assert_eq!((told.code(), told.detail()), (number, Some("what happened")), "{error:?}");
        assert_eq!(error.to_string(), told.to_string(), "users see the words of the number");
        assert_eq!((error.code(), error.summary().as_str()), (number, "what happened"));
    }
    let without = [
        (NodeError::Conflict, 1020),
        (NodeError::TooOld(None), 1007),
        (NodeError::Future, 1009),
        (NodeError::Locked, 1038),
        (NodeError::BatchHeldBack, 1051),
        (NodeError::TagHeldBack, 1213),
        (NodeError::Behind(None), 1037),
        (NodeError::Closed(None), 1043),
        (NodeError::Unanswered(Unanswered::Broken), 1100),
    ];
    for (error, number) in without {
        let told = Error::from(&error);
        assert_eq!((told.code(), told.detail()), (number, None), "{error:?}");
    }
}

#[test]
fn what_comes_from_below_keeps_its_number_its_words_and_what_there_was_no_more_of() {
    let full = IoError::new(IoErrorKind::DiskFull, "write /log");
    let of_layers = [
        NodeError::from(full.clone()),
        LogError::from(full.clone()).into(),
        StorageError::from(full).into(),
    ];
    for error in of_layers {
        let told = Error::from(&error);
        assert_eq!((told.code(), told.detail()), (1514, Some("write /log")));
        assert!(error.is_disk_full() && plinth_env::is_disk_full(&told), "{error:?}");
        assert!(std::error::Error::source(&error).is_some(), "the call that failed");
    }
    let flaw = plinth_format::Flaw::new("a length", 1, 2).at("/log", 3);
    let told = Error::from(NodeError::from(flaw.clone()));
    assert_eq!((told.code(), told.detail()), (1522, Some(flaw.to_string().as_str())));
    let failed = TaskFailed { name: "replay".into(), reason: "a panic".into() };
    let told = Error::from(NodeError::from(failed.clone()));
    assert_eq!((told.code(), told.detail()), (4100, Some(failed.to_string().as_str())));
    let behind = NodeError::from(ReplicationError::Behind("another node leads".into()));
    assert_eq!(Error::from(&behind).detail(), Some("another node leads"));
}

/// Which questions each kind of error answers with yes, whoever says it.
#[test]
fn the_same_is_the_same_from_every_layer() {
    type Question = fn(&NodeError) -> bool;
    let corruption = || plinth_format::Flaw::new("a length", 1, 2).at("/log", 3);
    let text = || "what happened".to_owned();
    let not_found = || IoError::from(IoErrorKind::NotFound);
    let refused = LogError::Refused(corruption().into());
    let cases: [(Question, Vec<NodeError>); 6] = [
        (
            NodeError::is_missing,
            vec![
                NodeError::Missing(what()),
                not_found().into(),
                LogError::Missing(text()).into(),
                StorageError::from(not_found()).into(),
            ],
        ),
        (
            NodeError::is_damage,
            vec![
                NodeError::Damaged(what()),
                corruption().into(),
                LogError::Malformed(text()).into(),
                refused.into(),
                StorageError::Foreign(what()).into(),
                Error::from(corruption()).into(),
            ],
        ),
        (
            NodeError::is_foreign,
            vec![
                NodeError::Foreign(what()),
                LogError::Misused(text()).into(),
                StorageError::OutOfPlace(what()).into(),
            ],
        ),
        (
            NodeError::is_unreadable,
            vec![
                NodeError::NewerFormat(what()),
                LogError::ForeignFormat(text()).into(),
                StorageError::NewerFormat(what()).into(),
            ],
        ),
        (NodeError::is_gone, vec![NodeError::Gone(what()), LogError::Version(text()).into()]),
        (
            NodeError::is_overtaken,
            vec![
                NodeError::Conflict,
                NodeError::TooOld(None),
                NodeError::Behind(None),
                LogError::Behind(text()).into(),
                ReplicationError::Behind(text()).into(),
            ],
        ),
    ];
    for (at, (_, errors)) in cases.iter().enumerate() {
        for error in errors {
            let yes: Vec<_> = (0..cases.len()).filter(|other| (cases[*other].0)(error)).collect();
            assert_eq!(yes, [at], "{error:?}");
        }
    }
}
