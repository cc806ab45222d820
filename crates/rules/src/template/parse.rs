//! From pieces to a tree: blocks that are closed, variables that are declared, functions that there
//! are, with as many arguments as they take.
//!
//! All that can be told without a value is told here, so that a file of rules is refused at its
//! check and not at three in the morning. Go tells less of it; what it tells is told in its words.

use super::functions::{self, Function};
use super::lexer::{self, Piece, Placed, Token, Wrong};
use std::collections::BTreeMap;

/// How deep blocks and parentheses may be nested.
const MAX_DEPTH: usize = 32;
/// Bytes of a template.
const MAX_BYTES: usize = 64 << 10;

/// A part of a template.
#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    Action(Pipeline),
    /// `if`, then `else`.
    If(Pipeline, Vec<Node>, Vec<Node>),
    With(Pipeline, Vec<Node>, Vec<Node>),
    Range(Pipeline, Vec<Node>, Vec<Node>),
    Break,
    Continue,
    /// Another template, which is there, and what its dot is; nil if nothing is said.
    Template(String, Option<Pipeline>),
}

/// A template with those that it defines.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) defined: BTreeMap<String, Vec<Node>>,
}

/// Commands of which each takes what the one before came to.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// The variables that get the value; whether they are new.
    pub(super) variables: Vec<String>,
    pub(super) declares: bool,
    pub(super) commands: Vec<Command>,
}

/// An operand, or a function with its arguments.
#[derive(Debug)]
pub(super) enum Command {
    Operand(Operand),
    Call(&'static Function, Vec<Operand>),
}

/// What stands for a value.
#[derive(Debug)]
pub(super) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Variable(String),
    /// A function without arguments.
    Call(&'static Function),
    Pipeline(Box<Pipeline>),
    Field(Box<Operand>, String),
}

/// The tree of a template.
pub(super) fn parse(text: &str) -> Result<Tree, Wrong> {
    if text.len() > MAX_BYTES {
        return Err((0, format!("the template is longer than {MAX_BYTES} bytes")));
    }
    let pieces = lexer::pieces(text)?;
    let mut parser = Parser {
        pieces: pieces.into_iter(),
        variables: ["", "labels", "externalLabels", "externalURL", "value"]
            .map(String::from)
            .to_vec(),
        depth: 0,
        loops: 0,
        defined: BTreeMap::new(),
        called: Vec::new(),
    };
    let nodes = match parser.list()? {
        (nodes, None) => nodes,
        (_, Some(End { at, word, .. })) => {
            return Err((at, format!("unexpected {{{{{word}}}}}")));
        }
    };
    let Parser { defined, called, .. } = parser;
    match called.into_iter().find(|(_, name)| !defined.contains_key(name)) {
        Some((at, name)) => Err((at, format!("template {name:?} not defined"))),
        None => Ok(Tree { nodes, defined }),
    }
}

/// What ends a list: `end`, or `else` with what stands behind it.
struct End {
    at: usize,
    word: &'static str,
    rest: Tokens,
}

struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    /// Names that are known here, the newest last.
    variables: Vec<String>,
    depth: usize,
    loops: usize,
    /// Templates that were defined, and those that were asked for, wherever they are defined.
    defined: BTreeMap<String, Vec<Node>>,
    called: Vec<(usize, String)>,
}

impl Parser {
    /// Nodes up to an end, or to the template's.
    fn list(&mut self) -> Result<(Vec<Node>, Option<End>), Wrong> {
        let mut nodes = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (tokens, at) = match piece {
                Piece::Text(text) => {
                    nodes.push(Node::Text(text));
                    continue;
                }
                Piece::Action(tokens, at) => (tokens, at),
            };
            let mut tokens = Tokens { all: tokens, next: 0, action: at };
            let word = match tokens.peek() {
                Some(Token::Word(word)) => word.clone(),
                Some(_) => String::new(),
                None => return Err((at, "missing value for command".into())),
            };
            match word.as_str() {
                "end" | "else" => {
                    tokens.next += 1;
                    let word = if word == "end" { "end" } else { "else" };
                    return Ok((nodes, Some(End { at, word, rest: tokens })));
                }
                "if" | "with" | "range" => {
                    tokens.next += 1;
                    nodes.push(self.block(&word, at, tokens)?);
                }
                "break" | "continue" => {
                    tokens.next += 1;
                    tokens.finish()?;
                    if self.loops == 0 {
                        return Err((at, format!("{{{{{word}}}}} outside {{{{range}}}}")));
                    }
                    nodes.push(if word == "break" { Node::Break } else { Node::Continue });
                }
                "define" => {
                    if self.depth > 0 {
                        return Err((at, "unexpected {{define}}: it stands within nothing".into()));
                    }
                    let name = tokens.name(&word)?;
                    tokens.finish()?;
                    self.define(&word, at, name)?;
                }
                "template" => {
                    let name = tokens.name(&word)?;
                    let dot = match tokens.peek() {
                        Some(_) => Some(self.pipeline(&mut tokens, false)?),
                        None => None,
                    };
                    tokens.finish()?;
                    self.called.push((at, name.clone()));
                    nodes.push(Node::Template(name, dot));
                }
                "block" => {
                    let name = tokens.name(&word)?;
                    let dot = self.pipeline(&mut tokens, false)?;
                    tokens.finish()?;
                    self.define(&word, at, name.clone())?;
                    nodes.push(Node::Template(name, Some(dot)));
                }
                _ => {
                    let pipeline = self.pipeline(&mut tokens, false)?;
                    tokens.finish()?;
                    nodes.push(Node::Action(pipeline));
                }
            }
        }
        Ok((nodes, None))
    }

    fn deeper(&mut self, at: usize) -> Result<(), Wrong> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => Err((at, format!("nested more than {MAX_DEPTH} levels deep"))),
            false => Ok(()),
        }
    }

    /// A template of this name, up to its end. It knows no variables but its own dot.
    fn define(&mut self, word: &str, at: usize, name: String) -> Result<(), Wrong> {
        self.deeper(at)?;
        let variables = std::mem::replace(&mut self.variables, vec![String::new()]);
        let loops = std::mem::take(&mut self.loops);
        let nodes = match self.list()? {
            (nodes, Some(End { word: "end", rest, .. })) => {
                rest.finish()?;
                nodes
            }
            (_, Some(End { at, word, .. })) => {
                return Err((at, format!("unexpected {{{{{word}}}}}")));
            }
            (_, None) => return Err((at, format!("unclosed {{{{{word}}}}}"))),
        };
        (self.variables, self.loops) = (variables, loops);
        self.depth -= 1;
        let is_empty = |nodes: &[Node]| {
            nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
        };
        match self.defined.get(&name) {
            Some(known) if !is_empty(known) && !is_empty(&nodes) => {
                Err((at, format!("multiple definition of template {name:?}")))
            }
            Some(known) if !is_empty(known) => Ok(()),
            _ => {
                self.defined.insert(name, nodes);
                Ok(())
            }
        }
    }

    /// A block, whose word has been read.
    fn block(&mut self, word: &str, at: usize, mut tokens: Tokens) -> Result<Node, Wrong> {
        self.deeper(at)?;
        let known = self.variables.len();
        let is_range = word == "range";
        let pipeline = self.pipeline(&mut tokens, is_range)?;
        tokens.finish()?;
        let declared = self.variables.len();
        self.loops += usize::from(is_range);
        let (then, end) = self.list()?;
        self.loops -= usize::from(is_range);
        let otherwise = match end {
            None => return Err((at, format!("unclosed {{{{{word}}}}}"))),
            Some(End { word: "end", rest, .. }) => {
                rest.finish()?;
                Vec::new()
            }
            Some(End { at, mut rest, .. }) => {
                // What the block declares `else` knows too; what stands in it, it doesn't.
                self.variables.truncate(declared);
                let again = match rest.peek() {
                    None => None,
                    Some(Token::Word(again)) if again == word && !is_range => Some(again.clone()),
                    Some(_) => return Err((at, "unexpected words behind else".into())),
                };
                match again {
                    Some(again) => {
                        rest.next += 1;
                        vec![self.block(&again, at, rest)?]
                    }
                    None => match self.list()? {
                        (nodes, Some(End { word: "end", rest, .. })) => {
                            rest.finish()?;
                            nodes
                        }
                        _ => return Err((at, "expected end; found {{else}} or nothing".into())),
                    },
                }
            }
        };
        self.variables.truncate(known);
        self.depth -= 1;
        Ok(match word {
            "if" => Node::If(pipeline, then, otherwise),
            "with" => Node::With(pipeline, then, otherwise),
            _ => Node::Range(pipeline, then, otherwise),
        })
    }

    /// Variables and what they get, or commands alone.
    fn pipeline(&mut self, tokens: &mut Tokens, is_range: bool) -> Result<Pipeline, Wrong> {
        let (variables, declares) = self.assigned(tokens, is_range)?;
        let mut commands = vec![self.command(tokens, false)?];
        while tokens.skip("|") {
            commands.push(self.command(tokens, true)?);
        }
        if declares {
            self.variables.extend(variables.iter().cloned());
        }
        Ok(Pipeline { variables, declares, commands })
    }

    /// The variables before `:=` or `=`, if there are any.
    fn assigned(
        &mut self,
        tokens: &mut Tokens,
        is_range: bool,
    ) -> Result<(Vec<String>, bool), Wrong> {
        let (count, declares) = match tokens.ahead()[..] {
            [Token::Variable(_), Token::Sign(":="), ..] => (1, true),
            [Token::Variable(_), Token::Sign("="), ..] => (1, false),
            [Token::Variable(_), Token::Sign(","), Token::Variable(_), Token::Sign(sign)]
                if matches!(*sign, ":=" | "=") =>
            {
                (2, *sign == ":=")
            }
            _ => return Ok((Vec::new(), false)),
        };
        if count == 2 && !is_range {
            return Err((tokens.at(), "too many declarations".into()));
        }
        let mut variables = Vec::new();
        for _ in 0..count {
            let at = tokens.at();
            if let Some(Token::Variable(name)) = tokens.take() {
                if !declares && !self.variables.contains(&name) {
                    return Err((at, format!("undefined variable \"${name}\"")));
                }
                variables.push(name);
            }
            tokens.next += 1;
        }
        Ok((variables, declares))
    }

    fn command(&mut self, tokens: &mut Tokens, is_piped: bool) -> Result<Command, Wrong> {
        let at = tokens.at();
        let mut operands = Vec::new();
        while let Some(operand) = self.operand(tokens)? {
            operands.push(operand);
        }
        let mut operands = operands.into_iter();
        let Some(first) = operands.next() else {
            return Err((at, "missing value for command".into()));
        };
        let arguments: Vec<Operand> = operands.collect();
        for argument in &arguments {
            if let Operand::Call(function) = argument
                && let Some(why) = function.wrong_count(0)
            {
                return Err((at, why));
            }
        }
        let given = arguments.len() + usize::from(is_piped);
        match first {
            Operand::Call(function) => {
                if let Some(why) = function.wrong_count(given) {
                    return Err((at, why));
                }
                if let Some(Operand::Text(first)) = arguments.first() {
                    function.check(first).map_err(|why| (at, why))?;
                }
                Ok(Command::Call(function, arguments))
            }
            Operand::Nil => Err((at, "nil is not a command".into())),
            _ if given > 0 => Err((at, "can't give an argument to what is no function".into())),
            operand => Ok(Command::Operand(operand)),
        }
    }

    fn operand(&mut self, tokens: &mut Tokens) -> Result<Option<Operand>, Wrong> {
        if matches!(tokens.peek(), Some(Token::Sign("|" | ")"))) {
            return Ok(None);
        }
        let at = tokens.at();
        let Some(token) = tokens.take() else { return Ok(None) };
        let mut operand = match token {
            Token::Dot => Operand::Dot,
            Token::Int(number) => Operand::Int(number),
            Token::Float(number) => Operand::Float(number),
            Token::Text(text) => Operand::Text(text),
            Token::Field(name) => Operand::Field(Box::new(Operand::Dot), name),
            Token::Variable(name) if self.variables.contains(&name) => Operand::Variable(name),
            Token::Variable(name) => return Err((at, format!("undefined variable \"${name}\""))),
            Token::Word(word) => match (word.as_str(), functions::find(&word)) {
                ("true" | "false", _) => Operand::Bool(word == "true"),
                ("nil", _) => Operand::Nil,
                (_, Some(function)) => Operand::Call(function),
                (_, None) => return Err((at, format!("function {word:?} not defined"))),
            },
            Token::Sign("(") => {
                self.deeper(at)?;
                let pipeline = self.pipeline(tokens, false)?;
                self.depth -= 1;
                if !tokens.skip(")") {
                    return Err((at, "unclosed left paren".into()));
                }
                Operand::Pipeline(Box::new(pipeline))
            }
            Token::Sign(sign) => return Err((at, format!("unexpected {sign:?} in operand"))),
        };
        let mut fields = 0;
        while let Some(field) = tokens.attached_field() {
            fields += 1;
            if fields > MAX_DEPTH {
                return Err((at, format!("more than {MAX_DEPTH} fields of fields")));
            }
            if matches!(
                operand,
                Operand::Nil
                    | Operand::Bool(_)
                    | Operand::Int(_)
                    | Operand::Float(_)
                    | Operand::Text(_)
            ) {
                return Err((at, format!("unexpected .{field} after a constant")));
            }
            if let Operand::Call(function) = &operand
                && let Some(why) = function.wrong_count(0)
            {
                return Err((at, why));
            }
            operand = Operand::Field(Box::new(operand), field);
        }
        Ok(Some(operand))
    }
}

/// The tokens of one action.
struct Tokens {
    all: Vec<Placed>,
    next: usize,
    /// Where the action is in the template.
    action: usize,
}

impl Tokens {
    fn peek(&self) -> Option<&Token> {
        self.all.get(self.next).map(|placed| &placed.token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    /// The name of a template, behind this word, which is next.
    fn name(&mut self, word: &str) -> Result<String, Wrong> {
        self.next += 1;
        let at = self.at();
        match self.take() {
            Some(Token::Text(name)) => Ok(name),
            _ => Err((at, format!("{{{{{word}}}}} wants the name of a template, in quotes"))),
        }
    }

    /// The tokens that come, four of them at most.
    fn ahead(&self) -> Vec<&Token> {
        self.all.iter().skip(self.next).take(4).map(|placed| &placed.token).collect()
    }

    /// Where the next token is.
    fn at(&self) -> usize {
        self.all.get(self.next).map_or(self.action, |placed| placed.at)
    }

    fn skip(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.next += usize::from(found);
        found
    }

    /// A field of what stands right before it.
    fn attached_field(&mut self) -> Option<String> {
        let placed = self.all.get(self.next).filter(|placed| !placed.is_apart)?;
        let Token::Field(name) = &placed.token else { return None };
        self.next += 1;
        Some(name.clone())
    }

    /// Refuses what is left.
    fn finish(&self) -> Result<(), Wrong> {
        match self.peek() {
            None => Ok(()),
            Some(token) => Err((self.at(), format!("unexpected {token:?} in command"))),
        }
    }
}
