//! OpenTelemetry's metrics, as its protocol has them over HTTP (OTLP): series that have the names
//! and labels that Prometheus gives them.
//!
//! ```text
//!   request --1--> metrics of a resource --2--> metrics of a scope --2--> metric --> points
//!                     1: Resource                  1: Scope                name, unit, and one of
//!                        job, instance,               otel_scope_name,     gauge 5, sum 7, histogram 9,
//!                        target_info                  otel_scope_version   exponential 10, summary 11
//! ```
//!
//! The message is walked where it lies: a place in each level says how far it was taken, so it is
//! taken in pieces, whatever is in it, and nothing is made that is larger than a name. What stands
//! at the head of a level is looked for first (`head.rs`). In JSON it is turned into the same bytes
//! before (`json.rs`). What is wrong with a point, a metric or a
//! resource costs that alone, and is counted; where the bytes are no message any more, all that
//! follows is refused.
//!
//! Points that say what was added (delta) are added to the newest point of their series: what was
//! counted so far is the series itself, so it is known after a restart, and nowhere else
//! (`increments.rs`).

mod attributes;
mod exemplar;
mod exponential;
mod head;
mod json;
mod metric;
mod names;
mod points;
mod reply;
mod resource;
mod schema;
mod scope;
#[cfg(test)]
mod tests;

pub use json::NoRequest;
pub use reply::{refusal, reply};

use super::Sample;
use super::intake::{Intake, Shown, TURN};
use super::protobuf::{Fields, Payload};
use crate::value::Value;
use head::{Head, Part};
use metric::Metric;
use points::{MAX_POINT_BYTES, Taker};
use resource::Resource;
use scope::Scope;
use std::borrow::Cow;
use std::ops::Range;

/// Work that a field and a sample are, besides their bytes, as so many bytes.
const FIELD: usize = 16;
const SAMPLE: usize = 64;

/// What the key of a `target_info` begins with, which is that of a metric without a name.
const INFO_KEY: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// A request with metrics, and how far it has been taken.
#[derive(Debug)]
pub struct OtlpMetrics<'a> {
    bytes: Cow<'a, [u8]>,
    walk: Walk,
    key: Vec<u8>,
    points: u64,
    rejected: u64,
    told: u64,
    broken: Option<String>,
}

/// Where in a message it is: what is left of each level.
#[derive(Debug, Default)]
struct Walk {
    /// The head that has to be known before the walk goes on.
    head: Option<Head>,
    request: Range<usize>,
    resource: Option<Resource>,
    scopes: Range<usize>,
    scope: Scope,
    metrics: Range<usize>,
    metric: Option<Metric>,
    points: Range<usize>,
}

impl<'a> OtlpMetrics<'a> {
    /// The request of a body in protocol buffers. Whether it is one turns out while it is taken.
    pub fn of(body: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = body.into();
        let walk = Walk { request: 0..bytes.len(), ..Walk::default() };
        let (points, rejected, told) = (0, 0, 0);
        Self { bytes, walk, key: Vec::new(), points, rejected, told, broken: None }
    }

    /// The request of a body in JSON. `charge` is asked for the memory that it takes, so many bytes
    /// more at a time, before that is taken.
    ///
    /// # Errors
    /// Why it is none, or that `charge` says no.
    pub fn of_json(
        body: &[u8],
        charge: &mut dyn FnMut(usize) -> bool,
    ) -> Result<OtlpMetrics<'static>, NoRequest> {
        json::transcoded(body, charge).map(OtlpMetrics::of)
    }

    /// How many bytes it has in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Points that were looked at.
    pub fn points(&self) -> u64 {
        self.points
    }

    /// Those of them that were refused.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// How often it was told among the session's replies why.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Why it is no request, if that turned out.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    fn tell(&mut self, intake: &mut Intake, why: &str) {
        self.told += 1;
        intake.reply(format_args!("{why}\n"));
    }

    /// Goes one step on: how much work that was; `None` if there is no more.
    fn step(&mut self, intake: &mut Intake) -> Result<Option<usize>, String> {
        let walk = &mut self.walk;
        let mut work = FIELD;
        if let Some(head) = &mut walk.head {
            let (fields, is_known) = head.read(&self.bytes)?;
            work += fields * FIELD;
            if is_known {
                self.begin(intake)?;
            }
        } else if let Some(metric) = &walk.metric {
            match next(&self.bytes, &mut walk.points)? {
                Some((1, Payload::Bytes(_), place)) => work += self.take_point(intake, place),
                Some(_) => {}
                None => {
                    let why = metric.refused.clone();
                    walk.metric = None;
                    if let Some(why) = why {
                        self.tell(intake, &why);
                    }
                }
            }
        } else if let Some((number, _, place)) = next(&self.bytes, &mut walk.metrics)? {
            if number == 2 {
                walk.head = Some(Head::of_metric(place));
            }
        } else if let Some((number, _, place)) = next(&self.bytes, &mut walk.scopes)? {
            if number == 2 {
                walk.head = Some(Head::of_scope(place.clone()));
                walk.metrics = place;
            }
        } else if let Some(resource) = walk.resource.take() {
            self.leave(intake, resource);
        } else if let Some((number, _, place)) = next(&self.bytes, &mut walk.request)? {
            if number == 1 {
                walk.head = Some(Head::of_resource(place.clone()));
                walk.scopes = place;
            }
        } else {
            return Ok(None);
        }
        Ok(Some(work))
    }

    /// Begins what has a head that is known now.
    fn begin(&mut self, intake: &mut Intake) -> Result<(), String> {
        let (walk, bytes) = (&mut self.walk, &self.bytes);
        match walk.head.take().map(|head| head.part) {
            Some(Part::Resource(places)) => walk.resource = Some(Resource::of(bytes, &places)?),
            Some(Part::Scope(head)) => {
                walk.scope = Scope::of(bytes, &head)?;
                if let Some(why) = walk.scope.refused.clone() {
                    self.tell(intake, &why);
                }
            }
            Some(Part::Metric(head)) => {
                if let Some((metric, points)) = Metric::of(bytes, head) {
                    walk.points = points;
                    walk.metric = Some(metric);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Takes a point: how much work that was.
    fn take_point(&mut self, intake: &mut Intake, place: Range<usize>) -> usize {
        let walk = &mut self.walk;
        let (Some(metric), Some(resource)) = (&walk.metric, &mut walk.resource) else { return 0 };
        self.points += 1;
        if resource.refused.is_some() || walk.scope.refused.is_some() || metric.refused.is_some() {
            self.rejected += 1;
            return 0;
        }
        let (len, scope) = (place.len(), &walk.scope);
        if len > MAX_POINT_BYTES {
            self.rejected += 1;
            let name = Shown(metric.name.as_bytes());
            let why = format!("a point has more than {MAX_POINT_BYTES} bytes ({name})");
            self.tell(intake, &why);
            return 0;
        }
        let (key, looked_up) = (&mut self.key, 0);
        let mut taker = Taker { intake, metric, resource, scope, key, looked_up };
        let taken = taker.take(&self.bytes[place]);
        let looked_up = taker.looked_up;
        if let Err(why) = taken {
            self.rejected += 1;
            let why = format!("{why} ({})", Shown(metric.name.as_bytes()));
            self.tell(intake, &why);
        }
        // The name of each series is looked up as the whole key.
        len + looked_up * (SAMPLE + self.key.len())
    }

    /// Ends a resource: what is known of it is a point of its own, as new as its newest.
    fn leave(&mut self, intake: &mut Intake, resource: Resource) {
        if let Some(why) = &resource.refused {
            self.tell(intake, why);
        }
        let (Some(tags), Some(time)) = (&resource.info, resource.latest) else { return };
        let row = match intake.names.find(&INFO_KEY, tags) {
            Some(row) => Ok(row),
            None => intake.names.insert(&INFO_KEY, tags, b"target_info", tags),
        };
        match row {
            Ok(row) => {
                let value = Value::Integer(1);
                intake.samples.push(Sample { target: row.first, time, value });
            }
            Err(why) => self.tell(intake, &why.to_string()),
        }
    }
}

/// Takes in a request, until there is something to save, or as much work was done as others can
/// wait for: whether that was the rest of it.
pub(super) fn take(intake: &mut Intake, message: &mut OtlpMetrics<'_>) -> bool {
    let mut work = 0;
    while work < TURN && !intake.is_full() {
        match message.step(intake) {
            Ok(Some(more)) => work += more,
            Ok(None) => return true,
            Err(why) => {
                message.broken = Some(why);
                return true;
            }
        }
    }
    false
}

/// A field, and the place of its bytes if it has some.
type Placed<'a> = (u64, Payload<'a>, Range<usize>);

/// The next field of what is left.
fn next<'a>(bytes: &'a [u8], rest: &mut Range<usize>) -> Result<Option<Placed<'a>>, String> {
    let mut fields = Fields::of(&bytes[rest.clone()]);
    let Some(field) = fields.next() else { return Ok(None) };
    let (number, payload) = field?;
    rest.start = rest.end - fields.rest().len();
    let len = if let Payload::Bytes(bytes) = payload { bytes.len() } else { 0 };
    Ok(Some((number, payload, rest.start - len..rest.start)))
}
