//! The keys of a directory that is encrypted, as the command line, the environment and settings
//! name them.
//!
//! A key is in a file, or is what a command prints. The first one that is named encrypts; all of
//! them open what they have encrypted. Commands that open a directory and have no option for it (a
//! backup's own key is another one) take the file that `PLINTH_ENCRYPTION_KEY_FILE` names.

use crate::failure::Failure;
use crate::settings::Settings;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, value_parser};
use plinth::{Builder, Error, Key, Keys, is_encrypted, read_key_file};
use plinth_env::{Env, block_on};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use zeroize::Zeroizing;

/// The options, and settings, that name a file, and a command.
const FILE: &str = "encryption-key-file";
const COMMAND: &str = "encryption-key-command";
/// More than a key in any form: of what a command prints beyond that nothing is looked at.
const MOST_PRINTED: usize = 4096;
/// The variable that names a file.
const VARIABLE: &str = "PLINTH_ENCRYPTION_KEY_FILE";

/// The options of a command that opens a directory.
pub fn args() -> [Arg; 2] {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("PATH")
        .env(VARIABLE)
        .hide_env_values(true)
        .value_parser(value_parser!(PathBuf))
        .action(ArgAction::Append)
        .help("A file with a key of the directory, if it is encrypted; may be given several times");
    let command = Arg::new(COMMAND)
        .long(COMMAND)
        .value_name("COMMAND")
        .action(ArgAction::Append)
        .help("A command that prints one");
    [file, command]
}

/// The keys that the options of a command name for a directory. That the environment names one
/// leaves a directory in the clear as it is: it may be meant for another one.
pub fn given(options: &ArgMatches, dir: &Path) -> Result<Vec<Key>, Failure> {
    let is_told = options.value_source(FILE) != Some(ValueSource::EnvVariable)
        || options.value_source(COMMAND).is_some();
    if !is_told && is_clear(dir) {
        return Ok(Vec::new());
    }
    let files = options.get_many::<PathBuf>(FILE).into_iter().flatten();
    let commands = options.get_many::<String>(COMMAND).into_iter().flatten();
    read(files.map(PathBuf::as_path), commands)
}

/// The keys that the settings of a server name.
pub fn of_settings(settings: &Settings) -> Result<Vec<Key>, Failure> {
    let (files, commands) = (settings.texts(FILE), settings.texts(COMMAND));
    read(files.iter().map(Path::new), commands.iter())
}

/// There must be no keys, for this reason.
///
/// # Errors
/// If settings name one.
pub fn refuse(settings: &Settings, why: &str) -> Result<(), Failure> {
    if [FILE, COMMAND].iter().all(|name| settings.texts(name).is_empty()) {
        return Ok(());
    }
    Err(Failure::usage(format!("{why}: leave out {FILE} and {COMMAND}")))
}

/// Whether there is a database in a directory, and it isn't encrypted.
fn is_clear(dir: &Path) -> bool {
    // What is wrong with it is told when it is opened.
    block_on(is_encrypted(&Env::real(), dir)).is_ok_and(|encrypted| encrypted == Some(false))
}

/// With the key that the environment names, if it names one, and there is no database in the
/// directory that isn't encrypted.
///
/// # Errors
/// Those of [`read_key_file`].
pub fn of_environment(builder: Builder, dir: &Path) -> Result<Builder, Error> {
    let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) else {
        return Ok(builder);
    };
    if is_clear(dir) {
        return Ok(builder);
    }
    let key = block_on(read_key_file(&Env::real(), Path::new(&file)))?;
    Ok(builder.encryption(&[key]))
}

/// The keys, for what takes them without a builder.
pub fn keys(options: &ArgMatches, dir: &Path) -> Result<Keys, Failure> {
    given(options, dir).map(|keys| Keys::new(&keys))
}

fn read<'a>(
    files: impl Iterator<Item = &'a Path>,
    commands: impl Iterator<Item = &'a String>,
) -> Result<Vec<Key>, Failure> {
    let env = Env::real();
    let file = |path: &Path| {
        block_on(read_key_file(&env, path)).map_err(|error| {
            Failure::of(format!("cannot use the key file {}", path.display()), error)
        })
    };
    files.map(file).chain(commands.map(|command| printed_by(command))).collect()
}

/// The key that a command prints.
fn printed_by(command: &str) -> Result<Key, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::new(format!("no key comes from {COMMAND} {command:?}: {why}"))
    };
    let shell = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    let mut shell = shell.map_err(|error| failed(&error))?;
    // In one place from the first byte on, which is overwritten when it is let go.
    let mut printed = Zeroizing::new([0; MOST_PRINTED]);
    let filled =
        shell.stdout.take().map_or(Ok(0), |mut output| fill(&mut printed[..], &mut output));
    let status = shell.wait().map_err(|error| failed(&error))?;
    let filled = filled.map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(failed(&status));
    }
    Key::of_file(&printed[..filled]).map_err(|bad| failed(&bad))
}

/// Reads to the end, or as much as there is room for; gives how much.
fn fill(room: &mut [u8], from: &mut impl Read) -> io::Result<usize> {
    let mut filled = 0;
    while filled < room.len() {
        match from.read(&mut room[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    // The rest is read and dropped: whoever prints it is no less the one who was asked.
    io::copy(from, &mut io::sink())?;
    Ok(filled)
}
