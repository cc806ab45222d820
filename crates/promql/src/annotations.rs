//! What an answer says beside its values: warnings and infos, in Prometheus' words.
//!
//! A message is told once, with the place where it was first met.

use std::collections::BTreeMap;
use std::ops::Range;

/// Messages gathered during an evaluation.
#[derive(Default, Debug)]
pub(crate) struct Annotations {
    warnings: BTreeMap<String, usize>,
    infos: BTreeMap<String, usize>,
}

impl Annotations {
    pub(crate) fn warn(&mut self, text: String, span: &Range<usize>) {
        self.warnings.entry(format!("PromQL warning: {text}")).or_insert(span.start);
    }

    pub(crate) fn inform(&mut self, text: String, span: &Range<usize>) {
        self.infos.entry(format!("PromQL info: {text}")).or_insert(span.start);
    }

    /// Warnings and infos with their places in a text.
    pub(crate) fn told(self, text: &str) -> (Vec<String>, Vec<String>) {
        let tell = |messages: BTreeMap<String, usize>| {
            let tell = |(message, at): (String, usize)| {
                let (line, column) = crate::fault::place(text, at);
                format!("{message} ({line}:{column})")
            };
            messages.into_iter().map(tell).collect()
        };
        (tell(self.warnings), tell(self.infos))
    }
}
