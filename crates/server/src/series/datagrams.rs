//! Points in datagrams, in Akumuli's protocol: each holds whole messages, and stands for itself.
//!
//! Nobody is answered: an address in a datagram proves nothing, and whoever is behind it asked for
//! nothing. So a `+SYNC` is passed over, which would cost a commit whose acknowledgement nobody
//! hears. What is wrong is counted for `/metrics`, and the first of it within some seconds is told
//! as an event. A datagram that is wrong takes none of the others with it. While the store is
//! behind none is received, and what finds no room in the system is lost, as datagrams are.

use super::events;
use super::opened::Opened;
use super::{BREATH, Hub};
use crate::rights::{Identity, Judged};
use plinth_env::sync::{First, race};
use plinth_env::{Datagrams, MAX_DATAGRAM, Signal};
use plinth_series::SeriesStore;
use plinth_series::ingest::{Protocol, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it is silent about what is wrong after having told.
const SILENCE: Duration = Duration::from_secs(10);

/// What was wrong and is not told yet.
#[derive(Default)]
struct Wrongs {
    told: Option<Duration>,
    untold: u64,
}

/// Takes datagrams in until the server stops.
pub(super) async fn receive(hub: &Hub, mut socket: Datagrams, stop: &Signal) {
    let all_senders = socket.local_address().ip();
    let new_session = || hub.session(Protocol::Resp, all_senders);
    let mut session = new_session();
    let mut known: Option<Arc<Opened>> = None;
    let mut wrongs = Wrongs::default();
    // What the sender before may: many come from one address.
    let mut judged = (all_senders, Judged::default());
    let mut buffer = vec![0; MAX_DATAGRAM];
    // The flag is looked at here too: a socket that always has something would never let the signal
    // in.
    while !hub.is_stopping() {
        match race(stop.wait(), socket.receive(&mut buffer)).await {
            First::Left(()) => return,
            First::Right(Err(_)) => hub.env.sleep(BREATH).await,
            First::Right(Ok((len, from))) => {
                hub.counts.datagrams.fetch_add(1, Ordering::Relaxed);
                if judged.0 != from.ip() {
                    judged = (from.ip(), Judged::default());
                }
                let may = hub.check_sender(&mut judged.1, || Identity::at(from.ip()));
                let may_send = may.is_ok();
                let opened = may.and_then(|metrics| Ok((hub.slot.takes_now()?, metrics)));
                if let Ok((opened, _)) = &opened
                    && known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, opened))
                {
                    // A session remembers series of the store that it wrote to.
                    (session, known) = (new_session(), Some(opened.clone()));
                }
                let result = match opened {
                    Ok((opened, metrics)) => {
                        // Nothing of the datagram before is this sender's.
                        session.restart(Protocol::Resp);
                        session.restrict(metrics);
                        take(&opened.store, &mut session, &buffer[..len]).await
                    }
                    Err(why) => {
                        session.restart(Protocol::Resp);
                        session.refuse(&why);
                        Err(why)
                    }
                };
                hub.counts.add(session.saved(), session.refused());
                wrongs.take(hub, from, &session);
                if result.is_err() && may_send {
                    // The store has failed; what it recovers from takes longer than this. Whoever
                    // may send nothing keeps nobody waiting.
                    hub.env.sleep(BREATH).await;
                }
            }
        }
    }
}

/// Takes one datagram in, with a session that begins, and puts its points into the store, which
/// commits them in its time.
async fn take(
    store: &SeriesStore,
    session: &mut Session,
    datagram: &[u8],
) -> plinth_series::Result<()> {
    let mut at = 0;
    loop {
        at += session.feed(&datagram[at..]);
        if !session.wants_save() {
            break;
        }
        session.forgo_sync();
        session.save(store).await?;
    }
    session.finish(&datagram[at..]);
    if session.has_points() {
        session.save(store).await?;
    }
    Ok(())
}

impl Wrongs {
    fn take(&mut self, hub: &Hub, from: SocketAddr, session: &Session) {
        let Some(first) = first_wrong(session.replies()) else { return };
        let refused = session.refused();
        hub.counts.datagrams_refused.fetch_add(refused, Ordering::Relaxed);
        self.untold += refused;
        let now = hub.env.now();
        if self.told.is_none_or(|told| now.saturating_sub(told) >= SILENCE) {
            events::datagram_refused(from, self.untold, &String::from_utf8_lossy(first));
            *self = Self { told: Some(now), untold: 0 };
        }
    }
}

/// The first of the replies that is an error: of a message, or of the store.
fn first_wrong(replies: &[u8]) -> Option<&[u8]> {
    replies
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .find(|reply| reply.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_what_is_wrong() {
        assert_eq!(first_wrong(b""), None);
        assert_eq!(first_wrong(b"+OK 3\r\n"), None);
        assert_eq!(
            first_wrong(b"+OK 3\r\n-PARSER no time\r\n-DB gone\r\n"),
            Some(&b"-PARSER no time"[..])
        );
    }
}
