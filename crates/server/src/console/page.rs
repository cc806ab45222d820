//! The page: files of the program, so that it needs nothing from elsewhere and no build step.

use crate::answers::Answer;

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The file at this address, if it is one of the page's.
pub(super) fn file(path: &str) -> Option<Answer> {
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/style.css" => ("text/css; charset=utf-8", include_str!("page/style.css")),
        "/icon.svg" => ("image/svg+xml", include_str!("page/icon.svg")),
        "/main.js" => (SCRIPT, include_str!("page/main.js")),
        "/server.js" => (SCRIPT, include_str!("page/server.js")),
        "/format.js" => (SCRIPT, include_str!("page/format.js")),
        "/chart.js" => (SCRIPT, include_str!("page/chart.js")),
        "/overview.js" => (SCRIPT, include_str!("page/overview.js")),
        "/tuple.js" => (SCRIPT, include_str!("page/tuple.js")),
        "/series.js" => (SCRIPT, include_str!("page/series.js")),
        "/keys.js" => (SCRIPT, include_str!("page/keys.js")),
        "/theme.js" => (SCRIPT, include_str!("page/theme.js")),
        _ => return None,
    };
    Some(Answer::file(kind, text))
}
