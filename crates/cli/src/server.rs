//! `plinth server` and `plinth dev`: a database in a directory, or a FoundationDB cluster, offered
//! to clients on a socket.
//!
//! One line says where it is once it serves; a request to terminate ends it cleanly: what is under
//! way is answered, and what was acknowledged is on the disk.

use crate::CLUSTER_FILE;
use crate::agents::Agents;
use crate::dev_nodes;
use crate::encryption;
use crate::failure::{BEGINS_ANEW, Failure, tell};
use crate::interrupt;
use crate::member::{self, Member, Plan};
use crate::process;
use crate::scratch::Scratch;
use crate::series_settings;
use crate::settings::{self, Settings};
use crate::starting;
use crate::target::check_name;
use crate::terminal::{self, Terminal};
use clap::{Arg, ArgAction, ArgMatches, Command};
use plinth::client::Endpoint;
use plinth::client::remote::{RemoteEndpoint, RemoteOptions};
use plinth::cluster::Spoken;
use plinth::{Builder, Compression, Database, EngineKind, Keys, Local, block_on, fdb};
use plinth_env::Env;
use plinth_server::{
    Among, ConsoleConfig, Limits, PROTOCOLS, Page, Pages, RightsConfig, RulesConfig, SeriesConfig,
    Server, ServerConfig, Source, TlsOptions, Usual,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The name of the file that has HTTP's token, in the database's directory.
const TOKEN_FILE: &str = "http-token";
/// The name of the file there that is there while the database has rights.
const RIGHTS_FILE: &str = "rights";
/// Where `plinth dev` has its clients, its console, and its series, unless somebody else is there.
const PORT: u16 = 4500;
const CONSOLE_PORT: u16 = 8080;
const RESP_PORT: u16 = 8282;
const UDP_PORT: u16 = 8383;
const OPENTSDB_PORT: u16 = 4242;
const QUERY_PORT: u16 = 8181;
/// How soon a request to end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// The command line of `plinth server`.
pub fn command() -> Command {
    Command::new("server")
        .about("Serves the database in a directory to clients on sockets")
        .after_help(
            "Prints one line, \"ready\" with its addresses and its cluster file, once clients can connect, and ends\n\
             cleanly on SIGTERM.\n\n\
             Each setting can also be given as an environment variable (PLINTH_LISTEN for --listen), or as a key\n\
             of the file that --config names.\n\n\
             Example:\n  plinth server --dir ./shop\n  plinth bench --cluster-file ./shop/fdb.cluster",
        )
        .args(settings::args())
}

/// The command line of `plinth dev`.
pub fn dev_command() -> Command {
    Command::new("dev")
        .about("Starts a server to try things with, and says what to paste next")
        .after_help("Without --dir the database is temporary, and gone when the server ends.")
        .arg(
            Arg::new("nodes")
                .long("nodes")
                .value_name("COUNT")
                .value_parser(["1", "3", "5"])
                .help("So many servers, each a process of its own, as one cluster, without time series; of the other settings --dir and --log"),
        )
        .arg(
            Arg::new("respawn")
                .long("respawn")
                .action(ArgAction::SetTrue)
                .requires("nodes")
                .help("With --nodes: a server that ends is started again"),
        )
        .args(settings::args())
}

/// Runs `plinth server`.
pub fn run(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let settings = Settings::read(&env, options)?;
    settings.check_series_are_taken()?;
    let _listening =
        plinth_telemetry::begin(settings.text("log").unwrap_or("text")).map_err(Failure::usage)?;
    let home = Home::of(&settings)?.ok_or_else(|| {
        Failure::usage(
            "no directory is named for the database: --dir, PLINTH_DIR, or dir in the file that --config names",
        )
    })?;
    serve(&env, &settings, &home, None, |server, found| {
        let clients = Some(addresses(server)).filter(|all| !all.is_empty()).map(|all| all + " ");
        let ready = format!("ready {}{found}{}\n", clients.unwrap_or_default(), http(server));
        terminal::print(&format!("{ready}{}{}", token(server), series(server)))
    })
}

/// Runs `plinth dev`.
pub fn dev(options: &ArgMatches) -> Result<u8, Failure> {
    let env = Env::real();
    let settings = Settings::read(&env, options)?;
    let _listening = plinth_telemetry::begin(settings.text("log").unwrap_or("text,warn"))
        .map_err(Failure::usage)?;
    let given = Home::of(&settings)?;
    let scratch = match &given {
        Some(Home::Directory(_)) => None,
        _ => Some(Scratch::new(&env, "plinth-dev")?),
    };
    let temporary = scratch.as_ref().map_or(Path::new("."), Scratch::path);
    let home = match given {
        None => Home::Directory(temporary.to_owned()),
        Some(Home::Store { target, file: None }) => {
            Home::Store { target, file: Some(temporary.join(CLUSTER_FILE)) }
        }
        Some(given) => given,
    };
    let nodes =
        options.get_one::<String>("nodes").and_then(|count| count.parse().ok()).unwrap_or(1);
    if nodes > 1 {
        let Home::Directory(dir) = &home else {
            let why = "--nodes makes servers with directories of their own: leave out --store";
            return Err(Failure::usage(why));
        };
        encryption::refuse(&settings, "--nodes makes servers without keys")?;
        settings.allow_only(&["dir", "log"], "--nodes makes servers that are all alike")?;
        return dev_nodes::run(&env, dir, nodes, options.get_flag("respawn"));
    }
    let file = home.cluster_file(&settings).unwrap_or_default();
    serve(&env, &settings, &home, Some(usual()), |server, _| {
        let terminal = Terminal::stdout();
        let file = std::path::absolute(&file).unwrap_or_else(|_| file.clone());
        let export = terminal.code(&format!("export FDB_CLUSTER_FILE={}", file.display()));
        // Not of this database, which has rows already: what /metrics shows, as series.
        let bench = terminal.code("plinth bench");
        let connect =
            terminal.code(&format!("Database::connect({:?})", file.display().to_string()));
        let console = terminal.code(http(server).trim_start());
        let points = terminal.code(&points(server));
        let query = terminal.code(&query(server));
        terminal::print(&format!(
            "ready {} {}{}\n{}{}\n\
             To see inside, open the console in a browser:\n  {console}\n\
             Clients find it by its cluster file. In another terminal:\n  {export}\n\
             From Rust (crate plinth):\n  {connect}\n\
             To send a point of a time series, and hear that it is durable:\n  {points}\n\
             And to ask for it:\n  {query}\n\
             To see what it can do, on a database of its own:\n  {bench}\n\
             Ctrl-C ends it.\n",
            addresses(server),
            file.display(),
            http(server),
            token(server),
            series(server),
        ))
    })
}

/// Where `plinth dev` is where nothing else is asked for.
fn usual() -> Usual {
    let on = |port| Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let series = SeriesConfig {
        resp: on(RESP_PORT),
        udp: on(UDP_PORT),
        opentsdb: on(OPENTSDB_PORT),
        http: on(QUERY_PORT),
        ..SeriesConfig::default()
    };
    Usual { listen: on(PORT), http: on(CONSOLE_PORT), series }
}

/// A line that says where points of time series are taken in, if they are.
fn series(server: &Server) -> String {
    let SeriesConfig { resp, udp, opentsdb, graphite, http, .. } = server.series_addresses();
    let all = [
        ("resp", resp),
        ("udp", udp),
        ("opentsdb", opentsdb),
        ("graphite", graphite),
        ("http", http),
    ];
    let all: String = all
        .iter()
        .filter_map(|(name, address)| address.map(|at| format!(" {name} {at}")))
        .collect();
    if all.is_empty() { all } else { format!("series{all}\n") }
}

/// A command that sends a point.
fn points(server: &Server) -> String {
    let address =
        server.series_addresses().http.map(|address| address.to_string()).unwrap_or_default();
    let point = r#"{"metric":"cpu.load","timestamp":"2026-01-01T00:00:00Z","value":0.5,"tags":{"host":"a"}}"#;
    format!("curl -i {address}/api/put -d '{point}'")
}

/// A command that asks for points.
fn query(server: &Server) -> String {
    let address =
        server.series_addresses().http.map(|address| address.to_string()).unwrap_or_default();
    let query = r#"{"select":"cpu.load","range":{"from":0,"to":"22000101T000000"},"output":{"format":"csv"}}"#;
    format!("curl {address}/api/query -d '{query}'")
}

fn addresses(server: &Server) -> String {
    let tls = if server.connection_string().ends_with(":tls") { ":tls" } else { "" };
    let addresses: Vec<_> =
        server.addresses().iter().map(|address| format!("{address}{tls}")).collect();
    addresses.join(",")
}

fn http(server: &Server) -> String {
    let scheme = if server.is_http_secure() { "https" } else { "http" };
    server.http_address().map(|address| format!(" {scheme}://{address}")).unwrap_or_default()
}

/// A line that says where the token stands that HTTP asks for, if it does.
fn token(server: &Server) -> String {
    server.http_token_file().map(|file| format!("token {}\n", file.display())).unwrap_or_default()
}

/// Where the rows are.
enum Home {
    /// In a directory, which this process alone has open.
    Directory(PathBuf),
    /// On a FoundationDB cluster, which others use at the same time. Clients find this server by
    /// `file`, if it has one.
    Store { target: fdb::Target, file: Option<PathBuf> },
}

impl Home {
    /// The one that the settings name.
    fn of(settings: &Settings) -> Result<Option<Self>, Failure> {
        let Some(store) = settings.text("store") else {
            let Some(dir) = settings.path("dir") else { return Ok(None) };
            check_name(&dir).map_err(|error| Failure::opening(dir.display(), &error))?;
            return Ok(Some(Self::Directory(dir)));
        };
        if settings.path("dir").is_some() {
            return Err(Failure::usage(
                "a database is in a directory (--dir) or on a FoundationDB cluster (--store), not both",
            ));
        }
        let target =
            store.parse().map_err(|error: plinth::Error| Failure::usage(error.to_string()))?;
        Ok(Some(Self::Store { target, file: settings.path("cluster-file") }))
    }

    /// The file by which clients find the server.
    fn cluster_file(&self, settings: &Settings) -> Option<PathBuf> {
        match self {
            Self::Directory(dir) => {
                Some(settings.path("cluster-file").unwrap_or_else(|| dir.join(CLUSTER_FILE)))
            }
            Self::Store { file, .. } => file.clone(),
        }
    }

    /// By what clients find the database: the server's cluster file, or what FoundationDB's find it
    /// by.
    fn found_by(&self, file: Option<&Path>) -> String {
        match (self, file) {
            (Self::Directory(_), Some(file)) => file.display().to_string(),
            _ => self.to_string(),
        }
    }

    /// The file with the token of HTTP at this address, if nothing is said of one and other
    /// machines can reach it.
    fn token_file(&self, http: Option<SocketAddr>) -> Option<PathBuf> {
        let Self::Directory(dir) = self else { return None };
        http.filter(|http| !http.ip().is_loopback()).map(|_| dir.join(TOKEN_FILE))
    }
}

impl std::fmt::Display for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(dir) => dir.display().fmt(f),
            Self::Store { target, .. } => target.fmt(f),
        }
    }
}

/// A database that is open, and how the server stands to others that have it open.
struct Opened {
    database: Database,
    /// The node, if it is in this process.
    local: Option<Local>,
    member: Option<Member>,
    among: Option<Among>,
}

impl Opened {
    /// One in this process.
    fn here(local: Local) -> Self {
        let database = local.database().clone();
        Self { database, local: Some(local), member: None, among: None }
    }
}

/// What the settings say, checked before a directory is made for them.
fn checked_config(
    env: &Env,
    settings: &Settings,
    home: (&Home, Option<&Path>),
    usual: Option<Usual>,
) -> Result<ServerConfig, Failure> {
    let wanted = config(env, settings, home, usual)?;
    let checked = block_on(Server::check(env, &wanted));
    checked.map(|()| wanted).map_err(|error| Failure::serving(&error))
}

/// Opens the database, serves it, says so and where it is found, and goes on until somebody asks
/// for the end.
fn serve(
    env: &Env,
    settings: &Settings,
    home: &Home,
    usual: Option<Usual>,
    announce: impl FnOnce(&Server, &str) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let stop = interrupt::flag();
    let hangup = interrupt::hangup();
    tracing::info!(version, pid = env.process_id(), directory = %home, "plinth server starts");
    let file = home.cluster_file(settings);
    let found = home.found_by(file.as_deref());
    let wanted = checked_config(env, settings, (home, file.as_deref()), usual)?;
    if let Home::Store { .. } = home {
        encryption::refuse(settings, "a FoundationDB cluster encrypts its files itself")?;
    }
    let opened = match home {
        Home::Directory(dir) => open(env, settings, dir, file.as_deref().unwrap_or(dir), &stop)?,
        Home::Store { target, .. } => Some(open_store(env, settings, target, &stop)?),
    };
    let Some(Opened { database, local, member, among }) = opened else { return Ok(0) };
    // Those of a FoundationDB cluster are its own affair.
    let cluster = among.as_ref().map(|among| &among.database);
    let agents = matches!(home, Home::Directory(_)).then(|| Agents::start(env, &database, cluster));
    let layers = agents.as_ref().map(|agents| Page::new(agents.layers()));
    let metrics = Some(measurements(env, (local.as_ref(), &database), agents.as_ref(), version));
    let peers = member.as_ref().map(|member| member.mesh.clone());
    let mut config = ServerConfig { pages: Pages { metrics, layers }, peers, among, ..wanted };
    if matches!(home, Home::Directory(_)) {
        config.series.limits.stored = series_rows(&database, settings);
        tell_kept_engine(&database, settings);
    }
    let server = block_on(Server::start(database.endpoint().clone(), config))
        .map_err(|error| Failure::serving(&error))?;
    let (addresses, http) = (addresses(&server), http(&server));
    let console = Some(http.trim_start()).filter(|http| !http.is_empty());
    tracing::info!(addresses, console, cluster_file = found, "serving clients");
    let is_to_end = || stop.load(Ordering::Relaxed) || server.is_to_begin_anew();
    let is_served = member.as_ref().is_none_or(|member| member.until_served(env, is_to_end));
    if is_served && local.as_ref().is_none_or(|local| local.failure().is_none()) {
        announce(&server, &found)?;
    }
    until_end(env, &server, local.as_ref(), &stop, &hangup);
    tell_why(local.as_ref(), &server);
    if let Some(agents) = agents {
        block_on(agents.end(env));
    }
    if let Some(member) = &member {
        member.hand_over();
    }
    let code = if server.is_to_begin_anew() { BEGINS_ANEW } else { 0 };
    block_on(server.stop());
    if let Some(error) = local.as_ref().and_then(Local::failure) {
        // A new process finds out what is on the disk. Whoever started this one learns by the exit
        // code whether to start another.
        return Err(Failure::of_served(format!("the database in {home} failed"), &error));
    }
    let closed = local.map_or(Ok(()), Local::close);
    if let Some(member) = &member {
        block_on(member.mesh.end());
    }
    closed.map_err(|error| Failure::of(format!("cannot close {home}"), error))?;
    tracing::info!("the server has ended");
    Ok(code)
}

/// Goes on until the server is asked to end, or its database fails; reads certificates again when
/// it is asked to.
fn until_end(
    env: &Env,
    server: &Server,
    local: Option<&Local>,
    stop: &AtomicBool,
    hangup: &AtomicBool,
) {
    while !stop.load(Ordering::Relaxed)
        && !server.is_to_begin_anew()
        && local.is_none_or(|local| local.failure().is_none())
    {
        block_on(env.sleep(TICK));
        if hangup.swap(false, Ordering::Relaxed) {
            tracing::info!(signal = "SIGHUP", "certificates are read again");
            match block_on(server.reload_certificates()) {
                Ok(true) => tell("new certificates are in use"),
                Ok(false) => tell("the certificates are as they were"),
                Err(error) => tell(format_args!("the certificates in use stay: {error}")),
            }
        }
    }
}

/// What `/metrics` shows besides the server's own figures: those of the database, the process, and
/// the agents.
fn measurements(
    env: &Env,
    (local, database): (Option<&Local>, &Database),
    agents: Option<&Agents>,
    version: &'static str,
) -> Page {
    let (measured, own, of_agents) = (local.cloned(), env.clone(), agents.map(Agents::metrics));
    let endpoint = database.endpoint().clone();
    Page::new(move || {
        let of_process = process::metrics(&own, version, env!("PLINTH_COMMIT"));
        let of_agents = of_agents.as_ref().map(|page| page()).unwrap_or_default();
        let measured = measured.as_ref().map_or_else(|| elsewhere(&*endpoint), Local::metrics_text);
        measured + &of_process + &of_agents
    })
}

/// What is known of a database that lies elsewhere, under the name that alerts look at.
fn elsewhere(endpoint: &dyn Endpoint) -> String {
    let available = u8::from(endpoint.refusal().is_none());
    format!(
        "# HELP plinth_available Whether commits that write rows are taken.\n\
         # TYPE plinth_available gauge\nplinth_available {available}\n"
    )
}

/// Has the log say why the server ends.
fn tell_why(local: Option<&Local>, server: &Server) {
    match local.and_then(Local::failure) {
        Some(error) => tracing::error!(error = %error, "the server ends: the database failed"),
        None if server.is_to_begin_anew() => {
            tracing::info!("the server ends, to be started again: a client has asked for it");
        }
        None => {
            let signal = interrupt::name();
            tracing::info!(signal, "the server ends: it was asked to");
        }
    }
}

/// The database in a directory, which is that of a member if the cluster file names several
/// servers. `None` if somebody asked for the end before a cluster was formed.
fn open(
    env: &Env,
    settings: &Settings,
    dir: &Path,
    file: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Opened>, Failure> {
    let builder =
        builder(env, settings, dir).map_err(|error| Failure::opening(dir.display(), &error))?;
    let keys = encryption::of_settings(settings)?;
    let builder = builder.encryption(&keys);
    match named(env, file)? {
        Some(named) if named.addresses().len() > 1 => {
            let listen = settings.addresses("listen");
            let plan = Plan {
                file: &named,
                dir,
                listen: &listen,
                public: settings.address("public-address"),
                tls: tls_of_nodes(settings)?,
                without_tls: settings.flag("without-tls"),
                spoken: spoken(settings)?,
                window: window(settings).map_or(0, |window| window.as_micros() as u64),
                keys: Keys::new(&keys),
            };
            let Some(member) = member::open(env, &plan, builder, stop)? else { return Ok(None) };
            let among = Some(among(env, file, settings)?);
            let local = member.member.local().clone();
            Ok(Some(Opened { among, member: Some(member), ..Opened::here(local) }))
        }
        named => {
            let named = named.as_ref().map(|named| (named, file));
            open_alone(env, (dir, builder), named, stop).map(|it| Some(Opened::here(it)))
        }
    }
}

/// The database of one server. A cluster file that was written for one stands for it: where the
/// directory is empty, its disk isn't there, and clients must not find another in its place.
fn open_alone(
    env: &Env,
    (dir, builder): (&Path, Builder),
    named: Option<(&plinth::ClusterFile, &Path)>,
    stop: &Arc<AtomicBool>,
) -> Result<Local, Failure> {
    let written = named.and_then(|(named, file)| Some((named.written_for()?, file)));
    let builder = if written.is_some() { builder.must_exist() } else { builder };
    let opened = starting::interruptible(env, stop, || builder.open());
    opened.map_err(|error| match written.filter(|_| error == plinth::Error::file_not_found()) {
        Some((id, file)) => Failure::of(
            format!("cannot open {}", dir.display()),
            format_args!(
                "it holds no database, and {} was written for one, whose identity begins with {id}; mount its disk, or remove \
                 that file to have a new database made",
                file.display()
            ),
        ),
        None => Failure::opening(dir.display(), &error),
    })
}

/// Which versions of the servers' protocol this one offers.
fn spoken(settings: &Settings) -> Result<Spoken, Failure> {
    let Some(wanted) = settings.count("peer-protocol") else { return Ok(Spoken::THIS) };
    let failed = |error| Failure::of("cannot use peer-protocol", error);
    Spoken::up_to(wanted.try_into().unwrap_or(u16::MAX)).map_err(failed)
}

/// The newest version of clients' protocol that is offered.
fn client_protocol(settings: &Settings) -> Result<u16, Failure> {
    let Some(wanted) = settings.count("client-protocol") else { return Ok(*PROTOCOLS.end()) };
    let known = u16::try_from(wanted).ok().filter(|wanted| PROTOCOLS.contains(wanted));
    known.ok_or_else(|| {
        let (oldest, newest) = (PROTOCOLS.start(), PROTOCOLS.end());
        Failure::usage(format!(
            "client-protocol {wanted}: this program speaks versions {oldest} to {newest}"
        ))
    })
}

/// A FoundationDB cluster's database. Its series are shared with whichever other servers are there.
fn open_store(
    env: &Env,
    settings: &Settings,
    target: &fdb::Target,
    stop: &Arc<AtomicBool>,
) -> Result<Opened, Failure> {
    // A library that waits for its cluster may do so for ever.
    let opened = starting::interruptible(env, stop, || fdb::Foundation::open(target));
    let opened = opened.map_err(|error| Failure::of(format!("cannot open {target}"), error))?;
    opened.watch_over();
    let database = Database::new(Arc::new(opened));
    // Servers on several machines may all listen on the same loopback address.
    let number = format!("{:016x}", env.random_u64());
    let name = match public(settings) {
        Some(address) => format!("{address}/{number}"),
        None => number,
    };
    // With options of its own.
    let shared = Database::new(database.endpoint().clone());
    let among = Some(among_of(shared, name, settings)?);
    Ok(Opened { database, local: None, member: None, among })
}

/// With whom a member shares the series: with all other members, on the database of their cluster,
/// whoever leads it.
fn among(env: &Env, file: &Path, settings: &Settings) -> Result<Among, Failure> {
    let named =
        block_on(plinth::ClusterFile::read(env, file)).map_err(|error| unusable(file, error))?;
    let options = RemoteOptions {
        name: "series of a server".to_owned(),
        tls: tls_of_nodes(settings)?.unwrap_or_default(),
        ..RemoteOptions::new(env)
    };
    let endpoint = RemoteEndpoint::with_options(env, named, &options);
    // A server is told apart by where it is: no other one is there while it lives.
    let name = public(settings).map(|address| address.to_string()).unwrap_or_default();
    among_of(Database::new(Arc::new(endpoint)), name, settings)
}

/// Servers that share the series of this database.
fn among_of(database: Database, name: String, settings: &Settings) -> Result<Among, Failure> {
    let machine = public(settings).map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
    Ok(Among { database, name, machine, tls: tls_of_nodes(settings)? })
}

/// Where others find the server.
fn public(settings: &Settings) -> Option<SocketAddr> {
    settings.address("public-address").or_else(|| settings.addresses("listen").first().copied())
}

/// How the database is to be opened.
fn builder(env: &Env, settings: &Settings, dir: &Path) -> plinth::Result<Builder> {
    let engine = EngineKind::from_name(settings.text("engine").unwrap_or_default())?;
    let workers = settings.count("commit-workers").unwrap_or_else(|| commit_workers(env));
    let mut builder = Builder::new(dir).engine(engine).env(env.clone()).commit_workers(workers);
    if let Some(bytes) = settings.bytes("memory") {
        builder = builder.memory_bytes(bytes);
    }
    if let Some(milliseconds) = settings.count("slow-ms") {
        builder = builder.slow_transaction(Duration::from_millis(milliseconds as u64));
    }
    if let Some(window) = window(settings) {
        builder = builder.window(window);
    }
    Ok(builder.compression(compression(settings)))
}

/// For how long a transaction may read and commit. A version is a microsecond.
fn window(settings: &Settings) -> Option<Duration> {
    settings.count("window").map(|seconds| Duration::from_secs(seconds as u64))
}

/// How the engine `ssd` compresses. That zstd is not built in, it says itself.
fn compression(settings: &Settings) -> Compression {
    match settings.text("compression") {
        Some("none") => Compression::None,
        Some("zstd") => Compression::Zstd,
        _ => Compression::Lz4,
    }
}

/// How many commit workers a server has if nobody says. They share the processors with the threads
/// that answer clients: on two of them reads at three quarters of the peak took 0.48 ms in the
/// median with one, 0.76 ms with three (decision 9).
fn commit_workers(env: &Env) -> usize {
    (env.network_threads() / 2).clamp(1, 3)
}

fn config(
    env: &Env,
    settings: &Settings,
    (home, file): (&Home, Option<&Path>),
    usual: Option<Usual>,
) -> Result<ServerConfig, Failure> {
    let defaults = ServerConfig::default();
    let mut listen = settings.addresses("listen");
    // In front of a FoundationDB cluster clients are let in where that is said, and nowhere else.
    if let (Home::Directory(_), Some(file), true) = (home, file, listen.is_empty()) {
        listen.extend(listed(env, file)?);
        if listen.is_empty() && usual.is_none() {
            listen = defaults.listen;
        }
    }
    let limits = Limits {
        connections: settings.count("connections").unwrap_or(defaults.limits.connections),
        snapshots: settings.count("snapshots").unwrap_or(defaults.limits.snapshots),
        protocol: client_protocol(settings)?,
        ..defaults.limits
    };
    Ok(ServerConfig {
        listen,
        usual: usual.unwrap_or_default(),
        public: settings.address("public-address"),
        cluster_file: file.map(Path::to_path_buf),
        without_tls: settings.flag("without-tls"),
        tls: tls(settings)?,
        without_client_certificates: settings.flag("without-client-certificates"),
        rights: rights(settings, home)?,
        http: settings.address("http"),
        console: ConsoleConfig {
            token_file: settings
                .path("http-token")
                .or_else(|| home.token_file(settings.address("http"))),
            write: settings.flag("console-write"),
        },
        series: SeriesConfig {
            resp: settings.address("series-resp"),
            udp: settings.address("series-udp"),
            opentsdb: settings.address("series-opentsdb"),
            graphite: settings.address("series-graphite"),
            http: settings.address("series-http"),
            token_file: settings.path("series-token"),
            prefix: series_settings::prefix(settings)?,
            parts: series_settings::parts(settings)?,
            threads: settings.count("series-threads"),
            metrics: settings.flag("series-metrics"),
            retention: settings.retention("series-retention"),
            limits: series_settings::limits(settings),
            rules: RulesConfig {
                files: settings.texts("rules").into_iter().map(PathBuf::from).collect(),
                alertmanagers: settings.texts("alertmanager"),
                alertmanager_ca: settings.path("alertmanager-ca"),
                external_url: settings.text("rules-url").map(ToOwned::to_owned),
                external_labels: settings.labels("rules-labels"),
            },
            scrape: settings.path("scrape"),
            new_series: settings
                .count("series-new-limit")
                .and_then(|count| u32::try_from(count).ok()),
        },
        among: None,
        pages: Pages::default(),
        peers: None,
        limits,
    })
}

/// Who may do what, besides what the database says.
fn rights(settings: &Settings, home: &Home) -> Result<RightsConfig, Failure> {
    let operators = settings.texts("operator");
    let token_keys = settings.path("authorization-public-key-file");
    match home {
        Home::Directory(dir) => {
            Ok(RightsConfig { operators, token_keys, mark: Some(dir.join(RIGHTS_FILE)) })
        }
        Home::Store { .. } if operators.is_empty() && token_keys.is_none() => {
            Ok(RightsConfig::default())
        }
        Home::Store { .. } => Err(Failure::usage(
            "operator, authorization-public-key-file: a FoundationDB cluster knows no rights of Plinth's; whoever reaches it may everything there",
        )),
    }
}

/// How much the rows of series may take: half of the bound on the rows of all, where there is one,
/// so that series leave keys room.
fn series_rows(database: &Database, settings: &Settings) -> Option<u64> {
    let bound = settings.bytes("memory")?;
    // The other engine's memory is no bound on rows.
    (engine_of(database)? == "memory").then_some(bound / 2)
}

/// The engine that a database has, as FoundationDB calls it.
fn engine_of(database: &Database) -> Option<String> {
    let status = block_on(database.status_json()).ok()?;
    let status: serde_json::Value = serde_json::from_str(&status).ok()?;
    let engine = status.pointer("/cluster/configuration/storage_engine")?.as_str()?;
    Some(engine.to_owned())
}

/// Has the log say that a database keeps the engine it was made with, where another one is asked
/// for: whoever asked would believe that rows need no longer fit in memory.
fn tell_kept_engine(database: &Database, settings: &Settings) {
    let Some((asked, engine)) = settings.said("engine").zip(engine_of(database)) else { return };
    if !engine.starts_with(asked) {
        tracing::warn!(
            asked,
            engine,
            "the database keeps the engine it was made with; plinth migrate copies it into a new one"
        );
    }
}

/// The server's certificates, if it is to have any.
fn tls(settings: &Settings) -> Result<Option<TlsOptions>, Failure> {
    let file = |name| settings.path(name).map(Source::File);
    let options = TlsOptions {
        certificate: file("tls-cert"),
        key: file("tls-key"),
        authorities: file("tls-ca"),
        verify_peers: settings
            .text("tls-verify-peers")
            .map(ToOwned::to_owned)
            .into_iter()
            .collect(),
        password: None,
    };
    match (&options.certificate, options == TlsOptions::default()) {
        (None, true) => Ok(None),
        (None, false) => Err(Failure::usage("TLS needs the server's certificate: tls-cert")),
        (Some(_), _) => Ok(Some(options)),
    }
}

/// What a server shows the other ones of its cluster, and wants of them.
fn tls_of_nodes(settings: &Settings) -> Result<Option<TlsOptions>, Failure> {
    let rule = settings.text("tls-verify-nodes").map(|rule| vec![rule.to_owned()]);
    let with_rule = |options: TlsOptions| TlsOptions {
        verify_peers: rule.unwrap_or_else(|| options.verify_peers.clone()),
        ..options
    };
    Ok(tls(settings)?.map(with_rule))
}

/// What the cluster file says, if there is one.
fn named(env: &Env, file: &Path) -> Result<Option<plinth::ClusterFile>, Failure> {
    if !block_on(env.files().exists(file)).map_err(|error| unusable(file, error.into()))? {
        return Ok(None);
    }
    block_on(plinth::ClusterFile::read(env, file)).map(Some).map_err(|error| unusable(file, error))
}

fn unusable(file: &Path, error: plinth::Error) -> Failure {
    Failure::of(format!("cannot use the cluster file {}", file.display()), error)
}

/// The address that an existing cluster file gives the server.
fn listed(env: &Env, file: &Path) -> Result<Option<SocketAddr>, Failure> {
    let Some(named) = named(env, file)? else { return Ok(None) };
    let Some(address) = named.addresses().first() else { return Ok(None) };
    let found = block_on(address.resolve(env)).map_err(|error| unusable(file, error))?;
    Ok(found.first().copied())
}
