//! A client of HTTP that does nothing but wait for one answer, over a socket that blocks: what a
//! measured query costs beyond the server is then two wake-ups.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a measuring client is never simulated, and has to block as peers' clients do"
)]

use crate::{Error, Result};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An answer.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) lines: usize,
    pub(crate) bytes: u64,
    /// What it begins with, for errors.
    pub(crate) beginning: String,
}

/// A connection that stays open from query to query. It blocks, as the peer's was: who waits for
/// one answer has nothing else to do.
pub(crate) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
    /// What of the buffer has arrived and was not taken.
    held: std::ops::Range<usize>,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        Ok(Self { stream, address, buffer: vec![0; 1 << 18], held: 0..0 })
    }

    /// Asks a query, and reads all of the answer.
    pub(crate) fn ask(&mut self, body: &str) -> Result<Answer> {
        let (address, len) = (self.address, body.len());
        let head =
            format!("POST /api/query HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len}\r\n\r\n");
        self.stream.write_all((head + body).as_bytes()).map_err(lost)?;
        let status = self.line()?;
        let mut is_chunked = false;
        let mut rest = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            is_chunked |= line == "transfer-encoding: chunked";
            if let Some(length) = line.strip_prefix("content-length: ") {
                rest = length.parse().map_err(|_| broken(&line))?;
            }
            if line.is_empty() {
                break;
            }
        }
        if !status.starts_with("HTTP/1.1 200") {
            return Err(broken(&status));
        }
        let mut answer = Answer::default();
        if !is_chunked {
            self.take(rest, &mut answer)?;
            return Ok(answer);
        }
        loop {
            let line = self.line()?;
            let chunk = usize::from_str_radix(&line, 16).map_err(|_| broken(&line))?;
            self.take(chunk, &mut answer)?;
            self.line()?;
            if chunk == 0 {
                return Ok(answer);
            }
        }
    }

    /// Receives more behind what is held.
    fn receive(&mut self) -> Result<()> {
        if self.held.end == self.buffer.len() {
            self.buffer.copy_within(self.held.clone(), 0);
            self.held = 0..self.held.len();
        }
        let len = self.stream.read(&mut self.buffer[self.held.end..]).map_err(lost)?;
        self.held.end += len;
        if len == 0 { Err(broken("nothing more")) } else { Ok(()) }
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<String> {
        loop {
            let held = &self.buffer[self.held.clone()];
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(held[..end].trim_ascii()).into_owned();
                self.held.start += end + 1;
                return Ok(line);
            }
            self.receive()?;
        }
    }

    /// Takes so many bytes of an answer.
    fn take(&mut self, mut count: usize, answer: &mut Answer) -> Result<()> {
        while count > 0 {
            if self.held.is_empty() {
                self.held = 0..0;
                self.receive()?;
            }
            let begin = self.held.start;
            let part = &self.buffer[begin..begin + count.min(self.held.len())];
            answer.lines += part.iter().filter(|byte| **byte == b'\n').count();
            if answer.bytes == 0 {
                answer.beginning =
                    String::from_utf8_lossy(&part[..part.len().min(200)]).into_owned();
            }
            answer.bytes += part.len() as u64;
            count -= part.len();
            self.held.start += part.len();
        }
        Ok(())
    }
}

fn lost(error: std::io::Error) -> Error {
    plinth_types::Error::connection_failed().with_detail(error.to_string()).into()
}

/// What is no answer to a query.
pub(crate) fn broken(said: &str) -> Error {
    let detail = format!("the server answers a query with: {said}");
    plinth_types::Error::operation_failed().with_detail(detail).into()
}
