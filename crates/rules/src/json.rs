//! Names with texts as objects of JSON.

use plinth_promql::Labels;
use serde_json::{Map, Value as Json};

/// Labels by name.
pub(crate) fn object(labels: &Labels) -> Json {
    let pairs = labels.iter().map(|(name, value)| (name.to_string(), Json::from(value)));
    pairs.collect::<Map<_, _>>().into()
}

/// Texts by name.
pub(crate) fn texts(texts: &[(String, String)]) -> Json {
    let pairs = texts.iter().map(|(name, value)| (name.clone(), Json::from(value.as_str())));
    pairs.collect::<Map<_, _>>().into()
}
