//! What an operator asks of a server: who its clients are, to close their connections, to begin
//! anew.

use super::Connection;
use crate::audit::Who;
use crate::memory::{self, Charge};
use plinth_env::Reply;
use plinth_proto::frame::Kind;
use plinth_proto::reply;
use plinth_types::{Error, Result};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

/// Which connections are meant.
enum Which {
    All,
    From(IpAddr),
    One(SocketAddr),
}

impl Which {
    fn parse(text: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(text);
        if text == "all" {
            return Ok(Self::All);
        }
        let address = text.parse().map(Self::One).or_else(|_| text.parse().map(Self::From));
        address.map_err(|_| {
            let detail =
                format!("connections are named by IP:PORT, by IP, or by `all`, not by {text:?}");
            Error::invalid_option_value().with_detail(detail)
        })
    }
}

impl Connection {
    /// Lists the connections: `ip:port` and the client's name.
    pub(super) fn clients(&mut self, id: u32, len: usize) {
        let shared = self.shared.clone();
        let answer = self.shared.turns.heavy.submit(self.number, move || {
            let mut clients = Vec::new();
            shared
                .connections
                .visit(|outbox| clients.push(format!("{} {}", outbox.peer, outbox.name())));
            Reply::ready(Ok(clients))
        });
        self.answer(
            id,
            answer,
            Charge::new(len, memory::LIST),
            |out, id, clients: &Vec<String>| {
                reply::put_list(out, id, Kind::ClientsReply, clients);
            },
        );
    }

    /// Who asks, for whoever wants to know who did what.
    pub(super) fn who(&self) -> Who {
        let (address, name) = (self.outbox.peer.to_string(), self.outbox.name());
        let name = match self.access.subject() {
            Some(subject) => format!("{name}, by a token of {subject}"),
            None => name.to_owned(),
        };
        let name = match self.access.user() {
            Some(user) => format!("{name}, as user {user} of this machine"),
            None => name,
        };
        Who { address, name }
    }

    /// Has the server begin anew, if it is the one that is meant.
    pub(super) fn reboot(&mut self, id: u32, address: &[u8]) {
        let is_meant = self.shared.is_at(&String::from_utf8_lossy(address));
        if is_meant {
            tracing::warn!(by = %self.outbox.peer, client = %self.outbox.name(), "a client has this server begin anew");
            self.shared.doors.audit.note(self.who(), "kill");
            self.shared.stops.reboot.store(true, Ordering::Release);
        }
        reply::put_number(&mut self.output, id, Kind::RebootReply, i64::from(is_meant));
    }

    /// Closes connections. The one that asks goes on, unless it names itself.
    pub(super) fn disconnect(&mut self, id: u32, client: &[u8]) -> Result<()> {
        let which = Which::parse(client)?;
        let own = self.number;
        let closed = self.shared.connections.disconnect(|number, outbox| match which {
            Which::All => number != own,
            Which::From(ip) => number != own && outbox.peer.ip() == ip,
            Which::One(peer) => outbox.peer == peer,
        });
        let what = format!("disconnect {}", String::from_utf8_lossy(client));
        self.shared.doors.audit.note(self.who(), &what);
        let closed = i64::try_from(closed).unwrap_or(i64::MAX);
        reply::put_number(&mut self.output, id, Kind::DisconnectReply, closed);
        Ok(())
    }
}
