//! Time series for the console: answered here, or by the server that owns them.

use crate::answers::Answer;
use crate::charts::{failed, here};
use crate::shared::Shared;
use hyper::http::request::Parts;

/// Answers, or has the server answer that owns the series.
pub(super) async fn ask(shared: &Shared, head: &Parts) -> Result<Answer, Answer> {
    let hub = shared.series.hub.as_ref();
    let hub = hub.ok_or_else(|| Answer::missing("this server takes in no time series"))?;
    if hub.is_shared() {
        let (status, text) = hub.ask_owner(head).await.map_err(failed)?;
        return Ok(Answer::passed(status, text));
    }
    let store = hub.slot.now().map(|opened| opened.store.clone()).map_err(failed)?;
    here(&hub.env, &store, head).await
}
