//! What a target answers that is scraped: Prometheus' text format or OpenMetrics, a line at a time.
//!
//! Whoever scrapes knows series by the bytes of their names, and looks at labels of those alone
//! that are new; so a line becomes a name as it stands, a value, and a time if there is one. Times
//! of OpenMetrics are seconds, those of the text format milliseconds. Exemplars are passed over.

use super::exposition::{Comments, labels_of, milliseconds, number, parts};
use super::lines::MAX_LINE_BYTES;
use super::metadata::Metadata;

/// Metrics that are described in one answer, at most.
const DESCRIBED: usize = 10_000;
const SECOND: f64 = 1e9;

/// An answer that is being read.
#[derive(Debug, Default)]
pub struct ScrapedText {
    is_open_metrics: bool,
    is_ended: bool,
    comments: Comments,
    metadata: Vec<Metadata>,
}

/// A sample of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ScrapedSample<'a> {
    /// The name of the series and its labels, as they stand there.
    pub series: &'a [u8],
    /// The value.
    pub value: f64,
    /// When it is of, in nanoseconds since 1970, if that was said.
    pub time: Option<i64>,
}

impl ScrapedText {
    /// An answer of this type, which says whether it is OpenMetrics.
    pub fn of(content_type: &str) -> Self {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        let is_open_metrics = kind.eq_ignore_ascii_case("application/openmetrics-text");
        Self { is_open_metrics, ..Self::default() }
    }

    /// Takes a line, without its end: the sample in it, if it has one.
    ///
    /// # Errors
    /// If it is none of the format.
    pub fn line<'a>(&mut self, line: &'a [u8]) -> Result<Option<ScrapedSample<'a>>, String> {
        let line = line.trim_ascii();
        if self.is_ended && !line.is_empty() {
            return Err("something stands behind # EOF".to_owned());
        }
        if let Some(comment) = line.strip_prefix(b"#") {
            self.is_ended = self.is_open_metrics && comment == b" EOF";
            if let Some((metric, kind, help)) = self.comments.take(comment)
                && !metric.is_empty()
            {
                // Of one metric the last word counts, which knows what was said before.
                let metadata = Metadata::new(metric, kind, help, b"");
                if self.metadata.last().is_some_and(|last| last.metric == metadata.metric) {
                    self.metadata.pop();
                }
                if self.metadata.len() < DESCRIBED {
                    self.metadata.push(metadata);
                }
            }
            return Ok(None);
        }
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(format!("the line has more than {MAX_LINE_BYTES} bytes"));
        }
        let parts = parts(line)?;
        let time = match parts.time {
            b"" => None,
            time if self.is_open_metrics => {
                let seconds = number(time).filter(|seconds| seconds.abs() < 9e9);
                let seconds = seconds.ok_or("the time is no number of seconds")?;
                Some((seconds * 1e3).round() as i64 * (SECOND / 1e3) as i64)
            }
            time => Some(milliseconds(time).ok_or("the time is no number of milliseconds")?),
        };
        Ok(Some(ScrapedSample { series: parts.series, value: parts.value, time }))
    }

    /// Whether it is whole, behind the last line.
    ///
    /// # Errors
    /// If OpenMetrics has no end.
    pub fn end(&self) -> Result<(), String> {
        match self.is_open_metrics && !self.is_ended {
            true => Err("the text does not end with # EOF".to_owned()),
            false => Ok(()),
        }
    }

    /// What was said of metrics.
    pub fn take_metadata(&mut self) -> Vec<Metadata> {
        std::mem::take(&mut self.metadata)
    }
}

/// The labels of a series as it stands in an answer, `__name__` among them. One without a value is
/// none of the series, but whoever adds labels has to know that it was said.
///
/// # Errors
/// If it is no name of a series.
pub fn scraped_labels(series: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "a name is not UTF-8");
    let (metric, labels) = labels_of(series)?;
    let mut all = vec![("__name__".to_owned(), text(metric)?)];
    for (label, value) in labels {
        all.push((text(label)?, text(value)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(kind: &str, text: &str) -> Result<Vec<String>, String> {
        let (mut scraped, mut all) = (ScrapedText::of(kind), Vec::new());
        for line in text.lines() {
            if let Some(ScrapedSample { series, value, time }) = scraped.line(line.as_bytes())? {
                all.push(format!("{} {value} {time:?}", String::from_utf8_lossy(series)));
            }
        }
        scraped.end()?;
        all.extend(
            scraped
                .take_metadata()
                .iter()
                .map(|it| format!("{} {} {}", it.metric, it.kind, it.help)),
        );
        Ok(all)
    }

    #[test]
    fn both_formats_are_read() {
        let text = "# HELP m of m\n# TYPE m counter\n\nm{a=\"b c\"}  1.5 1767225600123\nn NaN";
        let found = samples("text/plain; version=0.0.4", text).unwrap();
        let expected =
            ["m{a=\"b c\"} 1.5 Some(1767225600123000000)", "n NaN None", "m counter of m"];
        assert_eq!(found, expected);
        let text = "# TYPE m counter\nm_total 1 1767225600.123 # {id=\"7\"} 0.5\n# EOF\n";
        let found = samples("application/openmetrics-text; version=1.0.0", text).unwrap();
        assert_eq!(found, ["m_total 1 Some(1767225600123000000)", "m counter "]);
        for (kind, wrong, words) in [
            ("application/openmetrics-text", "m 1\n", "# EOF"),
            ("application/openmetrics-text", "# EOF\nm 1\n", "behind"),
            ("text/plain", "m", "no number"),
            ("text/plain", "m 1 x", "milliseconds"),
            ("text/plain", "<html>", "no number"),
            ("text/plain", &format!("m{{a=\"{}\"}} 1", "x".repeat(MAX_LINE_BYTES)), "the line has"),
        ] {
            assert!(samples(kind, wrong).unwrap_err().contains(words), "{wrong}");
        }
    }

    #[test]
    fn labels_are_what_was_meant() {
        let labels = |series: &str| scraped_labels(series.as_bytes());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let found = labels(r#"m { a="b\"\\\n", empty="" }"#).unwrap();
        assert_eq!(found, [pair("__name__", "m"), pair("a", "b\"\\\n"), pair("empty", "")]);
        assert_eq!(labels(r#"{"m.n", a="b"}"#).unwrap()[0], pair("__name__", "m.n"));
        assert!(labels("m{a=b}").is_err());
    }
}
