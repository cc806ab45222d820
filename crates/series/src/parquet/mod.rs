//! Points as files of Parquet: a row for each, in columns that other programs know what to do with.
//!
//! ```text
//!   series: text | time: timestamp in nanoseconds, UTC | value: float | integer: integer | text: of an event
//! ```
//!
//! `value` is there for each point, also for an integer, as far as a float can tell it; `integer`
//! for integers alone, and then it is what counts, so that all comes back as what it was. A file of
//! others needs `series`, `time` of any unit, and `value` of any signed type of number, or `text`.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::Reader;
pub use write::Writer;
