//! A document of YAML as a tree that knows where each of its parts stands.
//!
//! The events are `saphyr-parser`'s; here they become nodes, and what makes a small file large is
//! bounded: an alias is a copy of what its anchor names, and all copies count. Scalars stay text:
//! what a field takes says whether it is a number. Merge keys (`<<`) are carried out, since the
//! parser of Prometheus does so.

use crate::fault::Place;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Bytes of a file.
pub const MAX_BYTES: usize = 4 << 20;
/// Nodes of a document, and bytes of their texts, with all copies that aliases make.
const MAX_NODES: usize = 400_000;
const MAX_TEXT: usize = 16 << 20;
/// How deep lists and mappings may be nested: rules need six levels.
const MAX_DEPTH: usize = 24;

/// A part of a document.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
    size: Size,
}

/// What a part is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Nothing: `null`, `~`, or what is left out.
    Null,
    /// A scalar, as it was written.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// Keys and values in their order.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// The text of a key.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Text(text) => text,
            _ => "",
        }
    }
}

impl Kind {
    /// What it is, for people.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// How much a node and all below it are.
#[derive(Clone, Copy, Default, Debug)]
struct Size {
    nodes: usize,
    text: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.text += other.text;
    }
}

/// What is wrong, and where.
pub type Wrong = (Place, String);

/// The document of a text; `None` if there is nothing in it.
///
/// # Errors
/// What is wrong with it, and where.
pub fn parse(text: &str) -> Result<Option<Node>, Wrong> {
    let begin = Place { line: 1, column: 1 };
    if text.len() > MAX_BYTES {
        return Err((begin, format!("the file is larger than {MAX_BYTES} bytes")));
    }
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            (place(*error.marker()), format!("this is no YAML: {}", error.info()))
        })?;
        if !builder.take(event, span)? {
            break;
        }
    }
    Ok(builder.root)
}

fn place(marker: saphyr_parser::Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

/// A list or a mapping that has not ended.
struct Open {
    place: Place,
    anchor: usize,
    is_map: bool,
    nodes: Vec<Node>,
    size: Size,
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    /// What anchors name.
    anchors: BTreeMap<usize, Node>,
    root: Option<Node>,
    documents: usize,
    /// All nodes so far.
    total: Size,
}

impl Builder {
    /// Takes an event in; `false` behind the last.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<bool, Wrong> {
        let at = place(span.start);
        match event {
            Event::StreamEnd => return Ok(false),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((at, "a file has one document: a second one begins here".into()));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let kind = scalar(&text, style, tag, at)?;
                let length = if let Kind::Text(text) = &kind { text.len() } else { 0 };
                let size = Size { nodes: 1, text: length };
                self.add(Node { place: at, kind, size }, anchor, size)?;
            }
            Event::Alias(anchor) => {
                // An anchor that isn't known here is that of something that has not ended.
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err((at, "an alias for what it stands in".into()));
                };
                let node = Node { place: at, ..node.clone() };
                let size = node.size;
                self.add(node, 0, size)?;
            }
            Event::SequenceStart(anchor, tag) => self.begin(at, anchor, tag, false)?,
            Event::MappingStart(anchor, tag) => self.begin(at, anchor, tag, true)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let (anchor, place, size) = (open.anchor, open.place, open.size);
                    let kind =
                        if open.is_map { mapping(open.nodes)? } else { Kind::List(open.nodes) };
                    // What is in it was counted as it came.
                    self.add(Node { place, kind, size }, anchor, Size { nodes: 1, text: 0 })?;
                }
            }
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
        }
        Ok(true)
    }

    fn begin(
        &mut self,
        place: Place,
        anchor: usize,
        tag: Option<Cow<'_, Tag>>,
        is_map: bool,
    ) -> Result<(), Wrong> {
        if let Some(tag) = tag
            && !(tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "map" | "seq"))
        {
            return Err((place, format!("the tag {tag} means nothing here")));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err((place, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        let size = Size { nodes: 1, text: 0 };
        self.open.push(Open { place, anchor, is_map, nodes: Vec::new(), size });
        Ok(())
    }

    /// Puts a node where it belongs; `more` is what it adds to all.
    fn add(&mut self, node: Node, anchor: usize, more: Size) -> Result<(), Wrong> {
        self.total.add(more);
        if self.total.nodes > MAX_NODES || self.total.text > MAX_TEXT {
            let why = format!(
                "more than {MAX_NODES} parts or {MAX_TEXT} bytes of text, copies of aliases included"
            );
            return Err((node.place, why));
        }
        if anchor > 0 {
            // What an anchor keeps is a copy as well.
            self.total.add(node.size);
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => {
                open.size.add(node.size);
                open.nodes.push(node);
            }
            None => self.root = Some(node),
        }
        Ok(())
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<Cow<'_, Tag>>,
    place: Place,
) -> Result<Kind, Wrong> {
    let is_plain = style == ScalarStyle::Plain;
    let is_text = match tag {
        None => false,
        Some(tag) if tag.is_yaml_core_schema() => tag.suffix == "str",
        // `!` alone says that it is what it looks like in quotes.
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => true,
        Some(tag) => return Err((place, format!("the tag {tag} means nothing here"))),
    };
    let is_null = is_plain && !is_text && matches!(text, "" | "~" | "null" | "Null" | "NULL");
    Ok(if is_null { Kind::Null } else { Kind::Text(text.to_string()) })
}

/// A mapping of keys and values that come by turns: no key twice, merged ones behind its own.
fn mapping(nodes: Vec<Node>) -> Result<Kind, Wrong> {
    let mut pairs: BTreeMap<String, usize> = BTreeMap::new();
    let (mut all, mut merged): (Vec<(Node, Node)>, Vec<Node>) = (Vec::new(), Vec::new());
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        let Kind::Text(name) = &key.kind else {
            return Err((key.place, format!("a key is a text, not {}", key.kind.word())));
        };
        if name == "<<" {
            merged.push(value);
            continue;
        }
        if pairs.insert(name.clone(), all.len()).is_some() {
            return Err((key.place, format!("the key {name:?} is there twice")));
        }
        all.push((key, value));
    }
    for value in merged {
        let place = value.place;
        let maps = match value.kind {
            Kind::List(maps) => maps,
            _ => vec![value],
        };
        for map in maps {
            let Kind::Map(more) = map.kind else {
                return Err((place, "what is merged by << is a mapping".into()));
            };
            for (key, value) in more {
                if let Kind::Text(name) = &key.kind
                    && !pairs.contains_key(name)
                {
                    pairs.insert(name.clone(), all.len());
                    all.push((key, value));
                }
            }
        }
    }
    Ok(Kind::Map(all))
}
