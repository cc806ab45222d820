//! Rules that change labels, as Prometheus' `relabel_configs` have them: of targets before they are
//! scraped, and of series before they are kept. An expression has to be all of a text; a label that
//! comes to nothing is none.

use super::md5;
use plinth_promql::{Pattern, is_plain_label};
use std::collections::BTreeMap;

/// Bytes of a text that a rule makes: far more than a series' labels may have.
const LONGEST: usize = 64 << 10;

/// Labels that are being changed.
pub(super) type Labels = BTreeMap<String, String>;

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) source: Vec<String>,
    pub(super) separator: String,
    pub(super) target: String,
    pub(super) regex: Pattern,
    pub(super) modulus: u64,
    pub(super) replacement: String,
    pub(super) action: Action,
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    HashMod,
    LabelMap,
    LabelDrop,
    LabelKeep,
    Lowercase,
    Uppercase,
}

impl Action {
    /// That of a name, in whichever case.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "replace" => Self::Replace,
            "keep" => Self::Keep,
            "drop" => Self::Drop,
            "keepequal" => Self::KeepEqual,
            "dropequal" => Self::DropEqual,
            "hashmod" => Self::HashMod,
            "labelmap" => Self::LabelMap,
            "labeldrop" => Self::LabelDrop,
            "labelkeep" => Self::LabelKeep,
            "lowercase" => Self::Lowercase,
            "uppercase" => Self::Uppercase,
            _ => return None,
        })
    }

    /// Whether it needs a label to write to, or to compare with.
    pub(super) fn needs_target(self) -> bool {
        matches!(
            self,
            Self::Replace
                | Self::KeepEqual
                | Self::DropEqual
                | Self::HashMod
                | Self::Lowercase
                | Self::Uppercase
        )
    }
}

/// The expression of a rule, which has to be all of a text.
///
/// # Errors
/// What is wrong with it.
pub(super) fn regex(text: &str) -> Result<Pattern, String> {
    plinth_promql::compiled(&format!("^(?s:{text})$"), 1 << 20)
}

/// Carries rules out; whether what has the labels is kept.
///
/// # Errors
/// If a rule makes a text that is longer than any label's.
pub(super) fn relabel(rules: &[Rule], labels: &mut Labels) -> Result<bool, String> {
    for rule in rules {
        if !rule.apply(labels)? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Rule {
    fn apply(&self, labels: &mut Labels) -> Result<bool, String> {
        let of = |label: &String| labels.get(label).map_or("", String::as_str);
        let value = self.source.iter().map(of).collect::<Vec<_>>().join(&self.separator);
        let same = || labels.get(&self.target).map_or("", String::as_str) == value;
        match self.action {
            Action::Keep => return Ok(self.regex.is_match(&value)),
            Action::Drop => return Ok(!self.regex.is_match(&value)),
            Action::KeepEqual => return Ok(same()),
            Action::DropEqual => return Ok(!same()),
            Action::Replace => self.replace(labels, &value)?,
            Action::HashMod => {
                let hash = md5::last_eight(value.as_bytes()) % self.modulus.max(1);
                set(labels, self.target.clone(), hash.to_string());
            }
            Action::Lowercase => {
                set(labels, self.target.clone(), each(&value, char::to_lowercase));
            }
            Action::Uppercase => {
                set(labels, self.target.clone(), each(&value, char::to_uppercase));
            }
            Action::LabelMap => {
                let mapped = labels.iter().filter(|(name, _)| self.regex.is_match(name));
                let mapped = mapped.map(|(name, value)| {
                    (self.regex.replace(name, &*self.replacement).into_owned(), value.clone())
                });
                for (name, value) in mapped.collect::<Vec<_>>() {
                    set(labels, bounded(name)?, value);
                }
            }
            Action::LabelDrop => labels.retain(|name, _| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name, _| self.regex.is_match(name)),
        }
        Ok(true)
    }

    fn replace(&self, labels: &mut Labels, value: &str) -> Result<(), String> {
        let Some(found) = self.regex.captures(value) else { return Ok(()) };
        let expand = |template: &str| {
            let mut text = String::new();
            found.expand(template, &mut text);
            bounded(text)
        };
        let target = expand(&self.target)?;
        if is_plain_label(&target) {
            set(labels, target, expand(&self.replacement)?);
        }
        Ok(())
    }
}

/// A text that a rule has made. One that doubles its own, again and again, would take all memory.
fn bounded(text: String) -> Result<String, String> {
    match text.len() > LONGEST {
        true => Err(format!("a relabelling rule makes a text of more than {LONGEST} bytes")),
        false => Ok(text),
    }
}

/// A text whose characters became others, each one of its own, as Go has it.
fn each<T: Iterator<Item = char>>(text: &str, to: impl Fn(char) -> T) -> String {
    let one = |of: char| {
        let mut others = to(of);
        match (others.next(), others.next()) {
            (Some(other), None) => other,
            _ => of,
        }
    };
    text.chars().map(one).collect()
}

/// Sets a label, or drops it if the value is empty.
fn set(labels: &mut Labels, name: String, value: String) {
    if value.is_empty() {
        labels.remove(&name);
    } else {
        labels.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: Action, source: &[&str], expression: &str, target: &str) -> Rule {
        Rule {
            source: source.iter().map(|label| (*label).to_owned()).collect(),
            separator: ";".to_owned(),
            target: target.to_owned(),
            regex: regex(expression).unwrap(),
            modulus: 8,
            replacement: "$1".to_owned(),
            action,
        }
    }

    /// The labels afterwards, or nothing if they are dropped.
    fn after(rule: Rule, labels: &[(&str, &str)]) -> Option<String> {
        let pairs = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut labels: Labels = pairs.collect();
        let all = relabel(&[rule], &mut labels).unwrap();
        let text: Vec<String> = labels.iter().map(|(name, it)| format!("{name}={it}")).collect();
        all.then(|| text.join(" "))
    }

    #[test]
    fn rules_that_double_a_text_come_to_an_end() {
        let mut double = rule(Action::Replace, &["a"], "(.*)", "a");
        double.replacement = "$1$1".to_owned();
        let mut labels = Labels::from([("a".to_owned(), "x".to_owned())]);
        let why = relabel(&vec![double; 40], &mut labels).unwrap_err();
        assert!(why.contains("65536 bytes"), "{why}");
    }

    #[test]
    fn characters_stay_one_each() {
        let upper = rule(Action::Uppercase, &["a"], "(.*)", "a");
        assert_eq!(after(upper, &[("a", "stra\u{df}e \u{e9}")]).unwrap(), "a=STRA\u{df}E \u{c9}");
    }

    #[test]
    fn each_action_does_what_prometheus_does() {
        use Action::*;
        let ab = [("a", "foo"), ("b", "Bar")];
        for (rule, expected) in [
            (rule(Replace, &["a"], "f(.*)", "c"), Some("a=foo b=Bar c=oo")),
            (rule(Replace, &["a", "b"], "(.*);(.*)", "${2}_x"), Some("Bar_x=foo a=foo b=Bar")),
            (rule(Replace, &["a"], "o+", "c"), Some("a=foo b=Bar")),
            (rule(Replace, &["a"], "foo()", "b"), Some("a=foo")),
            (rule(Replace, &["a"], "(f).*", "1x"), Some("a=foo b=Bar")),
            (rule(Keep, &["a"], "foo|x", ""), Some("a=foo b=Bar")),
            (rule(Keep, &["a"], "fo", ""), None),
            (rule(Drop, &["a"], "foo", ""), None),
            (rule(Drop, &["none"], ".+", ""), Some("a=foo b=Bar")),
            (rule(KeepEqual, &["a"], "(.*)", "b"), None),
            (rule(DropEqual, &["a"], "(.*)", "a"), None),
            (rule(DropEqual, &["a"], "(.*)", "b"), Some("a=foo b=Bar")),
            (rule(LabelMap, &[], "(a)", ""), Some("a=foo b=Bar")),
            (rule(LabelDrop, &[], "a", ""), Some("b=Bar")),
            (rule(LabelKeep, &[], "a", ""), Some("a=foo")),
            (rule(Lowercase, &["b"], "(.*)", "b"), Some("a=foo b=bar")),
            (rule(Uppercase, &["a"], "(.*)", "c"), Some("a=foo b=Bar c=FOO")),
            (rule(HashMod, &["a"], "(.*)", "c"), Some("a=foo b=Bar c=0")),
            (rule(HashMod, &["none"], "(.*)", "c"), Some("a=foo b=Bar c=6")),
        ] {
            assert_eq!(after(rule.clone(), &ab).as_deref(), expected, "{rule:?}");
        }
        let mut map = rule(LabelMap, &[], "__meta_(.+)", "");
        map.replacement = "k_${1}".to_owned();
        let found = after(map, &[("__meta_dc", "x")]);
        assert_eq!(found.as_deref(), Some("__meta_dc=x k_dc=x"));
        assert_eq!(Action::of("LabelMap"), Some(LabelMap));
        assert_eq!(Action::of("hash"), None);
    }
}
