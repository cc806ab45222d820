//! A server that takes in time series over HTTP, and whoever asks it in bare bytes.

use super::{Raw, loopback};
use plinth_client::{Database, Endpoint};
use plinth_env::{Env, block_on};
use plinth_pipeline::{Node, NodeConfig};
use plinth_series::{Direction, Point, SeriesStore};
use plinth_server::{Limits, SeriesConfig, Server, ServerConfig};
use std::sync::Arc;

/// A server, and what it stands on.
pub struct Taking {
    pub server: Server,
    pub at: SeriesConfig,
    endpoint: Arc<dyn Endpoint>,
}

/// An answer: its status, its head and its body.
pub struct Heard {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Heard {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Taking {
    /// With these settings, and HTTP.
    pub fn with(series: SeriesConfig) -> Self {
        Self::limited(series, Limits::default())
    }

    /// The same, within these limits.
    pub fn limited(series: SeriesConfig, limits: Limits) -> Self {
        let node = block_on(Node::in_memory(&Env::real(), NodeConfig::default())).unwrap();
        let endpoint: Arc<dyn Endpoint> = Arc::new(node.endpoint());
        let series = SeriesConfig { http: Some(loopback()), ..series };
        let listen = vec![loopback()];
        let config = ServerConfig { listen, series, limits, ..ServerConfig::default() };
        let server = block_on(Server::start(endpoint.clone(), config)).unwrap();
        let at = server.series_addresses();
        Self { server, at, endpoint }
    }

    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Heard {
        let len = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {len}\r\n\r\n"
        );
        let mut raw = Raw::to(self.at.http.unwrap());
        raw.send_along(&[head.as_bytes(), body].concat());
        heard(&raw.all())
    }

    pub fn post(&self, path: &str, headers: &str, body: &[u8]) -> Heard {
        self.ask("POST", path, headers, body)
    }

    pub fn get(&self, path: &str) -> Heard {
        self.ask("GET", path, "", b"")
    }

    /// The points of series, once the server has ended.
    pub fn end(self, names: &[&str]) -> Vec<Vec<Point>> {
        block_on(self.server.stop());
        let store = block_on(SeriesStore::open(&Database::new(self.endpoint.clone()))).unwrap();
        let points = |name: &&str| {
            block_on(async {
                match store.existing(name).await? {
                    Some(series) => series.scan(.., Direction::Forward).await?.collect().await,
                    None => Ok(Vec::new()),
                }
            })
        };
        names.iter().map(|name| points(name).unwrap()).collect()
    }
}

/// An answer, its chunks put together.
fn heard(all: &[u8]) -> Heard {
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (head, mut rest) = (String::from_utf8(all[..end].to_vec()).unwrap(), &all[end + 4..]);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return Heard { status, head, body: rest.to_vec() };
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if len == 0 {
            return Heard { status, head, body };
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + len]);
        rest = &rest[line + 4 + len..];
    }
}
