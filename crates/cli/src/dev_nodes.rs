//! `plinth dev --nodes 3`: a cluster on one machine to try things with.
//!
//! It lives as long as this process does. A server that is killed is told of, and started again
//! with `--respawn`; the others go on.

use crate::failure::{Failure, tell};
use crate::interrupt;
use crate::nodes::Nodes;
use crate::terminal::{self, Terminal};
use plinth::block_on;
use plinth_env::Env;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How soon it is noticed that a server has ended, or somebody asks for the end.
const TICK: Duration = Duration::from_millis(50);

/// Starts so many servers in a directory, and goes on until somebody asks for the end.
pub fn run(env: &Env, dir: &Path, count: usize, respawn: bool) -> Result<u8, Failure> {
    let stop = interrupt::flag();
    let mut nodes = Nodes::start(env, dir, count, false)?;
    announce(&nodes)?;
    while !stop.load(Ordering::Relaxed) {
        block_on(env.sleep(TICK));
        while let Some((at, status)) = nodes.ended() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let number = at + 1;
            tell(format_args!("server {number} has ended ({status})"));
            if respawn {
                nodes.spawn(at)?;
                nodes.until_ready(at)?;
                tell(format_args!("server {number} serves again"));
            }
        }
    }
    nodes.end();
    Ok(0)
}

fn announce(nodes: &Nodes) -> Result<(), Failure> {
    let terminal = Terminal::stdout();
    let file = std::path::absolute(nodes.cluster_file()).unwrap_or_else(|_| nodes.cluster_file());
    let leader = nodes.leader()?;
    let line = |(at, (address, id)): (usize, (String, Option<u32>))| {
        let leads = if at == leader { "  leads" } else { "" };
        format!("  server {}  {address}  process {}{leads}\n", at + 1, id.unwrap_or_default())
    };
    let servers: String = nodes.list().into_iter().enumerate().map(line).collect();
    let export = terminal.code(&format!("export FDB_CLUSTER_FILE={}", file.display()));
    let console = terminal.code(&format!("http://{}", nodes.console()));
    let kill = terminal.code("kill -9 PROCESS");
    let again = terminal.code(&nodes.command_line(leader));
    terminal::print(&format!(
        "ready {}\n{servers}\
         To see inside the first, open its console in a browser:\n  {console}\n\
         Clients find all by the cluster file. In another terminal:\n  {export}\n\
         To see that one of them may go at any time:\n  {kill}\n\
         And come back (with --respawn by itself):\n  {again}\n\
         Ctrl-C ends them.\n",
        file.display()
    ))
}
