//! `plinth tls`: an authority of one's own, and certificates for servers and clients, as files.
//!
//! What is there already is never replaced: a new authority under an old name would turn away
//! everybody who has the old one's certificates. Keys are readable by their owner alone.

use crate::failure::Failure;
use crate::terminal;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::block_on;
use plinth_env::{Env, Open};
use plinth_tls::make::{self, Pair, Wish};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The command line of `plinth tls`.
pub fn command() -> Command {
    let new_ca = Command::new("new-ca")
        .about("Makes an authority: DIR/ca.crt, which everybody gets, and DIR/ca.key, which signs")
        .arg(dir("Where the files are written"))
        .arg(days("3650"))
        .arg(organisation("Plinth"))
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .default_value("Plinth's authority")
                .help("Its common name"),
        );
    let new_cert = Command::new("new-cert")
        .about("Makes a certificate that the authority signs, for a server or a client: DIR/NAME.crt and DIR/NAME.key")
        .arg(
            Arg::new("name")
                .value_name("NAME")
                .required(true)
                .help("Its common name, which --tls-verify-peers can ask for, and the files' name"),
        )
        .arg(dir("Where ca.crt and ca.key are, and the files are written"))
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("HOST,..")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help(
                    "Names or addresses of the machine, for browsers and Prometheus; FoundationDB's clients don't compare them",
                ),
        )
        .arg(days("365"))
        .arg(organisation("Plinth"));
    Command::new("tls")
        .about("Certificates for TLS: an authority of your own, and what it signs for servers and clients")
        .after_help(
            "Example:\n  plinth tls new-ca\n  plinth tls new-cert server\n  plinth tls new-cert client\n  \
             plinth server --dir data --tls-cert server.crt --tls-key server.key --tls-ca ca.crt\n  \
             export FDB_TLS_CERTIFICATE_FILE=client.crt FDB_TLS_KEY_FILE=client.key FDB_TLS_CA_FILE=ca.crt\n  \
             plinth shell --cluster-file data/fdb.cluster",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([new_ca, new_cert])
}

fn dir(help: &'static str) -> Arg {
    Arg::new("dir")
        .long("dir")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .default_value(".")
        .help(help)
}

fn days(usual: &'static str) -> Arg {
    Arg::new("days")
        .long("days")
        .value_name("N")
        .value_parser(value_parser!(u32).range(1..))
        .default_value(usual)
        .help("For how many days it is valid")
}

fn organisation(usual: &'static str) -> Arg {
    Arg::new("organisation")
        .long("organisation")
        .value_name("NAME")
        .default_value(usual)
        .help("Its organisation")
}

/// Runs `plinth tls`.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    match options.subcommand() {
        Some(("new-ca", options)) => {
            let pair = make::authority(&wish(options, &[])).map_err(failed)?;
            write(&place(options), "ca", &pair)?;
            terminal::print("Keep ca.key where no server is: whoever has it can sign.\n")?;
        }
        Some(("new-cert", options)) => new_cert(options)?,
        _ => return Err(Failure::usage("there is no such command; see plinth tls --help")),
    }
    Ok(0)
}

fn new_cert(options: &ArgMatches) -> Result<(), Failure> {
    let name = text(options, "name");
    if name.is_empty() || name == "ca" || name.contains(['/', '\\', '\0']) || name.starts_with('.')
    {
        return Err(Failure::usage(format!(
            "{name:?} can't be the name of its files: letters, digits and such, and not ca"
        )));
    }
    let (env, dir) = (Env::real(), place(options));
    let read = |file: &str| {
        let path = dir.join(file);
        block_on(env.files().read(&path)).map_err(|error| {
            Failure::of(
                format!(
                    "cannot read the authority's {} (plinth tls new-ca makes one)",
                    path.display()
                ),
                error,
            )
        })
    };
    let (authority, key) = (read("ca.crt")?, read("ca.key")?);
    let key = String::from_utf8_lossy(&key);
    let hosts: Vec<String> = options.get_many("host").unwrap_or_default().cloned().collect();
    let pair = make::certificate(&wish(options, &hosts), &authority, &key).map_err(failed)?;
    write(&dir, &name, &pair)
}

fn failed(error: plinth::Error) -> Failure {
    Failure::of("cannot make a certificate", error)
}

fn text(options: &ArgMatches, name: &str) -> String {
    options.get_one::<String>(name).cloned().unwrap_or_default()
}

fn place(options: &ArgMatches) -> PathBuf {
    options.get_one::<PathBuf>("dir").cloned().unwrap_or_default()
}

fn wish<'a>(options: &'a ArgMatches, others: &'a [String]) -> Wish<'a> {
    let named = |name: &str| options.get_one::<String>(name).map(String::as_str);
    let days = options.get_one::<u32>("days").copied().unwrap_or(365);
    Wish {
        name: named("name").unwrap_or_default(),
        organisation: named("organisation").filter(|name| !name.is_empty()),
        others,
        from: Env::real().wall_clock(),
        valid: Duration::from_secs(u64::from(days) * 24 * 3600),
    }
}

/// Writes both files, neither of which may be there.
fn write(dir: &Path, name: &str, pair: &Pair) -> Result<(), Failure> {
    let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
    absent(&certificate)?;
    make(&key, Open::CreatePrivate, &pair.key)?;
    if let Err(failed) = make(&certificate, Open::CreateNew, &pair.certificate) {
        // A key without its certificate would be in the way of the next try.
        let _ = block_on(Env::real().files().remove(&key));
        return Err(failed);
    }
    terminal::print(&format!("{}\n{}\n", certificate.display(), key.display()))?;
    Ok(())
}

/// Makes a file: a new one, so that nobody else has it open or owns it.
fn make(path: &Path, open: Open, text: &str) -> Result<(), Failure> {
    absent(path)?;
    let env = Env::real();
    let files = env.files();
    let written = block_on(async {
        let made = files.open(path, open).await?;
        made.write_all_at(0, text.as_bytes()).await?;
        made.sync_all().await
    });
    written.map_err(|error| Failure::of(format!("cannot write {}", path.display()), error))
}

/// Refuses a file that is there.
fn absent(path: &Path) -> Result<(), Failure> {
    if block_on(Env::real().files().exists(path)).unwrap_or(false) {
        return Err(Failure::new(format!(
            "{} is there already, and stays as it is: name another directory, or move it away",
            path.display()
        )));
    }
    Ok(())
}
