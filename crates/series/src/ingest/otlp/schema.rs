//! The messages of OpenTelemetry's metrics, as far as they are read: what each field is called in
//! JSON, its number, and what it has.
//!
//! Fields that are not here (start times) are passed over, in either encoding.

/// What a field has.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// In JSON as base64.
    Bytes,
    /// Bytes that are hexadecimal in JSON: those that identify traces.
    Hex,
    Bool,
    /// A number of variable length, negative or not.
    Number,
    /// One that goes through a zigzag.
    Signed,
    /// An integer of 8 bytes, signed or not.
    Eight,
    Double,
    Message(&'static [Field]),
}

/// A field of a message.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) kind: Kind,
    /// Whether it is a list in JSON.
    pub(super) is_list: bool,
}

const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, is_list: false }
}

const fn list(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, is_list: true }
}

use Kind::{Bool, Bytes, Double, Eight, Hex, Message, Number, Signed, Text};

pub(super) static REQUEST: [Field; 1] = [list("resourceMetrics", 1, Message(&RESOURCE_METRICS))];
static RESOURCE_METRICS: [Field; 2] =
    [one("resource", 1, Message(&RESOURCE)), list("scopeMetrics", 2, Message(&SCOPE_METRICS))];
static RESOURCE: [Field; 1] = [list("attributes", 1, Message(&KEY_VALUE))];
static SCOPE_METRICS: [Field; 3] = [
    one("scope", 1, Message(&SCOPE)),
    list("metrics", 2, Message(&METRIC)),
    one("schemaUrl", 3, Text),
];
static SCOPE: [Field; 3] =
    [one("name", 1, Text), one("version", 2, Text), list("attributes", 3, Message(&KEY_VALUE))];
static METRIC: [Field; 8] = [
    one("name", 1, Text),
    one("description", 2, Text),
    one("unit", 3, Text),
    one("gauge", 5, Message(&NUMBERS)),
    one("sum", 7, Message(&NUMBERS)),
    one("histogram", 9, Message(&HISTOGRAM)),
    one("exponentialHistogram", 10, Message(&EXPONENTIAL)),
    one("summary", 11, Message(&SUMMARY)),
];
static NUMBERS: [Field; 3] = [
    list("dataPoints", 1, Message(&NUMBER)),
    one("aggregationTemporality", 2, Number),
    one("isMonotonic", 3, Bool),
];
static NUMBER: [Field; 6] = [
    one("timeUnixNano", 3, Eight),
    one("asDouble", 4, Double),
    list("exemplars", 5, Message(&EXEMPLAR)),
    one("asInt", 6, Eight),
    list("attributes", 7, Message(&KEY_VALUE)),
    one("flags", 8, Number),
];
static HISTOGRAM: [Field; 2] =
    [list("dataPoints", 1, Message(&BUCKETS)), one("aggregationTemporality", 2, Number)];
static BUCKETS: [Field; 8] = [
    one("timeUnixNano", 3, Eight),
    one("count", 4, Eight),
    one("sum", 5, Double),
    list("bucketCounts", 6, Eight),
    list("explicitBounds", 7, Double),
    list("exemplars", 8, Message(&EXEMPLAR)),
    list("attributes", 9, Message(&KEY_VALUE)),
    one("flags", 10, Number),
];
static EXPONENTIAL: [Field; 2] =
    [list("dataPoints", 1, Message(&EXPONENTIALS)), one("aggregationTemporality", 2, Number)];
static EXPONENTIALS: [Field; 11] = [
    list("attributes", 1, Message(&KEY_VALUE)),
    one("timeUnixNano", 3, Eight),
    one("count", 4, Eight),
    one("sum", 5, Double),
    one("scale", 6, Signed),
    one("zeroCount", 7, Eight),
    one("positive", 8, Message(&SIDE)),
    one("negative", 9, Message(&SIDE)),
    one("flags", 10, Number),
    list("exemplars", 11, Message(&EXEMPLAR)),
    one("zeroThreshold", 14, Double),
];
static SIDE: [Field; 2] = [one("offset", 1, Signed), list("bucketCounts", 2, Number)];
static EXEMPLAR: [Field; 6] = [
    one("timeUnixNano", 2, Eight),
    one("asDouble", 3, Double),
    one("spanId", 4, Hex),
    one("traceId", 5, Hex),
    one("asInt", 6, Eight),
    list("filteredAttributes", 7, Message(&KEY_VALUE)),
];
static SUMMARY: [Field; 1] = [list("dataPoints", 1, Message(&QUANTILES))];
static QUANTILES: [Field; 6] = [
    one("timeUnixNano", 3, Eight),
    one("count", 4, Eight),
    one("sum", 5, Double),
    list("quantileValues", 6, Message(&QUANTILE)),
    list("attributes", 7, Message(&KEY_VALUE)),
    one("flags", 8, Number),
];
static QUANTILE: [Field; 2] = [one("quantile", 1, Double), one("value", 2, Double)];
static KEY_VALUE: [Field; 2] = [one("key", 1, Text), one("value", 2, Message(&ANY_VALUE))];
static ANY_VALUE: [Field; 7] = [
    one("stringValue", 1, Text),
    one("boolValue", 2, Bool),
    one("intValue", 3, Number),
    one("doubleValue", 4, Double),
    one("arrayValue", 5, Message(&ARRAY_VALUE)),
    one("kvlistValue", 6, Message(&PAIRS)),
    one("bytesValue", 7, Bytes),
];
static ARRAY_VALUE: [Field; 1] = [list("values", 1, Message(&ANY_VALUE))];
static PAIRS: [Field; 1] = [list("values", 1, Message(&KEY_VALUE))];
