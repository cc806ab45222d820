//! What stands in place of time series in a server that is built without them (feature `series`):
//! it takes in none, and what the rest of the server asks about them is answered here.

use crate::answers::Answer;
use crate::config::{SeriesConfig, ServerConfig};
use crate::door::{Doors, Purpose};
use crate::page::Page;
use hyper::http::request::Parts;
use plinth_client::Endpoint;
use plinth_env::Env;
use plinth_types::Result;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Listeners of series: there are none.
pub(crate) enum Listeners {}

impl Listeners {
    pub(crate) fn reach(&self) -> Reach {
        match *self {}
    }

    pub(crate) fn any_address(&self) -> Option<SocketAddr> {
        match *self {}
    }

    pub(crate) fn record(&self, _: Page, _: SocketAddr) {
        match *self {}
    }

    pub(crate) async fn settled(&self) {
        match *self {}
    }

    pub(crate) fn begin_stop(&self) {
        match *self {}
    }

    pub(crate) async fn stop(&mut self, _: Duration) {
        match *self {}
    }
}

/// What the rest of the server sees of series.
#[derive(Default)]
pub(crate) struct Reach {}

impl Reach {
    pub(crate) fn is_some(&self) -> bool {
        false
    }

    pub(crate) fn addresses(&self) -> SeriesConfig {
        SeriesConfig::default()
    }

    pub(crate) fn status(&self) -> Value {
        Value::Null
    }

    pub(crate) fn unavailable(&self) -> Option<String> {
        None
    }

    pub(crate) fn damage(&self) -> Option<String> {
        None
    }

    pub(crate) fn metrics(&self, _: &mut String) {}

    pub(crate) async fn ask(&self, _: &Parts) -> std::result::Result<Answer, Answer> {
        Err(Answer::missing("this server takes in no time series"))
    }
}

/// Whether a request is about series.
pub(crate) fn owns(_: &str) -> bool {
    false
}

pub(crate) async fn check(_: &Env, _: &ServerConfig) -> Result<()> {
    Ok(())
}

pub(crate) async fn start(
    _: &Arc<dyn Endpoint>,
    _: &ServerConfig,
    _: &Doors,
    _: impl Fn(SocketAddr, Purpose) -> Result<()>,
) -> Result<Option<Listeners>> {
    Ok(None)
}
