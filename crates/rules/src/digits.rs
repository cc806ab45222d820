//! Floats as texts and back, as Go has them.

/// A float as `%v` has it: the digits that it takes, with an exponent where that is long.
pub(crate) fn shortest(number: f64) -> String {
    if let Some(text) = special(number) {
        return text.into();
    }
    let text = format!("{number:e}");
    let (_, exponent) = parts(&text);
    if (-4..6).contains(&exponent) { number.to_string() } else { signed(&text) }
}

/// What a number is called that is none.
pub(crate) fn special(number: f64) -> Option<&'static str> {
    match number {
        number if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    }
}

fn parts(text: &str) -> (&str, i32) {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (digits, exponent.parse().unwrap_or(0))
}

/// A number with an exponent as Rust writes it, its exponent with a sign and two digits at least.
fn signed(text: &str) -> String {
    let (digits, exponent) = parts(text);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// As `%e` has it, with so many digits behind the point; with those that it takes if none are said.
pub(crate) fn exponential(number: f64, digits: Option<usize>) -> String {
    match (special(number), digits) {
        (Some(text), _) => text.into(),
        (None, Some(digits)) => signed(&format!("{number:.digits$e}")),
        (None, None) => signed(&format!("{number:e}")),
    }
}

/// As `%.4g` has it: so many digits in all, zeros at the end left out.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if let Some(text) = special(number) {
        return text.into();
    }
    let digits = digits.max(1);
    let text = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = parts(&text);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        return signed(&format!("{}e{exponent}", without_zeros(mantissa)));
    }
    let behind = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{number:.behind$}"))
}

/// A float as Go reads it.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    match text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str() {
        "inf" | "infinity" | "nan" => text.parse().ok(),
        _ => text.replace('_', " ").parse().ok(),
    }
}
