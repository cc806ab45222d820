//! Beginning: the second is locked and says what it follows; an agent does the rest. And standing
//! still for a while.
//!
//! Always: the row on the first is there before the second has a head, and a start that fails takes
//! it away again, with a stream that a FoundationDB has registered.

use crate::abort::clear_first;
use crate::capture;
use crate::follow::claim;
use crate::rows::{DEFAULT_TAG, HEAD, Head, Id, SECOND, Wanted, stream_name};
use crate::sites::{Sites, firsts, head, identity, nothing};
use crate::system::{self, lock};
use plinth_client::{Filling, RangeOptions};
use plinth_types::{Error, Result, printable, system as keys};

/// How a second site is begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartSettings {
    /// A name for it; a first site can have several second ones, under different tags.
    pub tag: String,
    /// Clear what the second has. Without it, it must be empty.
    pub clear: bool,
    /// How much of its log the first may keep for it; `None`: a quarter of the free disk.
    pub log_bytes: Option<u64>,
}

impl Default for StartSettings {
    fn default() -> Self {
        Self { tag: DEFAULT_TAG.to_owned(), clear: false, log_bytes: None }
    }
}

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::client_invalid_operation().with_detail(what))
}

/// Has the second database follow the first. Gives false if it does already.
///
/// # Errors
/// `client_invalid_operation` if the two are one database, the second is not empty, or one has such
/// a relation already; `database_locked` if somebody else has locked the second; `timed_out` if one
/// can't be reached.
pub async fn start(sites: &Sites, settings: &StartSettings) -> Result<bool> {
    if capture::of(&sites.to).is_some() {
        return refuse(
            "the second site has to be a database of Plinth's: FoundationDB can't follow another one",
        );
    }
    sites.check_different().await?;
    let capture = capture::of(&sites.from);
    if let Some(capture) = capture {
        capture::check(&sites.from, capture).await?;
    }
    if settings.tag.is_empty() || settings.tag.len() > 255 {
        return refuse("a tag has 1 to 255 bytes");
    }
    if let Some(direction) = sites.direction().await? {
        if direction.is_reversed {
            return refuse("the two have changed sides: name them the other way round");
        }
        if direction.head.tag != settings.tag {
            return refuse(format!(
                "the second site follows the first under the tag {}",
                direction.head.tag
            ));
        }
        return Ok(false);
    }
    check_chain(sites).await?;
    let id = id_for(sites, &settings.tag).await?;
    let head = Head {
        id,
        tag: settings.tag.clone(),
        from: identity(&sites.from),
        wanted: Wanted::Following,
        other: None,
        is_paused: false,
        log_bytes: settings.log_bytes,
    };
    // The row on the first is there before the second has a head, and goes before that does: where
    // it is missing, it was ended.
    claim(&sites.from, &sites.to, &head).await?;
    let begun = async {
        if let Some(capture) = capture {
            // At once: whether the first takes it at all is told here, not by an agent.
            capture::register(&sites.from, capture, &head).await?;
        }
        take(sites, &head, settings.clear).await
    };
    match (begun.await, capture) {
        (Ok(()), _) => Ok(true),
        (Err(error), Some(capture)) => {
            capture::end(&sites.from, capture, (&settings.tag, &id), None).await?;
            Err(error)
        }
        (Err(error), None) => {
            let tag = &settings.tag;
            system::transact(&sites.from, |tr| async move { clear_first(&tr, tag, &id).await })
                .await?;
            Err(error)
        }
    }
}

/// Databases are not followed in a chain: neither is the first a second one, nor the second a first
/// one.
async fn check_chain(sites: &Sites) -> Result<()> {
    if let Some(head) = head(&sites.from).await? {
        return refuse(format!(
            "the first site is itself a second one, of the database {}",
            head.from
        ));
    }
    if let Some((tag, first)) = firsts(&sites.to).await?.first() {
        return refuse(format!(
            "the second site is followed by the database {} under the tag {tag}",
            first.to
        ));
    }
    Ok(())
}

/// A new id, or that of a start that was interrupted before the second knew of it: nothing was
/// registered for that one.
///
/// # Errors
/// `client_invalid_operation` if the first is followed under this tag.
async fn id_for(sites: &Sites, tag: &str) -> Result<Id> {
    let Some((_, first)) = firsts(&sites.from).await?.into_iter().find(|(other, _)| other == tag)
    else {
        let mut id = Id::default();
        sites.to.endpoint().env().fill_random(&mut id);
        return Ok(id);
    };
    let name = stream_name(&first.id);
    // A stream that is captured has everything from its registration on.
    let has_stream = capture::of(&sites.from).is_none()
        && sites.from.list_changes().await?.iter().any(|stream| stream.name == name.as_bytes());
    if first.to == identity(&sites.to) && !has_stream {
        return Ok(first.id);
    }
    refuse(format!(
        "the first site is followed already under the tag {tag}, by the database {}; abort that, or take another tag",
        first.to
    ))
}

/// Locks the second, and writes what it follows.
async fn take(sites: &Sites, head: &Head, clear: bool) -> Result<()> {
    let refused = system::transact(&sites.to, |tr| async move {
        let filling = Filling::find(&tr).await?;
        match (tr.get(HEAD).await?, tr.get(keys::DATABASE_LOCKED).await?) {
            // An attempt before has done it.
            (Some(value), _) if Head::decode(&value)?.id == head.id => return Ok(None),
            // Whoever is at it is aware of locks, and would go on.
            (None, _) if filling.is_some() => {
                return Ok(filling.map(|filling| filling.refusal("the second site")));
            }
            (None, None) => {}
            // Not an error of the transaction: that would be tried again until somebody unlocks it.
            _ => return Ok(Some(Error::database_locked().with_detail("the second site is locked by somebody else"))),
        }
        for (begin, end) in keys::USERS {
            let found = tr.get_range(RangeOptions::from(begin..end).limit(1)).await?;
            if let Some((key, _)) = found.rows.row(0).filter(|_| !clear) {
                let detail = format!(
                    "the second site is not empty: it has the key {}; take an empty one, or have it cleared (--clear)",
                    printable(key)
                );
                return Ok(Some(Error::restore_destination_not_empty().with_detail(detail)));
            }
            tr.clear_range(begin, end);
        }
        tr.clear_range(SECOND.0, SECOND.1);
        tr.set(HEAD, head.encode());
        lock(&tr, &head.id);
        Ok(None)
    })
    .await?;
    refused.map_or(Ok(()), Err)
}

/// Has the second stand still, or go on. The first keeps its log meanwhile.
///
/// # Errors
/// `client_invalid_operation` if neither follows the other; `timed_out` if one of them can't be
/// reached.
pub async fn set_paused(sites: &Sites, is_paused: bool) -> Result<()> {
    sites.reach().await?;
    let direction = sites.direction().await?.ok_or_else(nothing)?;
    system::transact(&direction.to, |tr| async move {
        if let Some(value) = tr.get(HEAD).await? {
            tr.set(HEAD, Head { is_paused, ..Head::decode(&value)? }.encode());
        }
        Ok(())
    })
    .await
}
