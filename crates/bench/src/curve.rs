//! Curves: how one quantity depends on another, beside what the seeds say of it. What a report
//! plots.

use crate::unit::Unit;
use serde_json::{Value, json};

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithm, for values that differ by factors.
    Logarithmic,
}

/// One axis of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What is on it.
    pub label: String,
    /// What its values count.
    pub unit: Unit,
    /// How they are spread.
    pub scale: Scale,
}

/// One line of a plot.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What it shows.
    pub name: String,
    /// Its points, in the order of their x.
    pub points: Vec<(f64, f64)>,
}

/// A value that somebody else publishes: a line across the plot, or a point where its x is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    /// Whose, and what.
    pub name: String,
    /// Where, if it is a point.
    pub x: Option<f64>,
    /// The value.
    pub y: f64,
}

/// Measured values of one quantity at some values of another.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// What depends on what.
    pub title: String,
    /// What was chosen.
    pub x: Axis,
    /// What was measured.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// What others publish.
    pub references: Vec<Reference>,
}

impl Axis {
    /// An axis whose values are spread evenly.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Linear }
    }

    /// An axis of logarithms.
    pub fn logarithmic(label: impl Into<String>, unit: Unit) -> Self {
        Self { label: label.into(), unit, scale: Scale::Logarithmic }
    }
}

impl Curve {
    /// A plot with no line yet.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), references: Vec::new() }
    }

    /// With one more line.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.series.push(Series { name: name.into(), points });
        self
    }

    /// With a value that the seeds publish, across the plot.
    #[must_use]
    pub fn beside(mut self, name: impl Into<String>, y: f64) -> Self {
        self.references.push(Reference { name: name.into(), x: None, y });
        self
    }

    /// With a value that the seeds publish for one x.
    #[must_use]
    pub fn beside_at(mut self, name: impl Into<String>, x: f64, y: f64) -> Self {
        self.references.push(Reference { name: name.into(), x: Some(x), y });
        self
    }

    /// For the report.
    pub fn to_json(&self) -> Value {
        let series = |series: &Series| json!({"name": series.name, "points": series.points});
        let reference = |reference: &Reference| json!({"name": reference.name, "x": reference.x, "y": reference.y});
        json!({
            "title": self.title,
            "x": self.x.label,
            "y": self.y.label,
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "published": self.references.iter().map(reference).collect::<Vec<_>>(),
        })
    }
}
