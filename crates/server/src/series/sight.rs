//! Of which metrics there are series for whoever sends a request: noted in it where it is let in,
//! so that all who answer it know.

use hyper::http::Extensions;
use hyper::http::request::Parts;
use plinth_series::SeriesStore;
use plinth_types::MetricSet;
use std::sync::Arc;

/// Of which metrics there are series for whoever asks; all if it isn't said.
pub(super) fn metrics_of(extensions: &Extensions) -> Option<&Arc<MetricSet>> {
    extensions.get::<Arc<MetricSet>>()
}

/// Whether whoever asks may hear of all metrics. Others are told nothing of what the owner of the
/// series does beside, as by a server that does nothing beside.
pub(super) fn is_of_all(head: &Parts) -> bool {
    metrics_of(&head.extensions).is_none()
}

/// A store as far as there is anything of it for whoever asks.
pub(super) fn seen(store: &SeriesStore, head: &Parts) -> SeriesStore {
    match metrics_of(&head.extensions) {
        Some(metrics) => store.within(metrics.clone()),
        None => store.clone(),
    }
}
