//! The file with settings: TOML, one key a setting, no tables.

use super::{ALL, Kind, Setting, meant};
use crate::failure::Failure;
use plinth_env::{Env, block_on};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The values in a file.
pub(super) fn read(env: &Env, path: &str) -> Result<BTreeMap<&'static str, Vec<String>>, Failure> {
    let bytes = block_on(env.files().read(path))
        .map_err(|error| Failure::of(format!("cannot read {path}"), error))?;
    parse(path, &String::from_utf8_lossy(&bytes))
}

/// The values in the text of a file that errors call by `path`.
pub(super) fn parse(
    path: &str,
    text: &str,
) -> Result<BTreeMap<&'static str, Vec<String>>, Failure> {
    let table: Map<String, Value> =
        basic_toml::from_str(text).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    let mut values = BTreeMap::new();
    for (key, value) in &table {
        let wrong =
            |why: &str| Failure::usage(format!("{path}:{}: {key}: {why}", line_of(text, key)));
        let Some(setting) = ALL.iter().find(|setting| setting.name == key) else {
            let names: Vec<_> = ALL.iter().map(|setting| setting.name).collect();
            let meant = meant(key).map(|name| format!(" (did you mean {name}?)"));
            return Err(wrong(&format!(
                "there is no such setting{}; there are {}",
                meant.unwrap_or_default(),
                names.join(", ")
            )));
        };
        let refuse = |_| wrong(&format!("{}, and not {value}", setting.kind.allowed()));
        let texts = texts(setting, value).ok_or(()).map_err(refuse)?;
        for text in &texts {
            setting.kind.check(text).map_err(|_| refuse(()))?;
        }
        values.insert(setting.name, texts);
    }
    Ok(values)
}

/// A value as the command line would have it.
fn texts(setting: &Setting, value: &Value) -> Option<Vec<String>> {
    match (setting.kind, value) {
        (Kind::Flag, Value::Bool(flag)) => Some(vec![flag.to_string()]),
        (Kind::Count | Kind::Bytes, Value::Number(number)) => Some(vec![number.to_string()]),
        (Kind::Addresses | Kind::Paths | Kind::Texts, Value::Array(list)) => {
            list.iter().map(|value| value.as_str().map(ToOwned::to_owned)).collect()
        }
        (Kind::Flag | Kind::Count, _) => None,
        (_, Value::String(text)) => Some(vec![text.clone()]),
        _ => None,
    }
}

/// The line that a key stands in.
fn line_of(text: &str, key: &str) -> usize {
    let names_it = |line: &str| {
        let line = line.trim_start().trim_start_matches('[').trim_start_matches('"');
        let rest = line.strip_prefix(key).map(|rest| rest.trim_start_matches('"').trim_start());
        rest.is_some_and(|rest| rest.starts_with(['=', '.', ']']))
    };
    text.lines().position(names_it).map_or(1, |index| index + 1)
}
