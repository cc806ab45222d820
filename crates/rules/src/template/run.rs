//! Carrying a template out: over labels and a value, with answers of queries that are there.
//!
//! A query that isn't answered yet ends the run with [`Stop::Query`]; whoever runs it answers that
//! one and runs the template again, which comes to the same place. So nothing here waits. What is
//! written and how much is done are counted.

use super::bounded::{self, Bounded};
use super::context::{Context, Stop};
use super::functions::Function;
use super::parse::{Command, Node, Operand, Pipeline, Tree};
use super::value::{Sample, Value};
use super::{Answers, Data, Outside};
use std::fmt::Write;
use std::sync::Arc;

/// How it goes on behind a node.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// How deep blocks and templates may lie in each other.
const MAX_DEPTH: usize = 100;

/// A template being carried out.
struct Run<'a> {
    tree: &'a Tree,
    depth: usize,
    context: Context<'a>,
    variables: Vec<(String, Value)>,
    out: Bounded,
}

/// The text of a template.
pub(super) fn run(
    tree: &Tree,
    data: &Data,
    outside: &Outside,
    answers: &Answers,
) -> Result<String, Stop> {
    let known = [
        ("", Value::Data),
        ("labels", Value::Map(data.labels.clone())),
        ("externalLabels", Value::Map(outside.labels.clone())),
        ("externalURL", Value::text(outside.url.clone())),
        ("value", Value::Float(data.value)),
    ];
    let variables = known.map(|(name, value)| (name.to_string(), value)).to_vec();
    let context = Context { data, outside, answers, visits: 0 };
    let mut run = Run { tree, depth: 0, context, variables, out: Bounded::default() };
    run.list(&tree.nodes, &Value::Data)?;
    Ok(run.out.into_text())
}

impl Run<'_> {
    fn list(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, Stop> {
        if self.depth >= MAX_DEPTH {
            return Err(Stop::Wrong(format!("exceeded maximum template depth ({MAX_DEPTH})")));
        }
        self.depth += 1;
        let flow = self.nodes(nodes, dot);
        self.depth -= 1;
        flow
    }

    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, Stop> {
        for node in nodes {
            self.context.visit(1)?;
            let flow = match node {
                Node::Text(text) => {
                    self.out.write_str(text).map_err(|_| bounded::too_much())?;
                    Flow::On
                }
                Node::Action(pipeline) => {
                    let value = self.pipeline(pipeline, dot)?;
                    if pipeline.variables.is_empty() {
                        write!(self.out, "{value}").map_err(|_| bounded::too_much())?;
                    }
                    Flow::On
                }
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
                Node::If(pipeline, then, otherwise) => {
                    self.block(pipeline, (then, otherwise), dot, false)?
                }
                Node::With(pipeline, then, otherwise) => {
                    self.block(pipeline, (then, otherwise), dot, true)?
                }
                Node::Range(pipeline, each, otherwise) => {
                    self.range(pipeline, (each, otherwise), dot)?
                }
                Node::Template(name, data) => self.template(name, data.as_ref(), dot)?,
            };
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    /// Another template, over what it is given.
    fn template(&mut self, name: &str, data: Option<&Pipeline>, dot: &Value) -> Result<Flow, Stop> {
        let data = data.map_or(Ok(Value::Nil), |data| self.pipeline(data, dot))?;
        self.context.visit(name.len() / 64)?;
        let tree = self.tree;
        let Some(nodes) = tree.defined.get(name) else {
            return Err(Stop::Wrong(format!("template {name:?} not defined")));
        };
        let own = vec![(String::new(), data.clone())];
        let variables = std::mem::replace(&mut self.variables, own);
        let flow = self.list(nodes, &data);
        self.variables = variables;
        flow
    }

    /// `if`, or `with`, whose value becomes the dot.
    fn block(
        &mut self,
        pipeline: &Pipeline,
        (then, otherwise): (&[Node], &[Node]),
        dot: &Value,
        is_with: bool,
    ) -> Result<Flow, Stop> {
        let known = self.variables.len();
        let value = self.pipeline(pipeline, dot)?;
        let flow = match value.is_true() {
            true => self.list(then, if is_with { &value } else { dot })?,
            false => self.list(otherwise, dot)?,
        };
        self.variables.truncate(known);
        Ok(flow)
    }

    fn range(
        &mut self,
        pipeline: &Pipeline,
        (each, otherwise): (&[Node], &[Node]),
        dot: &Value,
    ) -> Result<Flow, Stop> {
        let known = self.variables.len();
        let value = self.value(pipeline, dot)?;
        let items: Vec<(Value, Value)> = match &value {
            Value::Nil => Vec::new(),
            Value::List(list) => {
                self.context.visit(list.len())?;
                let item = |(place, sample): (usize, &Arc<Sample>)| {
                    (Value::Int(place as i64), Value::Sample(sample.clone()))
                };
                list.iter().enumerate().map(item).collect()
            }
            Value::Map(map) => {
                self.context.visit(map.len())?;
                let item = |(name, value): (&String, &String)| {
                    (Value::text(name.as_str()), Value::text(value.as_str()))
                };
                map.iter().map(item).collect()
            }
            Value::Arguments(values, _) => {
                self.context.visit(values.len())?;
                values.iter().map(|(name, value)| (Value::text(&**name), value.clone())).collect()
            }
            other => return Err(Stop::Wrong(format!("range can't iterate over {}", other.kind()))),
        };
        if items.is_empty() {
            for name in &pipeline.variables {
                self.assign(name, value.clone(), pipeline.declares)?;
            }
            let flow = self.list(otherwise, dot)?;
            self.variables.truncate(known);
            return Ok(flow);
        }
        for (place, item) in items {
            let values = match pipeline.variables.len() {
                2 => vec![place, item.clone()],
                _ => vec![item.clone()],
            };
            for (name, value) in pipeline.variables.iter().zip(values) {
                self.assign(name, value, pipeline.declares)?;
            }
            let flow = self.list(each, &item)?;
            self.variables.truncate(known);
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::On)
    }

    /// What commands come to, which variables get.
    fn pipeline(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, Stop> {
        let value = self.value(pipeline, dot)?;
        for name in &pipeline.variables {
            self.assign(name, value.clone(), pipeline.declares)?;
        }
        Ok(value)
    }

    fn assign(&mut self, name: &str, value: Value, declares: bool) -> Result<(), Stop> {
        match if declares { None } else { self.place(name)? } {
            Some(place) => self.variables[place].1 = value,
            None => self.variables.push((name.to_string(), value)),
        }
        Ok(())
    }

    /// Where the newest variable of this name stands.
    fn place(&mut self, name: &str) -> Result<Option<usize>, Stop> {
        let place = self.variables.iter().rposition(|(known, _)| known == name);
        let passed = self.variables.len() - place.unwrap_or(0);
        self.context.visit(passed / 16)?;
        Ok(place)
    }

    fn value(&mut self, pipeline: &Pipeline, dot: &Value) -> Result<Value, Stop> {
        let mut last: Option<Value> = None;
        for command in &pipeline.commands {
            self.context.visit(1)?;
            last = Some(match command {
                Command::Operand(operand) => self.operand(operand, dot)?,
                Command::Call(function, arguments) => {
                    let mut given = Vec::with_capacity(arguments.len() + 1);
                    for argument in arguments {
                        given.push(self.operand(argument, dot)?);
                        // Go carries out no more of these than it takes.
                        let is_true = given.last().is_some_and(Value::is_true);
                        if (function.name == "and" && !is_true)
                            || (function.name == "or" && is_true)
                        {
                            break;
                        }
                    }
                    if given.len() == arguments.len() {
                        given.extend(last.take());
                    }
                    self.call(function, &given)?
                }
            });
        }
        Ok(last.unwrap_or(Value::Nil))
    }

    fn call(&mut self, function: &Function, given: &[Value]) -> Result<Value, Stop> {
        if function.looks_at_all() {
            for value in given {
                self.context.visit(value.text_len() / 64)?;
            }
        }
        let value = (function.run)(&mut self.context, given).map_err(|stop| match stop {
            Stop::Wrong(why) => Stop::Wrong(format!("error calling {}: {why}", function.name)),
            query => query,
        })?;
        if let Value::Text(text) = &value {
            self.context.visit(text.len() / 64)?;
            bounded::check(text)?;
        }
        Ok(value)
    }

    fn operand(&mut self, operand: &Operand, dot: &Value) -> Result<Value, Stop> {
        self.context.visit(1)?;
        Ok(match operand {
            Operand::Dot => dot.clone(),
            Operand::Nil => Value::Nil,
            Operand::Bool(is_true) => Value::Bool(*is_true),
            Operand::Int(number) => Value::Int(*number),
            Operand::Float(number) => Value::Float(*number),
            Operand::Text(text) => {
                self.context.visit(text.len() / 64)?;
                Value::text(text.as_str())
            }
            Operand::Variable(name) => {
                let place = self.place(name)?;
                place.map_or(Value::Nil, |place| self.variables[place].1.clone())
            }
            Operand::Call(function) => self.call(function, &[])?,
            Operand::Pipeline(pipeline) => self.pipeline(pipeline, dot)?,
            Operand::Field(of, name) => {
                let of = self.operand(of, dot)?;
                self.field(&of, name)?
            }
        })
    }

    fn field(&self, of: &Value, name: &str) -> Result<Value, Stop> {
        match (of, name) {
            (Value::Data, "Labels") => Ok(Value::Map(self.context.data.labels.clone())),
            (Value::Data, "ExternalLabels") => Ok(Value::Map(self.context.outside.labels.clone())),
            (Value::Data, "ExternalURL") => Ok(Value::text(self.context.outside.url.clone())),
            (Value::Data, "Value") => Ok(Value::Float(self.context.data.value)),
            (Value::Map(map), name) => Ok(Value::text(map.get(name).cloned().unwrap_or_default())),
            (Value::Sample(sample), "Labels") => Ok(Value::Map(sample.labels.clone())),
            (Value::Sample(sample), "Value") => Ok(Value::Float(sample.value)),
            (Value::Arguments(values, _), name) => {
                Ok(values.get(name).cloned().unwrap_or(Value::Nil))
            }
            (of, name) => match of.method(name) {
                Some(value) => Ok(value),
                None => {
                    Err(Stop::Wrong(format!("can't evaluate field {name} in type {}", of.kind())))
                }
            },
        }
    }
}
