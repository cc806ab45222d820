//! What a server's settings say of its time series: how many there may be, how they are divided,
//! where they lie.

use crate::failure::Failure;
use crate::settings::Settings;
use plinth::series::{MAX_PARTS, SeriesLimits};

/// Parts of the series of a FoundationDB, unless it is said how many.
const PARTS_OF_A_STORE: usize = 8;

/// How many series there may be. Their rows are bounded once the database is open.
pub fn limits(settings: &Settings) -> SeriesLimits {
    let usual = SeriesLimits::default();
    let count = |name, usual| settings.count(name).map_or(usual, |count| count as u64);
    let quarter = || settings.bytes("memory").map(|bytes| bytes / 4);
    let memory = settings.bytes("series-memory").or_else(quarter);
    SeriesLimits {
        series: count("series-limit", usual.series),
        of_metric: count("series-metric-limit", usual.of_metric),
        of_label: settings.count("series-label-limit").map(|count| count as u64),
        of_source: settings.count("series-source-limit").map(|count| count as u64),
        memory: memory.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usual.memory),
        stored: None,
    }
}

/// Into how many parts series are divided that there are none of yet.
pub fn parts(settings: &Settings) -> Result<Option<usize>, Failure> {
    let usual = settings.text("store").map(|_| PARTS_OF_A_STORE);
    let parts = settings.count("series-parts").or(usual);
    match parts.filter(|parts| !parts.is_power_of_two() || *parts > MAX_PARTS) {
        None => Ok(parts),
        Some(parts) => Err(Failure::usage(format!(
            "series-parts {parts}: a power of two expected, at most {MAX_PARTS}"
        ))),
    }
}

/// What the keys of series begin with, if it is said.
pub fn prefix(settings: &Settings) -> Result<Option<Vec<u8>>, Failure> {
    let prefix = settings.text("series-prefix").map(crate::series::prefix_of_series).transpose();
    prefix.map_err(|why| Failure::usage(format!("series-prefix: {why}")))
}
