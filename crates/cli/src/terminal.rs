//! Who reads what we print: a person at a terminal, who gets colours and bars, or a program or a
//! file.

use crate::failure::Failure;
use plinth_bench::{Progress, Style};
use std::io::{IsTerminal, Write};

/// Colours for standard output, or none.
#[derive(Clone, Copy)]
pub struct Terminal {
    colours: bool,
}

impl Terminal {
    /// Standard output as it is: colours on a terminal, unless `NO_COLOR` is set or the terminal
    /// has none.
    pub fn stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { colours: std::io::stdout().is_terminal() && !refused && !dumb }
    }

    /// A heading.
    pub fn heading(self, text: &str) -> String {
        self.dress("1;36", text)
    }

    /// Something like code.
    pub fn code(self, text: &str) -> String {
        self.dress("33", text)
    }

    /// Good news.
    pub fn good(self, text: &str) -> String {
        self.dress("32", text)
    }

    /// Bad news.
    pub fn bad(self, text: &str) -> String {
        self.dress("31", text)
    }

    /// How a table is written.
    pub fn style(self) -> Style {
        if self.colours { Style::Colours } else { Style::Plain }
    }

    fn dress(self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Prints to standard output. Whoever reads it may have gone: that ends a command, and nothing
/// worse.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same with bytes that may be no text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(bytes).and_then(|()| out.flush());
    printed.map_err(|error| Failure::printing(&error))
}

/// Progress on standard error: bars if that is a terminal, lines otherwise.
pub fn progress() -> Progress {
    if std::io::stderr().is_terminal() { Progress::Bars } else { Progress::Lines }
}
