//! The task that keeps a link connected.

use super::conversation::{self, Conversation, Opened};
use super::link::Link;
use plinth_env::sync::{First, race};
use plinth_types::Error;
use std::sync::Arc;
use std::time::Duration;

/// The first pause between two attempts to connect, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// How long connecting and greeting may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps a link connected while there is something to be asked, until it is closed.
pub(super) async fn run(link: Arc<Link>) {
    let (mut attempt, mut pause) = (0, PAUSES[0]);
    loop {
        link.wanted.wait().await;
        while !link.is_closed() && link.is_waiting() {
            let file = link.target.now();
            let address = &file.addresses()[attempt % file.addresses().len()];
            let opening = race(conversation::open(&link, address), link.env.sleep(PATIENCE)).await;
            attempt += 1;
            match opening {
                // Another server has got this one's place meanwhile.
                _ if !link.target.is(&file) => {}
                First::Left(Ok(Opened { stream, rest, version })) => {
                    link.connected(version);
                    // Whoever gives the place away looks behind that whether this is connected, so
                    // that one of the two sees the other.
                    let why = if link.target.is(&file) {
                        link.looks_for_others();
                        Conversation::new(link.clone(), stream, rest).await
                    } else {
                        Error::connection_failed()
                    };
                    link.disconnected(&why);
                    pause = PAUSES[0];
                }
                First::Left(Err(failed)) => link.refused(&failed),
                First::Right(()) => {
                    let detail = format!("{address}: the server doesn't answer");
                    link.refused(&Error::connection_failed().with_detail(detail).into());
                }
            }
            // Many clients lose their server at the same moment, and shall not come back at the
            // same moment.
            let jitter = 0.5 + (link.env.random_u64() >> 11) as f64 / (1_u64 << 54) as f64;
            let closed = std::future::poll_fn(|_| match link.is_closed() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            });
            race(closed, link.env.sleep(pause.mul_f64(jitter))).await;
            pause = (pause * 2).min(PAUSES[1]);
        }
        if link.is_closed() {
            return link.end();
        }
    }
}
