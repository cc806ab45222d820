//! Tests of a server with sockets of the system in one program, but those that look at the whole
//! process or at its speed, and those that come back to a port that another test may have taken
//! meanwhile.
//!
//! A program for each file would instantiate the crates below anew, which is most of what building
//! them costs.
#![expect(
    clippy::duplicate_mod,
    reason = "each file has a support of its own, as where it is part of another suite"
)]

#[path = "console.rs"]
mod console;
#[path = "hostile.rs"]
mod hostile;
#[path = "http.rs"]
mod http;
#[path = "requests.rs"]
mod requests;
#[path = "series.rs"]
mod series;
#[path = "series_bad_luck.rs"]
mod series_bad_luck;
#[path = "series_http.rs"]
mod series_http;
#[path = "series_import.rs"]
mod series_import;
#[path = "series_lines.rs"]
mod series_lines;
#[path = "series_opentsdb.rs"]
mod series_opentsdb;
#[path = "series_otlp.rs"]
mod series_otlp;
#[path = "series_remote_write.rs"]
mod series_remote_write;
#[path = "series_scrape.rs"]
mod series_scrape;
#[path = "series_unavailable.rs"]
mod series_unavailable;
#[path = "threads.rs"]
mod threads;
#[path = "tls.rs"]
mod tls;
#[path = "usual.rs"]
mod usual;
