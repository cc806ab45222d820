//! Export to OpenTelemetry: events as log records and spans as traces, to a collector that takes
//! OTLP over HTTP in JSON.
//!
//! It is asked for by OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT`
//! (`http://HOST:PORT`, a collector on this machine or in a network that is trusted: nothing is
//! encrypted), `OTEL_SERVICE_NAME`, and `OTEL_TRACES_SAMPLER_ARG`, the share of traces that is
//! kept. What happened is put into two lists that never wait and never grow beyond a bound; a task
//! sends them once a second. What a collector doesn't take is dropped and counted, and the count is
//! sent as an attribute with the next ones.

use crate::line::Fields;
use plinth_env::sync::{First, race};
use plinth_env::{Env, Signal, Stream, Task};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::ready;
use std::time::Duration;
use tracing::{Level, Metadata, span};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";

/// Records of a kind that wait to be sent, at most.
const WAITING_MOST: usize = 4096;
/// Spans that are open, at most.
const OPEN_MOST: usize = 4096;
/// How often what waits is sent.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where records go, and those that wait.
pub struct Export {
    env: Env,
    place: Place,
    service: String,
    /// The share of traces that is kept, of 2^32.
    kept: u64,
    state: Mutex<State>,
    stop: Signal,
    stopping: AtomicBool,
    sender: Mutex<Option<Task>>,
}

/// A collector.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    host: String,
    port: u16,
    path: String,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Open>,
    last: u64,
    spans: Vec<Value>,
    logs: Vec<Value>,
    dropped: u64,
}

/// A span that goes on.
struct Open {
    handles: usize,
    metadata: &'static Metadata<'static>,
    trace: [u64; 2],
    id: u64,
    parent: Option<u64>,
    began: Duration,
    fields: Fields,
}

impl Export {
    /// What the environment asks for; begins to send it.
    pub fn from_environment(env: &Env) -> Result<Option<Arc<Self>>, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let Some(endpoint) = text(ENDPOINT) else { return Ok(None) };
        let place = Place::parse(&endpoint).ok_or_else(|| {
            format!("{ENDPOINT} is {endpoint:?}; http://HOST:PORT is allowed, and no https")
        })?;
        let ratio = text(RATIO).map_or(Some(1.0), |ratio| ratio.parse::<f64>().ok());
        let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.ok_or_else(|| format!("{RATIO} is a number from 0 to 1"))?;
        let export = Arc::new(Self {
            env: env.clone(),
            place,
            service: text(SERVICE).unwrap_or_else(|| "plinth".to_owned()),
            kept: (ratio * (1_u64 << 32) as f64) as u64,
            state: Mutex::default(),
            stop: Signal::new(),
            stopping: AtomicBool::new(false),
            sender: Mutex::default(),
        });
        let theirs = export.clone();
        let sender = env.spawn("otel", async move { theirs.send_on().await });
        *export.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        Ok(Some(export))
    }

    /// Sends what still waits, and ends.
    pub fn finish(&self) {
        self.stopping.store(true, Ordering::Release);
        self.stop.notify();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(sender) = sender {
            // Whatever became of it, there is nobody left to tell.
            drop(sender.wait());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is kept: spans all, events from `info` on.
    pub fn wants(metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || *metadata.level() <= Level::INFO
    }

    /// An event has happened.
    pub fn event(&self, metadata: &Metadata<'_>, fields: Fields) {
        let record = json!({
            "timeUnixNano": self.env.wall_clock().as_nanos().to_string(),
            "severityNumber": severity(*metadata.level()),
            "severityText": metadata.level().as_str(),
            "body": { "stringValue": fields.message },
            "attributes": attributes(metadata, &fields.named),
        });
        let mut state = self.lock();
        if state.logs.len() < WAITING_MOST { state.logs.push(record) } else { state.dropped += 1 }
    }

    /// A span begins. One without a parent begins a trace, which is kept or not as a whole.
    pub fn begin(&self, span: &span::Attributes<'_>, fields: Fields) -> span::Id {
        let mut state = self.lock();
        state.last += 1;
        let handle = state.last;
        let parent = span.parent().map(|parent| state.open.get(&parent.into_u64()));
        let (trace, parent) = match parent {
            // A part of a trace that is not kept.
            Some(None) => return span::Id::from_u64(handle),
            Some(Some(parent)) => (parent.trace, Some(parent.id)),
            None if self.env.random_u64() >> 32 >= self.kept => return span::Id::from_u64(handle),
            None => ([self.env.random_u64(), self.env.random_u64()], None),
        };
        if state.open.len() >= OPEN_MOST {
            state.dropped += 1;
            return span::Id::from_u64(handle);
        }
        let (id, began) = (self.env.random_u64().max(1), self.env.wall_clock());
        let open = Open { handles: 1, metadata: span.metadata(), trace, id, parent, began, fields };
        state.open.insert(handle, open);
        span::Id::from_u64(handle)
    }

    /// More is known of a span.
    pub fn record(&self, span: &span::Id, record: &span::Record<'_>) {
        if let Some(open) = self.lock().open.get_mut(&span.into_u64()) {
            record.record(&mut open.fields);
        }
    }

    /// There is another handle of a span.
    pub fn share(&self, span: &span::Id) {
        if let Some(open) = self.lock().open.get_mut(&span.into_u64()) {
            open.handles += 1;
        }
    }

    /// A handle of a span is gone; whether it was the last.
    pub fn close(&self, span: &span::Id) -> bool {
        let mut state = self.lock();
        let Some(open) = state.open.get_mut(&span.into_u64()) else { return true };
        open.handles -= 1;
        if open.handles > 0 {
            return false;
        }
        let Some(open) = state.open.remove(&span.into_u64()) else { return true };
        if state.spans.len() < WAITING_MOST {
            state.spans.push(open.ended(self.env.wall_clock()));
        } else {
            state.dropped += 1;
        }
        true
    }

    async fn send_on(&self) {
        loop {
            race(self.stop.wait(), self.env.sleep(PERIOD)).await;
            let is_last = self.stopping.load(Ordering::Acquire);
            self.send_all().await;
            if is_last {
                return;
            }
        }
    }

    async fn send_all(&self) {
        let (spans, logs, dropped) = {
            let mut state = self.lock();
            let (spans, logs) = (std::mem::take(&mut state.spans), std::mem::take(&mut state.logs));
            (spans, logs, std::mem::take(&mut state.dropped))
        };
        let resource = json!({ "attributes": [
            { "key": "service.name", "value": { "stringValue": self.service } },
            { "key": "plinth.dropped", "value": { "intValue": dropped.to_string() } },
        ] });
        let scope = json!({ "name": "plinth" });
        let mut lost = 0;
        if !spans.is_empty() {
            let count = spans.len() as u64;
            let body = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "scope": scope, "spans": spans }] }] });
            lost += if self.send("/v1/traces", &body).await { 0 } else { count };
        }
        if !logs.is_empty() {
            let count = logs.len() as u64;
            let body = json!({ "resourceLogs": [{ "resource": resource, "scopeLogs": [{ "scope": scope, "logRecords": logs }] }] });
            lost += if self.send("/v1/logs", &body).await { 0 } else { count };
        }
        if lost > 0 {
            self.lock().dropped += lost + dropped;
        }
    }

    /// Whether the collector has taken it.
    async fn send(&self, path: &str, body: &Value) -> bool {
        let body = body.to_string();
        let sent = self.place.post(&self.env, path, &body);
        matches!(race(sent, self.env.sleep(PATIENCE)).await, First::Left(true))
    }
}

impl Open {
    fn ended(self, now: Duration) -> Value {
        let [high, low] = self.trace;
        let mut span = json!({
            "traceId": format!("{high:016x}{low:016x}"),
            "spanId": format!("{:016x}", self.id),
            "name": self.metadata.name(),
            "kind": 1,
            "startTimeUnixNano": self.began.as_nanos().to_string(),
            "endTimeUnixNano": now.max(self.began).as_nanos().to_string(),
            "attributes": attributes(self.metadata, &self.fields.named),
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        span
    }
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().ok().filter(|port| *port > 0)?)
            }
            _ => (authority, 4318),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        (!host.is_empty() && is_plain(host) && is_plain(&path)).then(|| Self {
            host: host.to_owned(),
            port,
            path,
        })
    }

    /// Posts a document; whether it was taken.
    async fn post(&self, env: &Env, path: &str, body: &str) -> bool {
        let Ok(addresses) = env.sockets().resolve(&self.host, self.port).await else {
            return false;
        };
        let Some(address) = addresses.first() else { return false };
        let Ok(stream) = env.sockets().connect(*address).await else { return false };
        let head = format!(
            "POST {}{path} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.path,
            self.host,
            self.port,
            body.len()
        );
        exchange(stream, (head + body).as_bytes())
            .await
            .is_some_and(|status| status.starts_with(b"HTTP/1.1 2"))
    }
}

/// Sends a request; gives the beginning of the answer.
async fn exchange(mut stream: Stream, request: &[u8]) -> Option<Vec<u8>> {
    let mut sent = 0;
    poll_fn(|context| {
        while sent < request.len() {
            match ready!(stream.poll_send(context, &request[sent..])) {
                Ok(more @ 1..) => sent += more,
                _ => return None.into(),
            }
        }
        Some(()).into()
    })
    .await?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
    while answer.len() < 10 {
        match poll_fn(|context| stream.poll_receive(context, &mut buffer)).await {
            Ok(more @ 1..) => answer.extend_from_slice(&buffer[..more]),
            _ => return None,
        }
    }
    Some(answer)
}

fn severity(level: Level) -> u32 {
    match level {
        Level::ERROR => 17,
        Level::WARN => 13,
        Level::INFO => 9,
        Level::DEBUG => 5,
        Level::TRACE => 1,
    }
}

fn attributes(metadata: &Metadata<'_>, named: &[(&'static str, Value)]) -> Value {
    let target = json!({ "key": "target", "value": { "stringValue": metadata.target() } });
    let others = named.iter().map(|(name, value)| {
        let value = match value {
            Value::Bool(value) => json!({ "boolValue": value }),
            Value::Number(number) if number.is_f64() => json!({ "doubleValue": number }),
            Value::Number(number) => json!({ "intValue": number.to_string() }),
            Value::String(text) => json!({ "stringValue": text }),
            other => json!({ "stringValue": other.to_string() }),
        };
        json!({ "key": name, "value": value })
    });
    std::iter::once(target).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_are_named_as_opentelemetry_does() {
        let place =
            |text: &str| Place::parse(text).map(|place| (place.host, place.port, place.path));
        let is = |host: &str, port, path: &str| Some((host.to_owned(), port, path.to_owned()));
        assert_eq!(place("http://localhost:4318"), is("localhost", 4318, ""));
        assert_eq!(place("http://otel/"), is("otel", 4318, ""));
        assert_eq!(place("http://[::1]:9/a/b/"), is("::1", 9, "/a/b"));
        assert_eq!(place("http://[::1]"), is("::1", 4318, ""));
        for wrong in [
            "",
            "localhost:4318",
            "https://localhost",
            "http://",
            "http://:1",
            "http://a:0",
            "http://a:x",
            "http://a b",
        ] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }
}
