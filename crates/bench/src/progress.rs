//! What a person sees while the benchmark works, on standard error: bars on a terminal, a line now
//! and then where there is none (a log file, a build server), nothing at all in tests.

use crate::words::{duration, grouped};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// What takes less time gets no line.
const WORTH_A_LINE: Duration = Duration::from_secs(2);

/// How often something moves that shows no progress.
const SPIN: Duration = Duration::from_millis(150);

/// How progress is shown; cheap to clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Not at all.
    Silent,
    /// A line when something begins.
    Lines,
    /// A bar that moves.
    Bars,
}

/// Something under way. Its bar goes away when this is dropped.
pub struct Task {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Something that takes a known time.
    pub fn timed(self, title: &str, total: Duration) -> Task {
        let millis = u64::try_from(total.as_millis()).unwrap_or(u64::MAX);
        if self == Self::Lines && total < WORTH_A_LINE {
            return Task { bar: None };
        }
        self.begin(title, millis, &format!("for {}", duration(total)))
    }

    /// Something that handles a known number of items.
    pub fn counted(self, title: &str, total: u64, items: &str) -> Task {
        self.begin(title, total, &format!("{} {items}", grouped(total)))
    }

    /// Something that takes a while, nobody knows how long.
    pub fn unknown(self, title: &str) -> Task {
        let bar = match self {
            Self::Silent => None,
            Self::Lines => {
                eprintln!("{title} ...");
                None
            }
            Self::Bars => {
                let style = ProgressStyle::with_template("  {spinner} {prefix}, {elapsed}  {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner());
                let bar =
                    ProgressBar::new_spinner().with_style(style).with_prefix(title.to_owned());
                bar.enable_steady_tick(SPIN);
                Some(bar)
            }
        };
        Task { bar }
    }

    fn begin(self, title: &str, total: u64, extent: &str) -> Task {
        let bar = match self {
            Self::Silent => None,
            Self::Lines => {
                eprintln!("{title}: {extent} ...");
                None
            }
            Self::Bars => Some(bar(title, total, extent)),
        };
        Task { bar }
    }
}

impl Task {
    /// How far it has got, in items or milliseconds, and a word about it.
    pub fn set(&self, position: u64, message: String) {
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(message);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(title: &str, total: u64, extent: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("  {prefix:44} {bar:28} {percent:>3} %  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total);
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(format!("{title}, {extent}"));
    bar
}
