//! Rules as Prometheus has them: files, alerts over time, what is carried over a pause.

mod common;
#[path = "evaluation.rs"]
mod evaluation;
#[path = "files.rs"]
mod files;
#[path = "pages.rs"]
mod pages;
#[path = "pauses.rs"]
mod pauses;
#[path = "shown.rs"]
mod shown;
