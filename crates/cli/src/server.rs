//! `plinth server` and `plinth dev`: a database in a directory, offered to clients on a socket.
//!
//! One line says where it is once it serves; a request to terminate ends it cleanly: what is under way is answered, and
//! what was acknowledged is on the disk.

use crate::failure::Failure;
use crate::interrupt;
use crate::scratch::Scratch;
use crate::terminal::{self, Terminal};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use plinth::{Database, block_on};
use plinth_env::Env;
use plinth_server::{ConsoleConfig, Limits, Page, Server, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The cluster file's name in the database's directory, unless another place was given.
const CLUSTER_FILE: &str = "fdb.cluster";
/// The name of the file that has HTTP's token, in the same place.
const TOKEN_FILE: &str = "http-token";
/// Where `plinth dev` has its console, if the port is free.
const CONSOLE_PORT: u16 = 8080;
/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// The command line of `plinth server`.
pub fn command() -> Command {
    Command::new("server")
        .about("Serves the database in a directory to clients on sockets")
        .after_help(
            "Prints one line, \"ready\" with its addresses and its cluster file, once clients can connect, and ends\n\
             cleanly on SIGTERM.\n\n\
             Example:\n  plinth server --dir ./shop\n  plinth bench --cluster-file ./shop/fdb.cluster",
        )
        .arg(path("dir", "DIR").required(true).help("The database; made if there is none"))
        .arg(engine())
        .args(places())
}

/// The command line of `plinth dev`.
pub fn dev_command() -> Command {
    Command::new("dev")
        .about("Starts a server to try things with, and says what to paste next")
        .after_help("Without --dir the database is temporary, and gone when the server ends.")
        .arg(path("dir", "DIR").help("The database; made if there is none"))
        .arg(engine())
        .args(places())
}

fn engine() -> Arg {
    Arg::new("engine")
        .long("engine")
        .value_name("NAME")
        .default_value("memory")
        .help("The storage engine of a new database; one that exists keeps its own")
}

fn places() -> [Arg; 8] {
    [
        Arg::new("listen")
            .long("listen")
            .value_name("IP:PORT")
            .action(ArgAction::Append)
            .value_parser(value_parser!(SocketAddr))
            .help("Where to listen [default: where the cluster file says, else 127.0.0.1:4500]; port 0 takes a free one"),
        Arg::new("public-address")
            .long("public-address")
            .value_name("IP:PORT")
            .value_parser(value_parser!(SocketAddr))
            .help("The address that clients are told, if it isn't the first one listened on"),
        path("cluster-file", "FILE")
            .help("The file that clients find the server by [default: fdb.cluster in DIR]; written if there is none"),
        Arg::new("http")
            .long("http")
            .value_name("IP:PORT")
            .value_parser(value_parser!(SocketAddr))
            .help("Where to answer HTTP: the console, /metrics for Prometheus, /status, /health [default: nowhere]"),
        path("http-token", "FILE").help(
            "The token that HTTP asks for; written if there is none. Asked for on loopback only if this is given \
             [default elsewhere: http-token in DIR]",
        ),
        Arg::new("console-write")
            .long("console-write")
            .action(ArgAction::SetTrue)
            .help("Let the console set and clear keys"),
        Arg::new("without-tls").long("without-tls").action(ArgAction::SetTrue).help(
            "Listen where other machines can reach it, although nothing is encrypted and anybody may connect",
        ),
        Arg::new("connections")
            .long("connections")
            .value_name("COUNT")
            .value_parser(value_parser!(u64).range(1..))
            .help("Connections at most [default: 10000]"),
    ]
}

fn path(name: &'static str, value: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).value_parser(value_parser!(PathBuf))
}

/// Runs `plinth server`.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let dir = options.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    serve(options, &dir, |server, file| {
        let ready = format!("ready {} {}{}\n", addresses(server), file.display(), http(server));
        terminal::print(&format!("{ready}{}", token(server)))
    })
}

/// Runs `plinth dev`.
pub fn dev(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let given = options.get_one::<PathBuf>("dir");
    let scratch = if given.is_none() { Some(Scratch::new(&env, "plinth-dev")?) } else { None };
    let dir = given.map_or_else(|| scratch.as_ref().map_or(Path::new("."), Scratch::path), PathBuf::as_path);
    let console = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(&env)));
    serve_with(options, dir, Some(console), |server, file| {
        let terminal = Terminal::stdout();
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        let export = terminal.code(&format!("export FDB_CLUSTER_FILE={}", file.display()));
        let bench = terminal.code(&format!("plinth bench --cluster-file {}", file.display()));
        let connect = terminal.code(&format!("Database::connect({:?})", file.display().to_string()));
        let console = terminal.code(http(server).trim_start());
        terminal::print(&format!(
            "ready {} {}{}\n{}\n\
             To see inside, open the console in a browser:\n  {console}\n\
             Clients find it by its cluster file. In another terminal:\n  {export}\n\
             From Rust (crate plinth):\n  {connect}\n\
             To see what it can do:\n  {bench}\n\
             Ctrl-C ends it.\n",
            addresses(server),
            file.display(),
            http(server),
            token(server),
        ))
    })
}

fn addresses(server: &Server) -> String {
    let addresses: Vec<_> = server.addresses().iter().map(ToString::to_string).collect();
    addresses.join(",")
}

fn http(server: &Server) -> String {
    server.http_address().map(|address| format!(" http://{address}")).unwrap_or_default()
}

/// A line that says where the token stands that HTTP asks for, if it does.
fn token(server: &Server) -> String {
    server.http_token_file().map(|file| format!("token {}\n", file.display())).unwrap_or_default()
}

/// The console's usual port, or any if that is taken.
fn free_port(env: &Env) -> u16 {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, CONSOLE_PORT));
    if block_on(env.sockets().listen(usual)).is_ok() { CONSOLE_PORT } else { 0 }
}

fn serve(
    options: &ArgMatches,
    dir: &Path,
    announce: impl FnOnce(&Server, &Path) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    serve_with(options, dir, None, announce)
}

/// Opens the database, serves it, says so, and goes on until somebody asks for the end.
fn serve_with(
    options: &ArgMatches,
    dir: &Path,
    console: Option<SocketAddr>,
    announce: impl FnOnce(&Server, &Path) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let env = Env::real();
    let stop = interrupt::flag();
    let database = Database::builder(dir).engine(text(options, "engine")).env(env.clone()).open();
    let database = database.map_err(|error| Failure::of(format!("cannot open {}", dir.display()), error))?;
    let file = options.get_one::<PathBuf>("cluster-file").cloned().unwrap_or_else(|| dir.join(CLUSTER_FILE));
    let measured = database.clone();
    let metrics = Some(Page::new(move || measured.metrics_text()));
    let mut config = ServerConfig { metrics, ..config(&env, options, &file)? };
    config.http = config.http.or(console);
    if config.http.is_some_and(|http| !http.ip().is_loopback()) && config.console.token_file.is_none() {
        config.console.token_file = Some(dir.join(TOKEN_FILE));
    }
    let server = block_on(Server::start(database.endpoint().clone(), config))
        .map_err(|error| Failure::of("cannot serve", error))?;
    announce(&server, &file)?;
    while !stop.load(Ordering::Relaxed) {
        block_on(env.sleep(TICK));
    }
    block_on(server.stop());
    database.close().map_err(|error| Failure::of(format!("cannot close {}", dir.display()), error))?;
    Ok(0)
}

fn config(env: &Env, options: &ArgMatches, file: &Path) -> Result<ServerConfig, Failure> {
    let defaults = ServerConfig::default();
    let listen = match options.get_many::<SocketAddr>("listen") {
        Some(given) => given.copied().collect(),
        None => listed(env, file)?.map_or(defaults.listen.clone(), |address| vec![address]),
    };
    let connections = options.get_one::<u64>("connections").map(|count| *count as usize);
    let limits =
        Limits { connections: connections.unwrap_or(defaults.limits.connections), ..defaults.limits.clone() };
    Ok(ServerConfig {
        listen,
        public: options.get_one::<SocketAddr>("public-address").copied(),
        cluster_file: Some(file.to_path_buf()),
        without_tls: options.get_flag("without-tls"),
        http: options.get_one::<SocketAddr>("http").copied(),
        console: ConsoleConfig {
            token_file: options.get_one::<PathBuf>("http-token").cloned(),
            write: options.get_flag("console-write"),
        },
        metrics: None,
        limits,
    })
}

/// The address that an existing cluster file gives the server.
fn listed(env: &Env, file: &Path) -> Result<Option<SocketAddr>, Failure> {
    let failed = |error| Failure::of(format!("cannot use the cluster file {}", file.display()), error);
    if !block_on(env.files().exists(file)).map_err(failed)? {
        return Ok(None);
    }
    let file = block_on(plinth::ClusterFile::read(env, file)).map_err(failed)?;
    file.addresses().first().map(|address| address.resolve()).transpose().map_err(failed)
}

fn text(options: &ArgMatches, name: &str) -> String {
    options.get_one::<String>(name).cloned().unwrap_or_default()
}
