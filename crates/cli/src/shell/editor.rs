//! The shell at a terminal: a line editor with history and completion.
//!
//! Completed are commands, the words that some of them take, and keys: those of the database that
//! begin as what was typed. History is kept in the user's home directory, lines that begin with a
//! space excepted.

use super::commands;
use super::session::{Next, Session};
use super::words::{self, quoted};
use crate::failure::Failure;
use crate::patience::within;
use crate::terminal;
use plinth::Database;
use plinth::{RangeOptions, TransactionOption};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

const HISTORY_FILE: &str = ".plinth_history";
const HISTORY_LINES: usize = 10_000;
/// Keys proposed at most.
const KEYS: usize = 40;
/// Longest wait for them: whoever types waits meanwhile.
const KEYS_TIMEOUT: Duration = Duration::from_millis(500);

/// Reads lines from the terminal and runs them, until `exit` or Ctrl-D.
pub fn converse(mut session: Session<impl Write>) -> Result<(), Failure> {
    let failed = |error: ReadlineError| Failure::of("cannot read from the terminal", error);
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .max_history_size(HISTORY_LINES)
        .map_err(failed)?
        .build();
    let mut editor = Editor::<Proposals, FileHistory>::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Proposals { database: session.database.clone() }));
    let history = history_file();
    if let Some(path) = &history {
        // There is none the first time.
        let _ = editor.load_history(path);
    }
    session.interrupts.listen();
    terminal::print(
        "Plinth's shell. help shows what there is; writemode on allows changes; exit leaves.\n",
    )?;
    loop {
        let prompt =
            if session.transaction.is_some() { "plinth (transaction)> " } else { "plinth> " };
        let line = match editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        // A history that can't be kept is no reason to stop.
        let _ = editor.add_history_entry(&line);
        match session.run_line(&line) {
            Ok(Next::GoOn) => {}
            Ok(Next::Exit) => break,
            Err(failure) => plinth_env::tell(format_args!("ERROR: {failure}")),
        }
    }
    if let Some(path) = &history {
        let _ = editor.save_history(path);
    }
    Ok(())
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(|home| PathBuf::from(home).join(HISTORY_FILE))
}

/// What a half-typed word may become.
struct Proposals {
    database: Database,
}

impl Helper for Proposals {}

impl Highlighter for Proposals {}

impl Validator for Proposals {}

impl Hinter for Proposals {
    type Hint = String;
}

impl Completer for Proposals {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, proposals) = propose(&self.database, &line[..position]);
        let pair = |text: String| Pair { display: text.clone(), replacement: text + " " };
        Ok((start, proposals.into_iter().map(pair).collect()))
    }
}

/// Where the word under way begins in this begin of a line, and what it may become.
pub fn propose(database: &Database, typed: &str) -> (usize, Vec<String>) {
    let command = command_start(typed);
    let start = word_start(typed, command);
    let (before, word) = (&typed[command..start], &typed[start..]);
    let earlier =
        words::commands(before).ok().and_then(|mut commands| commands.pop()).unwrap_or_default();
    let Some(name) = earlier.first().map(|name| plinth::printable(name)) else {
        let names = commands::ALL.iter().map(|command| command.name.to_owned());
        return (start, beginning_with(word, names));
    };
    let fixed = |words: &[&str]| beginning_with(word, words.iter().map(|&word| word.to_owned()));
    let proposals = match (name.as_str(), earlier.len()) {
        ("writemode" | "option", 1) => fixed(&["on", "off"]),
        ("option", 2) => {
            let names = TransactionOption::ALL.iter().map(|(_, name, _)| name.to_ascii_uppercase());
            beginning_with(&word.to_ascii_uppercase(), names)
        }
        ("changes", 1) => fixed(&["list", "register", "remove", "tail"]),
        ("changes", 2) if matches!(&earlier[1][..], b"remove" | b"tail") => streams(database, word),
        ("changes", 3..) if earlier[1] == b"tail" => fixed(&["acknowledge", "json", "once"]),
        ("status", 1) => fixed(&["minimal", "details", "json"]),
        ("help", 1) => {
            let names = commands::ALL.iter().map(|command| command.name);
            beginning_with(word, names.chain(["escaping", "options"]).map(str::to_owned))
        }
        ("get" | "set" | "clear", 1)
        | ("getrange" | "getrangekeys" | "clearrange" | "getkey", 1 | 2) => keys(database, word),
        _ => Vec::new(),
    };
    (start, proposals)
}

/// Names of streams of changes. Whoever types waits no longer than for keys.
fn streams(database: &Database, word: &str) -> Vec<String> {
    let env = database.endpoint().env().clone();
    let Some(begin) = spelled(word) else { return Vec::new() };
    match within(&env, KEYS_TIMEOUT, database.list_changes()) {
        Some(Ok(streams)) => {
            let begins = streams.iter().filter(|stream| stream.name.starts_with(&begin));
            begins.map(|stream| quoted(&stream.name)).collect()
        }
        _ => Vec::new(),
    }
}

fn beginning_with(word: &str, all: impl Iterator<Item = String>) -> Vec<String> {
    all.filter(|proposal| proposal.starts_with(word)).collect()
}

/// Where the last command of this begin of a line begins.
fn command_start(typed: &str) -> usize {
    let mut start = 0;
    for (at, character, quoted) in plain(typed) {
        if character == ';' && !quoted {
            start = at + 1;
        }
    }
    start
}

/// Where the word under way begins.
fn word_start(typed: &str, command: usize) -> usize {
    let mut start = command;
    for (at, character, quoted) in plain(typed) {
        if at >= command && character == ' ' && !quoted {
            start = at + 1;
        }
    }
    start
}

/// The characters that are not part of an escape, with their places, and whether they stand in
/// quotes.
fn plain(typed: &str) -> impl Iterator<Item = (usize, char, bool)> {
    let (mut escaped, mut inside) = (false, false);
    typed.char_indices().filter_map(move |(at, character)| {
        if std::mem::take(&mut escaped) {
            return None;
        }
        escaped = character == '\\';
        inside ^= character == '"';
        (!escaped).then_some((at, character, inside))
    })
}

/// The bytes that a word under way spells. One in an open quote is completed as a whole.
fn spelled(word: &str) -> Option<Vec<u8>> {
    let closed =
        if word.matches('"').count() % 2 == 1 { format!("{word}\"") } else { word.to_owned() };
    let mut parsed = words::commands(&closed).ok()?;
    Some(parsed.pop().and_then(|mut words| words.pop()).unwrap_or_default())
}

/// Keys of the database that begin as the word does.
fn keys(database: &Database, word: &str) -> Vec<String> {
    let Some(prefix) = spelled(word) else { return Vec::new() };
    let transaction = database.create_transaction();
    let limited = transaction.set_option(TransactionOption::Timeout(Some(KEYS_TIMEOUT)));
    let rows = limited
        .and_then(|()| transaction.get_range(RangeOptions::prefix(prefix).limit(KEYS)).wait());
    rows.map(|batch| batch.rows.iter().map(|(key, _)| quoted(key)).collect()).unwrap_or_default()
}
