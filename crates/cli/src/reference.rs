//! `plinth completions SHELL`, and the hidden `plinth man-pages DIR`: what shells and `man` want to
//! know of the command line, made of its definition, so that it is never another one.
//!
//! Always: hidden commands are in neither, and pages of one version are the same bytes, whatever
//! commit and day they were made of.

use crate::failure::Failure;
use crate::terminal;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use plinth_env::{Env, block_on};
use std::path::PathBuf;

/// The commands' names.
pub const COMPLETIONS: &str = "completions";
/// Hidden: packages have them made, people read what it made.
pub const MAN_PAGES: &str = "man-pages";

const PROGRAM: &str = "plinth";

/// The command line of `plinth completions`.
pub fn completions_command() -> Command {
    Command::new(COMPLETIONS)
        .about("Prints completions of this command line for a shell")
        .after_help(
            "Packages and `make install` put them where shells look. By hand, for one session of bash:\n  \
             source <(plinth completions bash)",
        )
        .arg(Arg::new("shell").value_name("SHELL").required(true).value_parser(value_parser!(Shell)))
}

/// The command line of `plinth man-pages`.
pub fn man_pages_command() -> Command {
    Command::new(MAN_PAGES)
        .hide(true)
        .about("Writes a man page for each command into a directory")
        .arg(Arg::new("dir").value_name("DIR").required(true).value_parser(value_parser!(PathBuf)))
}

/// `plinth completions SHELL`.
pub fn completions(whole: &Command, options: &ArgMatches) -> Result<u8, Failure> {
    let shell = options.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(whole), PROGRAM, &mut text);
    terminal::print_bytes(&text)?;
    Ok(0)
}

/// `plinth man-pages DIR`.
pub fn man_pages(whole: &Command, options: &ArgMatches) -> Result<u8, Failure> {
    let dir = options.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let failed = |error: plinth::Error| {
        Failure::of(format!("cannot write man pages to {}", dir.display()), error)
    };
    let env = Env::real();
    block_on(async {
        env.files().create_dir_all(&dir).await?;
        for (name, page) in pages(whole) {
            env.files().replace(dir.join(format!("{name}.1")), &page).await?;
        }
        Ok(())
    })
    .map_err(failed)?;
    Ok(0)
}

/// The command line as people know it.
fn visible(whole: &Command) -> Command {
    let hidden: Vec<_> = whole
        .get_subcommands()
        .filter(|command| command.is_hide_set())
        .map(|c| c.get_name().to_owned())
        .collect();
    // Nothing takes a command away from one that has it: so a new one is made, of those that are
    // left.
    let kept = whole
        .get_subcommands()
        .filter(|command| !hidden.iter().any(|name| name == command.get_name()));
    let mut visible = Command::new(PROGRAM).version(crate::VERSION).subcommands(kept.cloned());
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    if let Some(after) = whole.get_after_help() {
        visible = visible.after_help(after.clone());
    }
    visible
}

/// Each command's page, by its name: `plinth`, `plinth-series-export`.
fn pages(whole: &Command) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut whole = visible(whole).disable_help_subcommand(true);
    whole.build();
    add_pages(&whole, PROGRAM, &mut all);
    all
}

fn add_pages(command: &Command, name: &str, all: &mut Vec<(String, Vec<u8>)>) {
    // `man` is told no commit, only the version: pages of one version are the same bytes.
    let page = command.clone().version(env!("CARGO_PKG_VERSION")).name(name.to_owned());
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page)
        .title(name.to_uppercase())
        .manual("Plinth")
        .date("")
        .render(&mut text);
    // Writing to memory doesn't fail.
    debug_assert!(rendered.is_ok(), "{name}");
    all.push((name.to_owned(), text));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        add_pages(below, &format!("{name}-{}", below.get_name()), all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Command {
        crate::command::command(crate::VERSION)
    }

    #[test]
    fn every_command_that_people_see_has_a_page() {
        let pages = pages(&whole());
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "plinth",
            "plinth-server",
            "plinth-shell",
            "plinth-series-export",
            "plinth-completions",
        ] {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
        assert!(
            !names.iter().any(|name| name.contains("writer") || name.contains("man-pages")),
            "{names:?}"
        );
        let server = &pages[names.iter().position(|name| *name == "plinth-server").unwrap()].1;
        let text = String::from_utf8(server.clone()).unwrap();
        assert!(text.contains("PLINTH_LISTEN") && text.contains(r"\-\-listen"), "{text}");
    }

    #[test]
    fn shells_complete_what_people_see() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut visible(&whole()), PROGRAM, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("salvage") && text.contains("cluster-file"), "{shell}: {text}");
            assert!(!text.contains("demo-writer") && !text.contains(MAN_PAGES), "{shell}: {text}");
        }
    }
}
