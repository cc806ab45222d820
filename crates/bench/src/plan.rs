//! How a workload is driven.

use std::time::Duration;

/// How to drive a workload.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload's name, for progress.
    pub title: String,
    /// Clients at once.
    pub clients: usize,
    /// Threads they are spread over.
    pub threads: usize,
    /// How long, after the warm-up.
    pub time: Duration,
    /// In how many slices of time operations are counted.
    pub slices: usize,
}
