//! What programs that watch the server ask by HTTP: `/metrics` for Prometheus, `/status` for everybody else.
//!
//! Just enough of HTTP/1.1 for that: one GET a connection, no body, an answer with its length. Whatever isn't that is told
//! so; a head that doesn't end within a few kilobytes or seconds is not waited for.

use crate::counters::Figures;
use crate::server::Shared;
use plinth_env::sync::{First, race};
use plinth_env::{Listener, Stream};
use std::fmt::Write;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

/// Longest head of a request.
const MAX_HEAD: usize = 8 << 10;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time.
const CONNECTIONS: usize = 64;

/// Text made anew for each request, such as a node's measurements.
#[derive(Clone)]
pub struct Page(Arc<dyn Fn() -> String + Send + Sync>);

impl Page {
    /// The page that `make` gives.
    pub fn new(make: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Page")
    }
}

/// Answers until told to stop.
pub(crate) async fn serve(shared: Arc<Shared>, listener: Listener) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        match race(shared.http_stop.wait(), listener.accept()).await {
            First::Left(()) => return,
            First::Right(Err(_)) => shared.env.sleep(Duration::from_millis(50)).await,
            First::Right(Ok(stream)) if open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS => {
                let (theirs, open) = (shared.clone(), open.clone());
                drop(shared.env.spawn_network("http", async move {
                    race(answer(&theirs, stream), theirs.env.sleep(PATIENCE)).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                }));
            }
            First::Right(Ok(stream)) => {
                open.fetch_sub(1, Ordering::Relaxed);
                drop(stream);
            }
        }
    }
}

/// One request and its answer. What goes wrong on the socket is the other side's affair.
async fn answer(shared: &Shared, mut stream: Stream) {
    let Ok(head) = receive_head(&mut stream).await else { return };
    let (status, kind, body) = match path(&head) {
        Ok("/metrics") => ("200 OK", "text/plain; version=0.0.4", metrics(shared)),
        Ok("/status" | "/status/json") => match shared.endpoint.status_json().await {
            Ok(document) => ("200 OK", "application/json", crate::status::complete(shared, &document)),
            Err(error) => ("503 Service Unavailable", "text/plain", format!("{error}\n")),
        },
        Ok("/health") => ("200 OK", "text/plain", "serving\n".to_owned()),
        Ok(_) => ("404 Not Found", "text/plain", "there are /metrics, /status and /health\n".to_owned()),
        Err(status) => (status, "text/plain", "only GET is answered\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = send(&mut stream, &[head.as_bytes(), body.as_bytes()].concat()).await;
}

/// Receives until the empty line that ends a request's head.
async fn receive_head(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let len = poll_fn(|context| stream.poll_receive(context, &mut buffer)).await?;
        if len == 0 || head.len() + len > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&buffer[..len]);
    }
    Ok(head)
}

/// The path that a GET asks for, without its query; else the status of the refusal.
fn path(head: &[u8]) -> Result<&str, &'static str> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| "400 Bad Request")?;
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("GET"), Some(path), Some(version))
            if version.starts_with("HTTP/1.") && path.starts_with('/') =>
        {
            Ok(path.split('?').next().unwrap_or_default())
        }
        (Some(_), Some(path), Some(version)) if version.starts_with("HTTP/1.") && path.starts_with('/') => {
            Err("405 Method Not Allowed")
        }
        _ => Err("400 Bad Request"),
    }
}

async fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    poll_fn(|context| {
        while sent < bytes.len() {
            match ready!(stream.poll_send(context, &bytes[sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                more => sent += more,
            }
        }
        stream.poll_finish(context)
    })
    .await
}

/// The endpoint's measurements, and the server's own.
fn metrics(shared: &Shared) -> String {
    let mut text = shared.config.metrics.as_ref().map(|page| (page.0)()).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let Figures { connections, accepted, refused, requests, .. } = shared.figures();
    let Figures { transactions, reads, ranges, rows, commits, failures, bytes_in, bytes_out, .. } =
        shared.figures();
    let numbers = [
        ("connections", "gauge", "Connections that are open.", connections),
        ("connections_accepted_total", "counter", "Connections accepted since the start.", accepted),
        ("connections_refused_total", "counter", "Connections refused since the start.", refused),
        ("requests_total", "counter", "Requests of all kinds.", requests),
        ("transactions_total", "counter", "Transactions that asked for a read version.", transactions),
        ("keys_read_total", "counter", "Keys of point reads.", reads),
        ("ranges_read_total", "counter", "Range reads.", ranges),
        ("rows_read_total", "counter", "Rows that range reads gave.", rows),
        ("commits_total", "counter", "Commits asked for.", commits),
        ("failures_total", "counter", "Requests answered with an error at once.", failures),
        ("received_bytes_total", "counter", "Bytes received from clients.", bytes_in),
        ("sent_bytes_total", "counter", "Bytes sent to clients.", bytes_out),
    ];
    for (name, kind, help, number) in numbers {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "# HELP plinth_server_{name} {help}\n# TYPE plinth_server_{name} {kind}\nplinth_server_{name} {number}\n"
        );
    }
    let cpu = shared.env.cpu_time().as_secs_f64();
    let _ = write!(
        text,
        "# HELP plinth_server_cpu_seconds_total Processor time of the process.\n\
         # TYPE plinth_server_cpu_seconds_total counter\nplinth_server_cpu_seconds_total {cpu}\n"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::path;

    #[test]
    fn only_whole_gets_have_a_path() {
        assert_eq!(path(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"), Ok("/metrics"));
        assert_eq!(path(b"POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for bad in [&b"GET /metrics\r\n\r\n"[..], b"", b"\xff\xff HTTP/1.1\r\n", b"GET  HTTP/1.1"] {
            assert_eq!(path(bad), Err("400 Bad Request"));
        }
    }
}
