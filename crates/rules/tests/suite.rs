//! Rules as Prometheus has them: files, alerts over time, what is carried over a pause.

#[path = "alerts.rs"]
mod alerts;
mod common;
#[path = "evaluation.rs"]
mod evaluation;
#[path = "files.rs"]
mod files;
#[path = "pages.rs"]
mod pages;
#[path = "pauses.rs"]
mod pauses;
#[path = "../../promql/tests/script/mod.rs"]
#[expect(dead_code, reason = "it has what the tests of PromQL need besides")]
mod script;
#[path = "shown.rs"]
mod shown;
