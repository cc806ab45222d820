//! Numbers and formats as Go's `fmt` writes them: templates were tried with that.
//!
//! A format has flags, a width and a precision; what doesn't fit its verb is printed with a mark
//! (`%!d(float64=3)`), as Go does, and is no error. Widths and precisions are bounded.

use super::bounded::Bounded;
use super::value::Value;
use crate::digits::{exponential, general, shortest, special};
use plinth_promql::quoted;
use std::fmt::{self, Write};

/// The widest field, and the most digits: those who ask for more get these.
const MAX_WIDTH: usize = 1000;

/// How one verb is written out.
#[derive(Default)]
struct Directive {
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// Writes a text made of a format and values.
///
/// # Errors
/// If it is longer than there is room for.
pub(super) fn sprintf(out: &mut Bounded, format: &str, values: &[Value]) -> fmt::Result {
    let mut values_left = values.iter();
    let mut characters = format.chars().peekable();
    let mut is_extra_checked = true;
    while let Some(character) = characters.next() {
        if character != '%' {
            out.write_char(character)?;
            continue;
        }
        let mut directive = Directive::default();
        while let Some(flag) = characters.next_if(|c| "+-# 0".contains(*c)) {
            match flag {
                '-' => (directive.minus, directive.zero) = (true, false),
                '+' => directive.plus = true,
                '#' => directive.sharp = true,
                ' ' => directive.space = true,
                _ => directive.zero = !directive.minus,
            }
        }
        directive.width = digits(&mut characters);
        if characters.next_if_eq(&'.').is_some() {
            directive.precision = Some(digits(&mut characters).unwrap_or(0));
        }
        match characters.next() {
            None => out.write_str("%!(NOVERB)")?,
            Some('%') => out.write_char('%')?,
            Some(verb @ ('*' | '[')) => {
                // Neither is of use with a format that stands in a rule.
                write!(out, "%!{verb}(BADINDEX)")?;
                is_extra_checked = false;
            }
            Some(verb) => match values_left.next() {
                None => write!(out, "%!{verb}(MISSING)")?,
                Some(value) => {
                    out.write_str(&directive.padded(&directive.written(verb, value)?, value))?;
                }
            },
        }
    }
    if values_left.len() > 0 && is_extra_checked {
        out.write_str("%!(EXTRA ")?;
        for (place, value) in values_left.enumerate() {
            let between = if place > 0 { ", " } else { "" };
            write!(out, "{between}{}={value}", value.kind())?;
        }
        out.write_str(")")?;
    }
    Ok(())
}

/// A value as it is printed, within what a text may have.
fn printed(value: &Value) -> Result<String, fmt::Error> {
    let mut out = Bounded::default();
    write!(out, "{value}")?;
    Ok(out.into_text())
}

fn digits(characters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut number = None;
    while let Some(digit) = characters.next_if(char::is_ascii_digit) {
        let digit = digit.to_digit(10).unwrap_or(0) as usize;
        number = Some((number.unwrap_or(0) * 10 + digit).min(MAX_WIDTH));
    }
    number
}

impl Directive {
    fn written(&self, verb: char, value: &Value) -> Result<String, fmt::Error> {
        let sign = |text: String, is_negative: bool| match (is_negative, self.plus, self.space) {
            (false, true, _) => format!("+{text}"),
            (false, false, true) => format!(" {text}"),
            _ => text,
        };
        Ok(match (verb, value) {
            ('v', Value::Int(number)) | ('d', Value::Int(number)) => {
                sign(number.to_string(), *number < 0)
            }
            ('v', Value::Text(text)) | ('s', Value::Text(text)) => self.cut(text),
            ('q', Value::Text(text)) => quoted(&self.cut(text)),
            ('x', Value::Text(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ('X', Value::Text(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ('t', Value::Bool(is_true)) => is_true.to_string(),
            ('x', Value::Int(number)) => signed_radix(*number, |n| format!("{n:x}")),
            ('X', Value::Int(number)) => signed_radix(*number, |n| format!("{n:X}")),
            ('o', Value::Int(number)) => signed_radix(*number, |n| format!("{n:o}")),
            ('b', Value::Int(number)) => signed_radix(*number, |n| format!("{n:b}")),
            ('c', Value::Int(number)) => {
                let found = u32::try_from(*number).ok().and_then(char::from_u32);
                found.unwrap_or(char::REPLACEMENT_CHARACTER).to_string()
            }
            ('v' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G', Value::Float(number)) => {
                let text = self.float(verb, *number);
                let is_signed = text.starts_with(['-', '+']);
                sign(text, is_signed)
            }
            ('v', value) => printed(value)?,
            ('s', value @ (Value::Map(_) | Value::List(_))) => printed(value)?,
            (verb, Value::Nil) => format!("%!{verb}(<nil>)"),
            (verb, value) => format!("%!{verb}({}={})", value.kind(), printed(value)?),
        })
    }

    fn float(&self, verb: char, number: f64) -> String {
        if let Some(text) = special(number) {
            return text.into();
        }
        let text = match (verb, self.precision) {
            ('f' | 'F', digits) => format!("{number:.*}", digits.unwrap_or(6)),
            ('e' | 'E', digits) => exponential(number, Some(digits.unwrap_or(6))),
            (_, Some(digits)) => general(number, digits),
            (_, None) => shortest(number),
        };
        if matches!(verb, 'E' | 'G') { text.to_uppercase() } else { text }
    }

    fn cut(&self, text: &str) -> String {
        text.chars().take(self.precision.unwrap_or(usize::MAX)).collect()
    }

    /// With blanks or zeros as wide as it has to be.
    fn padded(&self, text: &str, value: &Value) -> String {
        let missing = self.width.unwrap_or(0).saturating_sub(text.chars().count());
        let is_number = matches!(value, Value::Int(_))
            || matches!(value, Value::Float(number) if number.is_finite());
        match (self.minus, self.zero && (is_number || matches!(value, Value::Text(_)))) {
            (true, _) => format!("{text}{}", " ".repeat(missing)),
            (false, true) => {
                let signs =
                    if is_number { usize::from(text.starts_with(['-', '+', ' '])) } else { 0 };
                format!("{}{}{}", &text[..signs], "0".repeat(missing), &text[signs..])
            }
            (false, false) => format!("{}{text}", " ".repeat(missing)),
        }
    }
}

fn signed_radix(number: i64, write: impl Fn(u64) -> String) -> String {
    let text = write(number.unsigned_abs());
    if number < 0 { format!("-{text}") } else { text }
}
