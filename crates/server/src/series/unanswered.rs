//! What those are told whose request isn't carried out, in the form that whoever asks there reads.
//!
//! Grafana and other clients of Prometheus show the error of its JSON, and of anything else nothing
//! but the status; InfluxDB's have another JSON. Akumuli's and OpenTSDB's clients, and whoever
//! sends points in other ways or reads them remotely, get a line of text.

use super::write;
use hyper::StatusCode;
use plinth_series::RemoteRead;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const JSON: &str = "application/json";
/// What those are told whose right has gone meanwhile.
pub(super) const TAKEN_BACK: &str = "permission_denied (6000): the right to this was taken back";

/// How an error is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Prometheus,
    Influx,
    Line,
}

impl Form {
    /// The one of whoever asks there; `sends`: he brings points.
    pub(super) fn of(path: &str, sends: bool) -> Self {
        let is_text = sends || path == RemoteRead::PATH;
        match path {
            path if write::is_influx(path) => Self::Influx,
            path if path.starts_with("/api/v1/") && !is_text => Self::Prometheus,
            _ => Self::Line,
        }
    }

    /// The type of what he is told, and that.
    pub(super) fn refusal(self, status: StatusCode, why: &str) -> (&'static str, String) {
        match self {
            Self::Prometheus => (JSON, prometheus(kind(status), why)),
            Self::Influx => (JSON, write::json(status, why)),
            Self::Line => (TEXT, format!("-{why}\r\n")),
        }
    }
}

/// What Prometheus would call such an error; it has no word for rights, in whose place the status's
/// own name stands.
fn kind(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => "bad_data",
        _ => "unavailable",
    }
}

/// An error in Prometheus' JSON.
pub(super) fn prometheus(kind: &str, why: &str) -> String {
    serde_json::json!({ "status": "error", "errorType": kind, "error": why }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_told_in_its_own_form() {
        let told = |path: &str, sends, status| Form::of(path, sends).refusal(status, "no").1;
        let denied = r#"{"error":"no","errorType":"unauthorized","status":"error"}"#;
        for path in
            ["/api/v1/query", "/api/v1/label/a/values", "/api/v1/metadata", "/api/v1/export"]
        {
            assert_eq!(told(path, false, StatusCode::UNAUTHORIZED), denied, "{path}");
        }
        let delete = told("/api/v1/admin/tsdb/delete_series", false, StatusCode::FORBIDDEN);
        assert!(delete.contains(r#""errorType":"forbidden""#), "{delete}");
        for (path, sends) in [
            ("/api/query", false),
            ("/api/put", true),
            ("/api/v1/write", true),
            ("/api/v1/read", false),
            ("/api/v1/import", true),
            ("/v1/metrics", true),
        ] {
            assert_eq!(told(path, sends, StatusCode::SERVICE_UNAVAILABLE), "-no\r\n", "{path}");
        }
        let influx = told("/api/v2/write", true, StatusCode::UNAUTHORIZED);
        assert!(influx.contains(r#""code":"unauthorized""#), "{influx}");
    }
}
