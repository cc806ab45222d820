//! What is said over HTTP to people and to the page that they look at: answers, how they are sent,
//! and how questions are written.
//!
//! Nothing here knows what is asked about: the console (`console`) and charts of series
//! (`series/charts.rs`) answer in this form.

mod answer;
mod events;
pub(crate) mod query;

#[cfg(feature = "series")]
pub(crate) use answer::why_refused;
pub(crate) use answer::{Answer, body};
pub(crate) use events::{Count, FEEDS, Feed, IDLE, May, READ, Reply};
pub(crate) use query::Query;
