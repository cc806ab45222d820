//! Files of rules: groups and their rules, read and checked as Prometheus does, all of what is
//! wrong told at once.
//!
//! Fields that aren't known are refused, so that a slip of the pen is no rule that never fires.
//! What Prometheus finds out only when an alert fires, a template that asks for a function that
//! isn't there, is told here as well.

use crate::fault::{Fault, Place};
use crate::template::Template;
use crate::yaml::{self, Kind, Node};
use plinth_promql::{Labels, NAME, duration};
use std::collections::BTreeSet;

/// The label that has an alert's name.
pub(crate) const ALERT_NAME: &str = "alertname";
/// Bytes of one file: of what is longer nothing needs to be read.
pub const MAX_FILE_BYTES: usize = yaml::MAX_BYTES;
/// Rules of one file.
const MAX_RULES: usize = 20_000;
/// What an evaluation may be apart from the next: below it, it would do nothing else.
const MIN_INTERVAL: i64 = 1_000_000_000;

/// A group of rules, as its file has it.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// Its name, which no other group of the file has.
    pub name: String,
    /// Nanoseconds from one evaluation to the next; `None` for what is usual.
    pub interval: Option<i64>,
    /// By how many nanoseconds its queries look back.
    pub query_offset: i64,
    /// How many series or alerts each rule may give; 0 for any number.
    pub limit: usize,
    /// Its rules in their order.
    pub rules: Vec<RuleSpec>,
}

/// A rule.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// The metric that it records, or the alert's name.
    pub name: String,
    /// The expression, in one form however it was written.
    pub expr: String,
    /// Labels that it sets, those of its group among them, by name. In an alert they are
    /// templates.
    pub labels: Vec<(String, Template)>,
    /// What it does.
    pub kind: RuleKind,
}

/// The kinds of rules.
#[derive(Clone, Debug)]
pub enum RuleKind {
    /// It records what its expression gives.
    Record,
    /// It alerts while its expression gives something.
    Alert {
        /// Nanoseconds for which it has to, before the alert fires.
        hold: i64,
        /// Nanoseconds for which the alert goes on firing after it gives nothing.
        keep_firing: i64,
        /// Texts for people, by name.
        annotations: Vec<(String, Template)>,
    },
}

impl RuleSpec {
    /// Its labels as they were written.
    pub fn plain_labels(&self) -> Labels {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.text())).collect()
    }
}

/// The groups of a file that is named `file`.
///
/// # Errors
/// All that is wrong with it, in its order.
pub fn parse(file: &str, text: &str) -> Result<Vec<GroupSpec>, Vec<Fault>> {
    let mut reader = Reader { file, group: None, rule: None, faults: Vec::new(), rules: 0 };
    let groups = match yaml::parse(text) {
        Ok(None) => Vec::new(),
        Ok(Some(root)) => reader.root(root),
        Err((place, why)) => {
            reader.wrong(place, why);
            Vec::new()
        }
    };
    if reader.faults.is_empty() { Ok(groups) } else { Err(reader.faults) }
}

/// A file being read: where it is, and what was wrong so far.
struct Reader<'a> {
    file: &'a str,
    group: Option<String>,
    rule: Option<(usize, String)>,
    faults: Vec<Fault>,
    rules: usize,
}

/// A name with a text, and where it is.
type Pair = (Place, String, String);

/// The fields of a rule as they were found.
#[derive(Default)]
struct Found {
    record: Option<(Place, String)>,
    alert: Option<(Place, String)>,
    expr: Option<(Place, String)>,
    hold: Option<(Place, i64)>,
    keep_firing: Option<(Place, i64)>,
    labels: Vec<Pair>,
    annotations: Option<(Place, Vec<Pair>)>,
}

impl Reader<'_> {
    fn wrong(&mut self, place: Place, why: impl Into<String>) {
        self.faults.push(Fault {
            file: self.file.to_string(),
            place,
            group: self.group.clone(),
            rule: self.rule.clone(),
            why: why.into(),
        });
    }

    /// The fields of a mapping; nothing is an empty one.
    fn fields(&mut self, node: Node, what: &str) -> Vec<(Node, Node)> {
        match node.kind {
            Kind::Map(pairs) => pairs,
            Kind::Null => Vec::new(),
            other => {
                let why = format!("{what}: a mapping expected, not {}", other.word());
                self.wrong(node.place, why);
                Vec::new()
            }
        }
    }

    fn items(&mut self, node: Node, what: &str) -> Vec<Node> {
        match node.kind {
            Kind::List(items) => items,
            Kind::Null => Vec::new(),
            other => {
                self.wrong(node.place, format!("{what}: a list expected, not {}", other.word()));
                Vec::new()
            }
        }
    }

    fn text(&mut self, node: Node, what: &str) -> String {
        match node.kind {
            Kind::Text(text) => text,
            Kind::Null => String::new(),
            other => {
                self.wrong(node.place, format!("{what}: a text expected, not {}", other.word()));
                String::new()
            }
        }
    }

    fn duration(&mut self, node: Node, what: &str) -> i64 {
        let (place, is_null) = (node.place, matches!(node.kind, Kind::Null));
        let text = self.text(node, what);
        match duration(&text) {
            Some(duration) => duration,
            None if is_null => 0,
            None => {
                self.wrong(place, format!("{what}: not a valid duration string: {text:?}"));
                0
            }
        }
    }

    fn unknown(&mut self, key: &Node, name: &str, of: &str) {
        self.wrong(key.place, format!("field {name:?} is not known in {of}"));
    }

    fn root(&mut self, node: Node) -> Vec<GroupSpec> {
        let mut groups = Vec::new();
        let mut names = BTreeSet::new();
        for (key, value) in self.fields(node, "a file of rules") {
            match key.name() {
                "groups" => {
                    for group in self.items(value, "groups") {
                        let place = group.place;
                        let group = self.group(group);
                        if !names.insert(group.name.clone()) {
                            let why =
                                format!("groupname: {:?} is repeated in the same file", group.name);
                            self.wrong(place, why);
                        }
                        groups.push(group);
                    }
                }
                other => self.unknown(&key, other, "a file of rules"),
            }
        }
        groups
    }

    fn group(&mut self, node: Node) -> GroupSpec {
        let place = node.place;
        let mut group = GroupSpec {
            name: String::new(),
            interval: None,
            query_offset: 0,
            limit: 0,
            rules: Vec::new(),
        };
        let fields = self.fields(node, "a group");
        // Its name first: what is wrong is told with it.
        if let Some((_, Node { kind: Kind::Text(name), .. })) =
            fields.iter().find(|(key, _)| key.name() == "name")
        {
            self.group = Some(name.clone());
        }
        let (mut labels, mut rules) = (Vec::new(), Vec::new());
        for (key, value) in fields {
            let value_place = value.place;
            match key.name() {
                "name" => group.name = self.text(value, "name"),
                "interval" => {
                    let interval = self.duration(value, "interval");
                    group.interval = Some(interval).filter(|interval| *interval != 0);
                    if (1..MIN_INTERVAL).contains(&interval) {
                        self.wrong(value_place, "interval: a second at least");
                    }
                }
                "query_offset" => group.query_offset = self.duration(value, "query_offset"),
                "limit" => {
                    let text = self.text(value, "limit");
                    match text.parse() {
                        Ok(limit) => group.limit = limit,
                        Err(_) if text.is_empty() => {}
                        Err(_) => self.wrong(value_place, format!("limit: {text:?} is no number")),
                    }
                }
                "labels" => labels = self.named(value, "labels"),
                "rules" => rules = self.items(value, "rules"),
                other => self.unknown(&key, other, "a group"),
            }
        }
        if group.name.is_empty() {
            self.wrong(place, "Groupname must not be empty");
        }
        self.check_names(&labels, "label");
        for (place, rule) in rules.into_iter().enumerate() {
            self.rules += 1;
            if self.rules > MAX_RULES {
                self.wrong(rule.place, format!("more than {MAX_RULES} rules in a file"));
                break;
            }
            group.rules.extend(self.rule(rule, place + 1, &labels));
            self.rule = None;
        }
        self.group = None;
        group
    }

    /// Names with texts.
    fn named(&mut self, node: Node, what: &str) -> Vec<Pair> {
        let pairs = self.fields(node, what);
        let named = pairs.into_iter().map(|(key, value)| {
            let (place, name) = (key.place, key.name().to_string());
            (place, name, self.text(value, what))
        });
        named.collect()
    }

    fn check_names(&mut self, pairs: &[Pair], what: &str) {
        for (place, name, _) in pairs {
            if name.is_empty() || (what == "label" && name == NAME) {
                self.wrong(*place, format!("invalid {what} name: {name}"));
            }
        }
    }

    fn found(&mut self, node: Node) -> Found {
        let mut found = Found::default();
        for (key, value) in self.fields(node, "a rule") {
            let place = value.place;
            match key.name() {
                "record" => found.record = Some((place, self.text(value, "record"))),
                "alert" => found.alert = Some((place, self.text(value, "alert"))),
                "expr" => found.expr = Some((place, self.text(value, "expr"))),
                "for" => found.hold = Some((key.place, self.duration(value, "for"))),
                "keep_firing_for" => {
                    let duration = self.duration(value, "keep_firing_for");
                    found.keep_firing = Some((key.place, duration));
                }
                "labels" => found.labels = self.named(value, "labels"),
                "annotations" => {
                    let named = self.named(value, "annotations");
                    found.annotations = Some((key.place, named));
                }
                other => self.unknown(&key, other, "a rule"),
            }
        }
        found.record = found.record.filter(|(_, name)| !name.is_empty());
        found.alert = found.alert.filter(|(_, name)| !name.is_empty());
        found
    }

    fn rule(&mut self, node: Node, number: usize, of_group: &[Pair]) -> Option<RuleSpec> {
        let place = node.place;
        self.rule = Some((number, named(&node)));
        let mut found = self.found(node);
        let expr = self.expr(found.expr.take(), place);
        self.check_names(&found.labels, "label");
        // A rule's own label counts over one of its group.
        let own: BTreeSet<&String> = found.labels.iter().map(|(_, name, _)| name).collect();
        let inherited = of_group.iter().filter(|(_, name, _)| !own.contains(name)).cloned();
        let mut labels: Vec<_> = inherited.chain(found.labels.iter().cloned()).collect();
        labels.sort_by(|one, other| one.1.cmp(&other.1));
        let (name, kind) = match (found.record.take(), found.alert.take()) {
            (Some(_), Some((place, _))) => {
                self.wrong(place, "only one of 'record' and 'alert' must be set");
                return None;
            }
            (None, None) => {
                self.wrong(place, "one of 'record' or 'alert' must be set");
                return None;
            }
            (Some((place, name)), None) => {
                self.check_record(place, &name, &found);
                (name, RuleKind::Record)
            }
            (None, Some((_, name))) => {
                let annotations = found.annotations.map(|(_, all)| all).unwrap_or_default();
                self.check_names(&annotations, "annotation");
                let annotations = self.templates(annotations, "annotation");
                let hold = found.hold.map_or(0, |(_, hold)| hold);
                let keep_firing = found.keep_firing.map_or(0, |(_, keep)| keep);
                (name, RuleKind::Alert { hold, keep_firing, annotations })
            }
        };
        let labels = match kind {
            RuleKind::Alert { .. } => self.templates(labels, "label"),
            // In what is recorded braces are braces.
            RuleKind::Record => {
                labels.into_iter().map(|(_, name, text)| (name, Template::plain(&text))).collect()
            }
        };
        Some(RuleSpec { name, expr: expr?, labels, kind })
    }

    /// The expression in one form.
    fn expr(&mut self, found: Option<(Place, String)>, rule: Place) -> Option<String> {
        match found {
            Some((place, text)) if !text.is_empty() => match plinth_promql::parse(&text) {
                Ok(node) => Some(node.to_string()),
                Err(error) => {
                    self.wrong(place, format!("could not parse expression: {error}"));
                    None
                }
            },
            other => {
                let place = other.map_or(rule, |(place, _)| place);
                self.wrong(place, "field 'expr' must be set in rule");
                None
            }
        }
    }

    /// Refuses what a rule that records can't have.
    fn check_record(&mut self, place: Place, name: &str, found: &Found) {
        if name.contains(['{', '}']) {
            let why = "braces present in the recording rule name; should it be in expr?";
            self.wrong(place, format!("{why}: {name}"));
        } else if name.contains('|') || name.starts_with('!') {
            self.wrong(place, format!("invalid recording rule name: {name}"));
        }
        let set = |field: &Option<(Place, i64)>| field.filter(|(_, duration)| *duration != 0);
        let annotations = found.annotations.as_ref().filter(|(_, all)| !all.is_empty());
        for (field, place) in [
            ("for", set(&found.hold).map(|(place, _)| place)),
            ("keep_firing_for", set(&found.keep_firing).map(|(place, _)| place)),
            ("annotations", annotations.map(|(place, _)| *place)),
        ] {
            if let Some(place) = place {
                self.wrong(place, format!("invalid field '{field}' in recording rule"));
            }
        }
    }

    fn templates(&mut self, pairs: Vec<Pair>, what: &str) -> Vec<(String, Template)> {
        let mut templates = Vec::new();
        for (place, name, text) in pairs {
            match Template::parse(&text) {
                Ok(template) => templates.push((name, template)),
                Err(why) => self.wrong(place, format!("{what} {name:?}: {why}")),
            }
        }
        templates.sort_by(|one, other| one.0.cmp(&other.0));
        templates
    }
}

/// What a rule is called, as far as it is known.
fn named(node: &Node) -> String {
    let Kind::Map(pairs) = &node.kind else { return String::new() };
    let name = pairs.iter().find(|(key, _)| matches!(key.name(), "record" | "alert"));
    match name {
        Some((_, Node { kind: Kind::Text(name), .. })) => name.clone(),
        _ => String::new(),
    }
}
