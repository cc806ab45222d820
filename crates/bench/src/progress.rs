//! What a person sees while the benchmark works, on standard error: bars on a terminal, a line now
//! and then where there is none (a log file, a build server), nothing at all in tests.

use crate::words::{duration, grouped};
use indicatif::{ProgressBar, ProgressStyle};
use plinth_env::tell;
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
        self.begin(title, millis, Some(&format!("for {}", duration(total))))
    }

    /// Something that handles a known number of items.
    pub fn counted(self, title: &str, total: u64, items: &str) -> Task {
        self.begin(title, total, Some(&format!("{} {items}", grouped(total))))
    }

    /// Something of which a share is known to be done, in percent.
    pub fn share(self, title: &str) -> Task {
        self.begin(title, 100, None)
    }

    /// Something that takes a while, nobody knows how long.
    pub fn unknown(self, title: &str) -> Task {
        let bar = match self {
            Self::Silent => None,
            Self::Lines => {
                tell(format_args!("{title} ..."));
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

    fn begin(self, title: &str, total: u64, extent: Option<&str>) -> Task {
        let with_extent = |between: &str| match extent {
            Some(extent) => format!("{title}{between}{extent}"),
            None => title.to_owned(),
        };
        let bar = match self {
            Self::Silent => None,
            Self::Lines => {
                tell(format_args!("{} ...", with_extent(": ")));
                None
            }
            Self::Bars => Some(bar(with_extent(", "), total)),
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

fn bar(prefix: String, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {prefix:44} {bar:28} {percent:>3} %  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total);
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(prefix);
    bar
}
