//! The file with the settings of `plinth server`, read as the program reads it: from a file.
#![no_main]
#![allow(dead_code, reason = "three modules of a program, of which this uses one function")]

#[path = "../../crates/cli/src/failure.rs"]
mod failure;
#[path = "../../crates/cli/src/log_wish.rs"]
mod log_wish;
#[path = "../../crates/cli/src/settings/mod.rs"]
mod settings;

use plinth_env::{Env, TemporaryDir, block_on};
use std::path::PathBuf;
use std::sync::LazyLock;

static DIR: LazyLock<TemporaryDir> =
    LazyLock::new(|| block_on(Env::real().files().temporary_dir("plinth-fuzz")).expect("there is room for a file"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let env = Env::real();
    let file: PathBuf = DIR.path().join("plinth.toml");
    block_on(env.files().replace(&file, bytes)).expect("there is room for a file");
    let command = clap::Command::new("server").args(settings::args());
    let arguments = ["server", "--config", file.to_str().expect("the path is text")];
    let options = command.try_get_matches_from(arguments).expect("the arguments are right");
    // What is refused is told; what is accepted is used as the server does.
    match settings::Settings::read(&env, &options) {
        Ok(settings) => {
            let _ = (settings.addresses("listen"), settings.count("connections"), settings.flag("without-tls"));
        }
        Err(failure) => assert!(failure.to_string().contains("plinth.toml"), "{failure}"),
    }
});
