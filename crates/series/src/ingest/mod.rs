//! Points from the network: what a session's bytes mean, whatever protocol they are in, and how
//! they get into a store.
//!
//! ```text
//!   bytes --feed--> parser: lines -> messages          replies (bytes): what was refused and why, what is durable
//!                     |      names, as they are written -> targets, looked up once a session
//!                     v
//!                   samples: (target, time, value), of whole messages only
//!                     |
//!                   save: new names in one transaction, then append, series by series; a store that is behind is waited for
//! ```
//!
//! Feeding does no I/O and depends on nothing but the bytes, so the pieces in which they arrive
//! make no difference, and it can be fuzzed and simulated. What was refused leaves the session
//! usable: it goes on with the next message.
//!
//! Bounds: a line has at most [`MAX_LINE_BYTES`], a row `names::MAX_METRICS` metrics, a feed ends
//! when some thousand samples wait to be saved, or megabytes of names that nobody has counted, a
//! request is read some hundred kilobytes at a time, replies to what was wrong are counted instead
//! of kept when they are not taken, and what is remembered of names is given back when all sessions
//! together have too much.

mod buckets;
mod csv;
mod exposition;
mod graphite;
mod import;
mod increments;
mod influx;
mod intake;
mod line_parser;
mod lines;
mod metadata;
mod names;
mod number;
mod opentsdb;
pub mod otlp;
mod remote_write;
mod resp;
mod runs;
mod scraped;
mod session;
mod start;
mod starts;
#[cfg(test)]
mod tests;

pub(crate) use csv::HEADING as CSV_HEADING;
pub use import::{ImportLines, ReadLine};
pub use influx::Clock;
pub use lines::MAX_LINE_BYTES;
pub use metadata::Metadata;
pub use opentsdb::PutPoints;
pub use otlp::OtlpMetrics;
pub use remote_write::RemoteWrite;
pub use scraped::{
    ScrapedBody, ScrapedExemplar, ScrapedHistograms, ScrapedSample, ScrapedValue, scraped_labels,
};
pub use session::{Memory, Protocol, Session};

use crate::protobuf;
use crate::value::Value;

/// A point on its way to a series: the place of the series among the session's.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    target: u32,
    time: i64,
    value: Value,
}
