//! How a line is run: its commands are cut from each other, found by name, and carried out on the
//! session.

use super::commands::{self, Command};
use super::elsewhere;
use super::session::{Failed, Next, Refusal, Session, restoring};
use super::words::{self, Words};
use plinth::Error;
use std::io::Write;

impl<Out: Write> Session<Out> {
    /// Runs the commands of a line, until one fails or ends the shell.
    pub fn run_line(&mut self, line: &str) -> Result<Next, Failed> {
        let malformed = |uncut: words::Uncut| Failed {
            command: plinth::printable(&uncut.command),
            why: Refusal::Usage(uncut.why.to_string()),
            rolled_back: false,
        };
        for words in words::commands(line).map_err(malformed)? {
            if self.run(&words)? == Next::Exit {
                return Ok(Next::Exit);
            }
        }
        self.out.flush().map_err(|error| Failed {
            command: String::new(),
            why: error.into(),
            rolled_back: false,
        })?;
        Ok(Next::GoOn)
    }

    fn run(&mut self, words: &Words) -> Result<Next, Failed> {
        let name = words.first().map(|name| plinth::printable(name)).unwrap_or_default();
        let result = match commands::find(&name) {
            Some(command) => self.run_interruptible(command, &words[1..]),
            None => {
                Err(Refusal::Usage(match (elsewhere::explain(&name), commands::nearest(&name)) {
                    (Some(why), _) => format!("does nothing here: {why}"),
                    (None, Some(near)) => {
                        format!("there is no such command; did you mean {near}? See help")
                    }
                    (None, None) => "there is no such command; see help".to_owned(),
                }))
            }
        };
        result.map_err(|why| {
            let is_over = matches!(why, Refusal::Database(_) | Refusal::Interrupted(_));
            let rolled_back = is_over && self.transaction.take().is_some();
            Failed { command: name, why, rolled_back }
        })
    }

    fn run_interruptible(
        &mut self,
        command: &Command,
        arguments: &[Vec<u8>],
    ) -> Result<Next, Refusal> {
        let (interrupts, env) = (self.interrupts.clone(), self.database.endpoint().env().clone());
        if let Some(begun) = &self.transaction {
            interrupts.note(&begun.transaction);
        }
        let (result, interrupted) =
            interrupts.during(&env, || self.run_command(command, arguments));
        match result {
            Err(Refusal::Database(error)) if interrupted => Err(Refusal::Interrupted(error)),
            Err(Refusal::Database(error)) if error == Error::database_locked() => {
                let by_hand =
                    "`unlock UID` ends the lock; `lock` tells the UID of one that is held";
                let words = restoring(&self.database).ok().flatten();
                let words = words.unwrap_or_else(|| by_hand.to_owned());
                Err(Refusal::Database(error.with_detail(words)))
            }
            result => result,
        }
    }

    fn run_command(&mut self, command: &Command, arguments: &[Vec<u8>]) -> Result<Next, Refusal> {
        if !command.arguments.contains(&arguments.len()) {
            let count = match arguments.len() {
                1 => "1 argument".to_owned(),
                count => format!("{count} arguments"),
            };
            return Err(Refusal::Usage(format!("does not take {count}; usage: {}", command.usage)));
        }
        commands::execute(self, command.name, arguments)
    }
}
