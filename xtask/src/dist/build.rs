//! One build of the program and the C library, which all packages share: linked for an older C
//! library than this machine's, stripped, and held to their size.

use crate::dist::plan::{Plan, library, remove};
use crate::dist::tools;
use crate::{Result, cargo, command, elf, install};
use std::path::PathBuf;

/// Builds, and puts program, library and their debugging information into [`Plan::built`].
pub fn build(plan: &Plan) -> Result<()> {
    let is_portable = plan.is_release() && cfg!(target_os = "linux");
    let from = match &plan.from {
        Some(built) => built.clone(),
        None if is_portable => portable()?,
        None => native(&plan.profile)?,
    };
    let to = plan.built();
    let made = remove(&to).and_then(|()| std::fs::create_dir_all(&to));
    made.map_err(|e| format!("make {}: {e}", to.display()))?;
    for name in [install::program(), library()] {
        let stripped = to.join(&name);
        if elf::can_split() {
            elf::split(&from.join(&name), &stripped, &to.join(format!("{name}.debug")))?;
        } else {
            std::fs::copy(from.join(&name), &stripped).map_err(|e| format!("copy {name}: {e}"))?;
        }
        if plan.is_release() {
            elf::check_size(&stripped)?;
        }
        if is_portable {
            elf::check_portable(&stripped)?;
        }
    }
    Ok(())
}

/// With zig as the linker, which knows every version of the C library.
fn portable() -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (major, minor) = elf::GLIBC;
    let target = format!("{triple}.{major}.{minor}");
    let mut build = cargo::command();
    tools::search_first(&mut build, &tools::zig()?);
    build.args(["zigbuild", "--locked", "--release", "--target", &target]);
    build.args(["--package", "plinth-cli", "--package", "plinth-capi"]);
    build.args(["--features", cargo::PACKAGED]);
    command::finish(&mut build)?;
    Ok(install::target().join(triple).join("release"))
}

fn native(profile: &str) -> Result<PathBuf> {
    if !cargo::build_products(profile)? {
        return Err("the build failed".to_owned());
    }
    Ok(install::target().join(if profile == "dev" { "debug" } else { profile }))
}
