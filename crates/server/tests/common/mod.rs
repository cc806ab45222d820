//! What the tests of the server share: a server on loopback over a database in memory, and a client
//! made of bare bytes.
//!
//! Ports are chosen by the system, so tests run side by side. The bare client blocks its thread, as
//! tests may; it reads frames with the protocol's own functions and says whatever it is told to.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod around;
pub mod beside;
pub mod peer;
pub mod quotas;
pub mod taking;

use plinth_client::remote::{ClusterFile, RemoteEndpoint, RemoteOptions};
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, Stream, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_proto::frame::{self, Kind, MAX_REPLY};
use plinth_proto::hello::NEWEST;
use plinth_proto::{Hello, Request, Welcome, reply};
use plinth_server::{Limits, Server, ServerConfig};
use plinth_types::{Error, Result};
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A port of loopback that is free.
pub fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// A server over a new database in memory.
pub fn serve(limits: Limits) -> Server {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    serve_endpoint(Arc::new(node.endpoint()), limits)
}

/// A server over a new database in memory that answers HTTP, and where.
pub fn serve_http() -> (Server, SocketAddr) {
    let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
    let (listen, http) = (vec![loopback()], Some(loopback()));
    let config = ServerConfig { listen, http, ..ServerConfig::default() };
    let server = block_on(Server::start(Arc::new(node.endpoint()), config)).unwrap();
    let http = server.http_address().unwrap();
    (server, http)
}

/// A server over an endpoint.
pub fn serve_endpoint(endpoint: Arc<dyn Endpoint>, limits: Limits) -> Server {
    let config = ServerConfig { listen: vec![loopback()], limits, ..ServerConfig::default() };
    block_on(Server::start(endpoint, config)).unwrap()
}

/// A client's endpoint of a server.
pub fn remote(server: &Server) -> Arc<RemoteEndpoint> {
    let file = ClusterFile::parse(server.connection_string()).unwrap();
    Arc::new(RemoteEndpoint::connect(&Env::real(), file))
}

/// A client of a server.
pub fn database(server: &Server) -> Database {
    Database::new(remote(server))
}

/// A client that has one connection, which nobody shares.
pub fn with_one_connection(server: &Server) -> Database {
    let (env, file) = (Env::real(), ClusterFile::parse(server.connection_string()).unwrap());
    let options = RemoteOptions { connections: 1, ..RemoteOptions::new(&env) };
    Database::new(Arc::new(RemoteEndpoint::with_options(&env, file, &options)))
}

/// A connection that sends whatever it is told to.
pub struct Raw {
    stream: Stream,
    received: Vec<u8>,
    /// What is to be sent while it waits for what it receives.
    unsent: Vec<u8>,
}

impl Raw {
    /// Connects, and says nothing.
    pub fn connect(server: &Server) -> Self {
        Self::to(server.addresses()[0])
    }

    /// Connects to an address, and says nothing.
    pub fn to(address: SocketAddr) -> Self {
        Self::over(block_on(Env::real().sockets().connect(address)).unwrap())
    }

    /// A connection that is there, and says nothing.
    pub fn over(stream: Stream) -> Self {
        Self { stream, received: Vec::new(), unsent: Vec::new() }
    }

    /// Everything until the server closes.
    pub fn all(mut self) -> Vec<u8> {
        while self.receive() > 0 {}
        self.received
    }

    /// What has come when it has this text in it, or when the server has closed.
    pub fn until(&mut self, text: &str) -> String {
        let mut searched = 0;
        loop {
            let from = self.received.len().min(searched).saturating_sub(text.len());
            let is_there = String::from_utf8_lossy(&self.received[from..]).contains(text);
            searched = self.received.len();
            if is_there || self.receive() == 0 {
                return String::from_utf8_lossy(&self.received).into_owned();
            }
        }
    }

    /// Connects and greets.
    pub fn greeted(server: &Server) -> Self {
        Self::greeted_in(server, NEWEST)
    }

    /// Connects and greets as a client that speaks this version of the protocol at most.
    pub fn greeted_in(server: &Server, newest: u16) -> Self {
        let mut raw = Self::connect(server);
        let mut hello = Vec::new();
        Hello { newest, ..Hello::new("", "raw") }.encode(&mut hello);
        raw.send(&hello).unwrap();
        let welcome = raw.welcome().unwrap();
        assert_eq!((welcome.refused, welcome.version), (None, newest));
        raw
    }

    /// Sends all of it.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut sent = 0;
        block_on(poll_fn(|context| {
            while sent < bytes.len() {
                sent += ready!(self.stream.poll_send(context, &bytes[sent..]))?;
            }
            Poll::Ready(Ok(()))
        }))
    }

    /// Sends what is taken at once, and the rest while it waits for what it receives.
    pub fn send_along(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        block_on(poll_fn(|context| {
            self.send_unsent(context);
            Poll::Ready(())
        }));
    }

    /// Sends the rest, and says that this is all.
    pub fn finish(&mut self) {
        block_on(poll_fn(|context| {
            self.send_unsent(context);
            if !self.unsent.is_empty() {
                return Poll::Pending;
            }
            self.stream.poll_finish(context)
        }))
        .unwrap();
    }

    fn send_unsent(&mut self, context: &mut Context<'_>) {
        while !self.unsent.is_empty() {
            match self.stream.poll_send(context, &self.unsent) {
                Poll::Ready(Ok(sent)) => drop(self.unsent.drain(..sent)),
                Poll::Ready(Err(_)) => self.unsent.clear(),
                Poll::Pending => return,
            }
        }
    }

    /// Sends a request.
    pub fn ask(&mut self, id: u32, request: &Request) -> std::io::Result<()> {
        let mut out = Vec::new();
        request.encode(&mut out, id);
        self.send(&out)
    }

    /// Receives more; how much: 0 at the end, also at a reset.
    pub fn receive(&mut self) -> usize {
        let mut buffer = [0; 65536];
        let len = block_on(poll_fn(|context| {
            self.send_unsent(context);
            self.stream.poll_receive(context, &mut buffer)
        }));
        let len = len.unwrap_or(0);
        self.received.extend_from_slice(&buffer[..len]);
        len
    }

    /// The server's welcome.
    pub fn welcome(&mut self) -> Result<Welcome> {
        loop {
            if let Some((welcome, len)) = Welcome::decode(&self.received)? {
                self.received.drain(..len);
                return Ok(welcome);
            }
            if self.receive() == 0 {
                return Err(Error::end_of_stream());
            }
        }
    }

    /// The next frame: id, kind, body. `None` once the server has closed.
    pub fn next(&mut self) -> Option<(u32, u8, Vec<u8>)> {
        loop {
            if let Some(frame) = frame::split(&self.received, MAX_REPLY).unwrap() {
                let found = (frame.id, frame.kind, frame.body.to_vec());
                let len = frame.len();
                self.received.drain(..len);
                return Some(found);
            }
            if self.receive() == 0 {
                return None;
            }
        }
    }

    /// The next frame, which must be a failure: id and error.
    pub fn failure(&mut self) -> (u32, Error) {
        let (id, kind, body) = self.next().expect("the server closed without a word");
        assert_eq!(kind, Kind::Failure as u8);
        (id, reply::failure(&body))
    }
}

/// Small random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}
