//! `plinth-sim`: runs seeds of the simulation, any number of them, and says which failed.

use plinth_sim::Caller;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let program: Vec<_> = arguments.next().into_iter().collect();
    let program = std::env::current_exe().map_or(program, |program| vec![program.into_os_string()]);
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    ExitCode::from(plinth_sim::command::run(Caller::Make, &program, &arguments))
}
