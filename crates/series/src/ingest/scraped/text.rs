//! Prometheus' text format and OpenMetrics, a line at a time. Times of OpenMetrics are seconds,
//! those of the text format milliseconds; those of exemplars are seconds in either.

use super::super::exposition::{Comments, exemplar_of, milliseconds, parts, seconds};
use super::super::lines::MAX_LINE_BYTES;
use super::super::metadata::Metadata;
use super::{DESCRIBED, ScrapedExemplar, ScrapedSample, ScrapedValue};

/// An answer that is being read.
#[derive(Debug, Default)]
pub(super) struct ScrapedText {
    is_open_metrics: bool,
    is_ended: bool,
    comments: Comments,
    metadata: Vec<Metadata>,
}

impl ScrapedText {
    pub(super) fn new(is_open_metrics: bool) -> Self {
        Self { is_open_metrics, ..Self::default() }
    }

    /// Takes a line, without its end: the sample in it, if it has one.
    ///
    /// # Errors
    /// If it is none of the format.
    pub(super) fn line<'a>(&mut self, line: &'a [u8]) -> Result<Option<ScrapedSample<'a>>, String> {
        let line = line.trim_ascii();
        if self.is_ended && !line.is_empty() {
            return Err("something stands behind # EOF".to_owned());
        }
        if let Some(comment) = line.strip_prefix(b"#") {
            self.is_ended = self.is_open_metrics && comment == b" EOF";
            if let Some((metric, kind, help)) = self.comments.take(comment, self.is_open_metrics)
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
                Some(seconds(time).ok_or("the time is no number of seconds")?)
            }
            time => Some(milliseconds(time).ok_or("the time is no number of milliseconds")?),
        };
        let exemplar = parts.exemplar.and_then(exemplar_of);
        let exemplar = exemplar.map(|(exemplar, time)| ScrapedExemplar { exemplar, time });
        Ok(Some(ScrapedSample {
            series: parts.series,
            value: ScrapedValue::Float(parts.value),
            time,
            exemplars: exemplar.filter(|it| it.exemplar.fits()).into_iter().collect(),
        }))
    }

    /// Whether it is whole, behind the last line.
    ///
    /// # Errors
    /// If OpenMetrics has no end.
    pub(super) fn end(&self) -> Result<(), String> {
        match self.is_open_metrics && !self.is_ended {
            true => Err("the text does not end with # EOF".to_owned()),
            false => Ok(()),
        }
    }

    /// What was said of metrics.
    pub(super) fn take_metadata(&mut self) -> Vec<Metadata> {
        std::mem::take(&mut self.metadata)
    }
}
