//! Exemplars of OpenTelemetry: a value, when it was measured, and in which span of which trace.

use super::super::intake::Intake;
use super::super::protobuf::{Fields, Payload};
use super::attributes::Attributes;
use crate::exemplar::Exemplar;

/// Takes an exemplar for the series that `of` says by its value. One that is none costs its point
/// nothing: it is counted.
pub(super) fn take(intake: &mut Intake, message: &[u8], of: impl FnOnce(f64) -> u32) {
    match read(message) {
        Ok((time, exemplar)) => intake.take_exemplar(of(exemplar.value), time, &exemplar),
        Err(_) => intake.besides.exemplars += 1,
    }
}

fn read(message: &[u8]) -> Result<(i64, Exemplar), String> {
    let (mut exemplar, mut time) = (Exemplar::default(), 0);
    let (mut trace, mut span, mut attributes) = (&b""[..], &b""[..], Attributes::default());
    for field in Fields::of(message) {
        match field? {
            (2, Payload::Eight(nanoseconds)) => time = nanoseconds,
            (3, Payload::Eight(bits)) => exemplar.value = f64::from_bits(bits),
            (4, Payload::Bytes(id)) => span = id,
            (5, Payload::Bytes(id)) => trace = id,
            (6, Payload::Eight(bits)) => exemplar.value = bits as i64 as f64,
            (7, Payload::Bytes(attribute)) => attributes.push(attribute)?,
            _ => {}
        }
    }
    let time = i64::try_from(time).map_err(|_| "the time of an exemplar is beyond 2262")?;
    for (label, id) in [("trace_id", trace), ("span_id", span)] {
        if !id.is_empty() {
            let digits = id.iter().map(|byte| format!("{byte:02x}"));
            exemplar.labels.push((label.to_owned(), digits.collect()));
        }
    }
    let attributes = attributes.texts()?.into_iter();
    exemplar.labels.extend(attributes.map(|(name, text)| (name.to_owned(), text)));
    Ok((time, exemplar))
}
