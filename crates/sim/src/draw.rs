//! What a spec says of a workload, and what a workload asks of it: numbers that the spec fixes or
//! leaves to the seed.
//!
//! A workload names each parameter with its usual range, and so decides what there is to say; a
//! parameter that nobody asked for is a mistake of the spec's.

use plinth_env::simulated::Random;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// A workload with what its spec says of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub parameters: BTreeMap<String, Choice>,
}

impl Entry {
    /// An entry of a spec.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(value: Value) -> Result<Self, String> {
        let Value::Object(mut fields) = value else {
            return Err(format!("{value} is no workload"));
        };
        let name = fields.remove("name").and_then(|name| name.as_str().map(str::to_string));
        let name = name.ok_or("a workload without a name")?;
        let parameters =
            fields.iter().map(|(name, value)| Ok((name.clone(), Choice::read(value)?)));
        Ok(Self { name, parameters: parameters.collect::<Result<_, String>>()? })
    }
}

/// A number that a spec fixes or leaves to the seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Between(Range<u64>),
    OneOf(Vec<u64>),
}

impl Choice {
    pub fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Between(range) => random.in_range(range.clone()),
            Self::OneOf(list) => list[random.index(list.len())],
        }
    }

    pub fn read(value: &Value) -> Result<Self, String> {
        let wrong =
            || format!("{value} is no number, no range like \"2..8\" and no list of numbers");
        if let Some(number) = value.as_u64() {
            return Ok(Self::OneOf(vec![number]));
        }
        if let Some(list) = value.as_array() {
            let list: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
            return list.filter(|list| !list.is_empty()).map(Self::OneOf).ok_or_else(wrong);
        }
        let (from, to) = value.as_str().and_then(|text| text.split_once("..")).ok_or_else(wrong)?;
        match (from.trim().parse(), to.trim().parse()) {
            (Ok(from), Ok(to)) if from < to => Ok(Self::Between(from..to)),
            _ => Err(wrong()),
        }
    }
}

/// What a workload is made from: its spec's parameters, and the seed for the others.
pub struct Draw<'a> {
    random: &'a mut Random,
    left: BTreeMap<String, Choice>,
}

impl<'a> Draw<'a> {
    pub(crate) fn new(random: &'a mut Random, entry: &Entry) -> Self {
        Self { random, left: entry.parameters.clone() }
    }

    /// A number: as the spec says, or else from the usual range.
    pub fn number(&mut self, name: &str, usual: Range<u64>) -> u64 {
        let given = self.left.remove(name);
        given.unwrap_or(Choice::Between(usual)).draw(self.random)
    }

    /// A number: as the spec says, or else one of the usual ones.
    pub fn pick(&mut self, name: &str, usual: &[u64]) -> u64 {
        let given = self.left.remove(name);
        given.unwrap_or_else(|| Choice::OneOf(usual.to_vec())).draw(self.random)
    }

    /// Every parameter must have been asked for.
    pub(crate) fn finish(self, workload: &str) -> Result<(), String> {
        match self.left.into_keys().next() {
            Some(name) => Err(format!("the workload {workload} has no parameter {name:?}")),
            None => Ok(()),
        }
    }
}
