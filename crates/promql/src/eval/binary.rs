//! Operators between two values.
//!
//! Which series meet is found out once, by the labels that count; then the steps of each pair are
//! gone through. What must not be — two series of one side that meet the same one at the same step
//! — is an error, in Prometheus' words.

use super::column::{Cell, Column, SAME_LABELSET, is_absent, merged};
use super::native::operate::{Notes, TooMuch, operate};
use crate::ast::{Binary, BinaryOp, Cardinality, Matching};
use crate::labels::{Labels, NAME};
use crate::source::Value;
use std::collections::HashMap;

impl BinaryOp {
    /// The value, and whether a comparison holds.
    pub(super) fn value(self, a: f64, b: f64) -> (f64, bool) {
        match self {
            Self::Add => (a + b, true),
            Self::Sub => (a - b, true),
            Self::Mul => (a * b, true),
            Self::Div => (a / b, true),
            Self::Mod => (a % b, true),
            Self::Pow => (power(a, b), true),
            Self::Atan2 => (a.atan2(b), true),
            Self::Eql => (a, a == b),
            Self::Neq => (a, a != b),
            Self::Gtr => (a, a > b),
            Self::Lss => (a, a < b),
            Self::Gte => (a, a >= b),
            Self::Lte => (a, a <= b),
            // Of numbers there is nothing to take away.
            Self::TrimAbove | Self::TrimBelow => (a, false),
            Self::And | Self::Or | Self::Unless => (a, true),
        }
    }
}

/// As Go has it: one to any power is one.
fn power(a: f64, b: f64) -> f64 {
    if a == -1.0 && b.is_infinite() { 1.0 } else { a.powf(b) }
}

fn of(is: bool) -> f64 {
    if is { 1.0 } else { 0.0 }
}

/// Two numbers a step.
pub(super) fn scalars(binary: &Binary, left: &[f64], right: &[f64]) -> Vec<f64> {
    let cell = |(a, b): (&f64, &f64)| match binary.op.value(*a, *b) {
        (_, holds) if binary.op.is_comparison() => of(holds),
        (value, _) => value,
    };
    left.iter().zip(right).map(cell).collect()
}

/// Series with a number a step; `swapped` if the number is on the left.
pub(super) fn with_scalar(
    binary: &Binary,
    columns: &mut Vec<Column>,
    numbers: &[f64],
    swapped: bool,
    late: bool,
    notes: &mut Notes<'_>,
) -> Result<(), TooMuch> {
    let (op, drops) = (binary.op, binary.bool || binary.op.drops_metric());
    for column in columns.iter_mut() {
        if !column.histograms.is_empty() || op.is_trim() {
            mixed_with_scalar(binary, column, numbers, swapped, notes)?;
            if drops {
                super::drop_name(column, late);
            }
            continue;
        }
        for (cell, number) in column.cells.iter_mut().zip(numbers) {
            if is_absent(*cell) {
                continue;
            }
            let (a, b) = if swapped { (*number, *cell) } else { (*cell, *number) };
            *cell = match op.value(a, b) {
                (_, holds) if binary.bool => of(holds),
                (_, true) if op.is_comparison() => *cell,
                (_, false) => super::column::ABSENT,
                (value, true) => value,
            };
        }
        if drops {
            super::drop_name(column, late);
        }
    }
    columns.retain(|column| !column.is_empty());
    Ok(())
}

/// The same for a series that has histograms.
fn mixed_with_scalar(
    binary: &Binary,
    column: &mut Column,
    numbers: &[f64],
    swapped: bool,
    notes: &mut Notes<'_>,
) -> Result<(), TooMuch> {
    for (step, number) in numbers.iter().enumerate().take(column.cells.len()) {
        let Some(value) = column.get(step) else { continue };
        let number = Cell::Float(*number);
        let (left, right) = if swapped { (number, value) } else { (value, number) };
        let found = match (combined(binary, left, right, notes), value) {
            (Some(Value::Float(_)), Cell::Float(value))
                if binary.op.is_comparison() && !binary.bool =>
            {
                Some(Value::Float(value))
            }
            (found, _) => found,
        };
        match found {
            Some(found) => {
                if let Value::Histogram(histogram) = &found {
                    notes.made(histogram)?;
                }
                column.put(step, found);
            }
            None => column.clear(step),
        }
    }
    Ok(())
}

/// What comes of two values; nothing where a comparison doesn't hold or there is no value.
fn combined(
    binary: &Binary,
    left: Cell<'_>,
    right: Cell<'_>,
    notes: &mut Notes<'_>,
) -> Option<Value> {
    let (value, holds) = match (left, right) {
        (Cell::Float(left), Cell::Float(right)) if !binary.op.is_trim() => {
            let (value, holds) = binary.op.value(left, right);
            (Value::Float(value), holds)
        }
        (left, right) => {
            let (value, holds) = operate(binary.op, left, right, notes)?;
            (Value::Histogram(value), holds)
        }
    };
    match binary.bool {
        true => Some(Value::Float(of(holds))),
        false => holds.then_some(value),
    }
}

/// The labels by which series meet.
fn signature(labels: &Labels, matching: &Matching) -> Labels {
    let listed = |name: &str| matching.labels.iter().any(|label| label == name);
    match matching.on {
        true => labels.only(listed),
        false => labels.only(|name| name != NAME && !listed(name)),
    }
}

/// Series of both sides that meet: their places.
#[derive(Default)]
struct Group {
    left: Vec<usize>,
    right: Vec<usize>,
}

fn groups(left: &[Column], right: &[Column], matching: &Matching) -> Vec<Group> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = |column: &Column, groups: &mut Vec<Group>| {
        *places.entry(signature(&column.labels, matching)).or_insert_with(|| {
            groups.push(Group::default());
            groups.len() - 1
        })
    };
    for (place, column) in left.iter().enumerate() {
        let group = group_of(column, &mut groups);
        groups[group].left.push(place);
    }
    for (place, column) in right.iter().enumerate() {
        let group = group_of(column, &mut groups);
        groups[group].right.push(place);
    }
    groups
}

/// Whether some of these have a value at each step.
fn presence(columns: &[Column], places: &[usize], steps: usize) -> Vec<bool> {
    let mut present = vec![false; steps];
    for place in places {
        for (present, cell) in present.iter_mut().zip(&columns[*place].cells) {
            *present |= !is_absent(*cell);
        }
    }
    present
}

/// `and`, `or`, `unless`.
pub(super) fn sets(
    binary: &Binary,
    mut left: Vec<Column>,
    mut right: Vec<Column>,
    steps: usize,
) -> Result<Vec<Column>, String> {
    for group in groups(&left, &right, &binary.matching) {
        let is_or = binary.op == BinaryOp::Or;
        let present = match is_or {
            true => presence(&left, &group.left, steps),
            false => presence(&right, &group.right, steps),
        };
        let (changed, places) =
            if is_or { (&mut right, group.right) } else { (&mut left, group.left) };
        for place in places {
            for (step, present) in present.iter().enumerate() {
                if *present != (binary.op == BinaryOp::And) {
                    changed[place].clear(step);
                }
            }
        }
    }
    if binary.op == BinaryOp::Or {
        left.append(&mut right);
    }
    left.retain(|column| !column.is_empty());
    merged(left)
}

/// Why series don't meet.
pub(super) enum Unmet {
    /// More than one of both sides would, or others that must not.
    Wrong(String),
    /// What comes of it would be too much.
    TooMuch,
}

impl From<TooMuch> for Unmet {
    fn from(TooMuch: TooMuch) -> Self {
        Self::TooMuch
    }
}

impl From<String> for Unmet {
    fn from(why: String) -> Self {
        Self::Wrong(why)
    }
}

/// Arithmetic and comparisons between series.
pub(super) fn vectors(
    binary: &Binary,
    (left, right): (Vec<Column>, Vec<Column>),
    steps: usize,
    late: bool,
    notes: Notes<'_>,
) -> Result<Vec<Column>, Unmet> {
    // From here on the right side is the one of which each meets many.
    let swapped = binary.matching.cardinality == Cardinality::OneToMany;
    let (many, one) = if swapped { (right, left) } else { (left, right) };
    let groups = groups(&many, &one, &binary.matching);
    let (out, places) = (Vec::new(), HashMap::new());
    let mut meeting = Meeting { binary, many, one, swapped, steps, out, places, notes };
    let all: Vec<usize> = (0..meeting.many.len()).collect();
    let present = presence(&meeting.many, &all, steps);
    for group in groups {
        meeting.check_one_side(&group, &present)?;
        meeting.group(&group, late)?;
    }
    meeting.out.retain(|column| !column.is_empty());
    Ok(meeting.out)
}

/// Both sides, and what comes of them.
struct Meeting<'a> {
    binary: &'a Binary,
    many: Vec<Column>,
    one: Vec<Column>,
    swapped: bool,
    steps: usize,
    out: Vec<Column>,
    places: HashMap<Labels, usize>,
    notes: Notes<'a>,
}

impl Meeting<'_> {
    fn group(&mut self, group: &Group, late: bool) -> Result<(), Unmet> {
        let is_one_to_one = self.binary.matching.cardinality == Cardinality::OneToOne;
        // Steps at which something met, by what the result is told apart.
        let mut met: HashMap<Labels, Vec<bool>> = HashMap::new();
        let watches = group.left.len() * group.right.len() > 1;
        for left in &group.left {
            for right in &group.right {
                let labels =
                    self.result_labels(&self.many[*left].labels, &self.one[*right].labels, late);
                let key = if is_one_to_one { Labels::default() } else { labels.clone() };
                let mut steps = match watches {
                    true => met.remove(&key).unwrap_or_else(|| vec![false; self.steps]),
                    false => Vec::new(),
                };
                self.pair(*left, *right, labels, &mut steps)?;
                met.insert(key, steps);
            }
        }
        Ok(())
    }

    /// Fails where two series of the side that has one have a value at the same step, whether they
    /// meet any or not; but not where the other side has nothing at all.
    fn check_one_side(&self, group: &Group, present: &[bool]) -> Result<(), String> {
        if group.right.len() < 2 {
            return Ok(());
        }
        let mut owners: Vec<Option<usize>> = vec![None; self.steps];
        for place in &group.right {
            for ((owner, cell), present) in
                owners.iter_mut().zip(&self.one[*place].cells).zip(present)
            {
                if is_absent(*cell) || !present {
                    continue;
                }
                let Some(other) = owner.replace(*place) else { continue };
                let (column, matching) = (&self.one[*place], &self.binary.matching);
                let mut both = [column.labels.to_string(), self.one[other].labels.to_string()];
                both.sort();
                return Err(format!(
                    "found duplicate series for the match group {} on the {} hand-side of the operation: [{}, {}]\
                     ;many-to-many matching not allowed: matching labels must be unique on one side",
                    signature(&column.labels, matching),
                    if self.swapped { "left" } else { "right" },
                    both[0],
                    both[1],
                ));
            }
        }
        Ok(())
    }

    fn result_labels(&self, many: &Labels, one: &Labels, late: bool) -> Labels {
        let (op, matching) = (self.binary.op, &self.binary.matching);
        let drops = op.drops_metric() || (self.binary.bool && !late);
        let mut labels = if drops { many.without_metric() } else { many.clone() };
        if matching.cardinality == Cardinality::OneToOne {
            let listed = |name: &str| matching.labels.iter().any(|label| label == name);
            labels = labels.only(|name| listed(name) == matching.on);
        }
        for label in &matching.include {
            labels = labels.with(label, one.get(label));
        }
        labels
    }

    /// The steps at which both of a pair have a value; `met` is empty if no other pair could be in
    /// the way.
    fn pair(
        &mut self,
        many: usize,
        one: usize,
        labels: Labels,
        met: &mut [bool],
    ) -> Result<(), Unmet> {
        let (op, bool) = (self.binary.op, self.binary.bool);
        let is_one_to_one = self.binary.matching.cardinality == Cardinality::OneToOne;
        let (steps, out) = (self.steps, &mut self.out);
        let place = *self.places.entry(labels.clone()).or_insert_with(|| {
            out.push(Column { drop_name: bool, ..Column::new(labels, steps) });
            out.len() - 1
        });
        let has_histograms = op.is_trim()
            || !self.many[many].histograms.is_empty()
            || !self.one[one].histograms.is_empty();
        for step in 0..steps {
            let (a, b) = (self.many[many].cells[step], self.one[one].cells[step]);
            if is_absent(a) || is_absent(b) {
                continue;
            }
            if let Some(met) = met.get_mut(step)
                && std::mem::replace(met, true)
            {
                return Err(match is_one_to_one {
                    true => {
                        "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                    }
                    false => "multiple matches for labels: grouping labels must ensure unique matches",
                }
                .to_string()
                .into());
            }
            if has_histograms {
                self.meet(many, one, place, step)?;
                continue;
            }
            let cells = &mut self.out[place].cells;
            let (left, right) = if self.swapped { (b, a) } else { (a, b) };
            let value = match op.value(left, right) {
                (_, holds) if bool => of(holds),
                (_, false) => continue,
                (value, true) => value,
            };
            if !is_absent(cells[step]) {
                return Err(SAME_LABELSET.to_string().into());
            }
            cells[step] = value;
        }
        Ok(())
    }

    /// One step of a pair that has histograms.
    fn meet(&mut self, many: usize, one: usize, place: usize, step: usize) -> Result<(), Unmet> {
        let (many, one) = (&self.many[many], &self.one[one]);
        let (left, right) = if self.swapped { (one, many) } else { (many, one) };
        let (Some(left), Some(right)) = (left.get(step), right.get(step)) else { return Ok(()) };
        let Some(value) = combined(self.binary, left, right, &mut self.notes) else {
            return Ok(());
        };
        if !is_absent(self.out[place].cells[step]) {
            return Err(SAME_LABELSET.to_string().into());
        }
        // What is compared stays what it was, and shared.
        if let Value::Histogram(histogram) = &value
            && !self.binary.op.is_comparison()
        {
            self.notes.made(histogram)?;
        }
        self.out[place].put(step, value);
        Ok(())
    }
}
