//! A peer of the series' listeners that is made of bare bytes.

use plinth_env::{Env, Stream, block_on};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Poll, ready};

/// The status of an answer to a request of HTTP, and what stands behind its head.
pub fn ask_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> (u32, String) {
    let mut peer = Peer::to(address);
    let len = body.len();
    peer.send(&format!(
        "{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}Content-Length: {len}\r\n\r\n{body}"
    ));
    let answer = peer.all();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in {answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
}

/// A connection that sends whatever it is told to.
pub struct Peer(pub Stream);

impl Peer {
    /// Connects.
    pub fn to(address: SocketAddr) -> Self {
        Self(block_on(Env::real().sockets().connect(address)).unwrap())
    }

    /// Sends all of it.
    pub fn send(&mut self, text: &str) {
        block_on(self.sent(text));
    }

    /// The same, for a task.
    pub async fn sent(&mut self, text: &str) {
        let (bytes, mut sent) = (text.as_bytes(), 0);
        poll_fn(|context| {
            while sent < bytes.len() {
                sent += ready!(self.0.poll_send(context, &bytes[sent..])).unwrap();
            }
            Poll::Ready(())
        })
        .await;
    }

    /// What has arrived; nothing at the end.
    pub fn receive(&mut self) -> String {
        block_on(self.answer())
    }

    /// The same, for a task.
    pub async fn answer(&mut self) -> String {
        let mut buffer = [0; 4096];
        let len = poll_fn(|context| self.0.poll_receive(context, &mut buffer)).await.unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    /// Everything until there is this.
    pub fn until(&mut self, what: &str) -> String {
        let mut all = String::new();
        while !all.contains(what) {
            let more = self.receive();
            assert!(!more.is_empty(), "it ends behind {all:?}");
            all += &more;
        }
        all
    }

    /// Everything until the other side closes.
    pub fn all(mut self) -> String {
        let mut all = String::new();
        loop {
            match self.receive() {
                more if more.is_empty() => return all,
                more => all += &more,
            }
        }
    }

    /// The same, for a task.
    pub async fn everything(mut self) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match poll_fn(|context| self.0.poll_receive(context, &mut buffer)).await.unwrap() {
                0 => return String::from_utf8_lossy(&all).into_owned(),
                len => all.extend_from_slice(&buffer[..len]),
            }
        }
    }
}
