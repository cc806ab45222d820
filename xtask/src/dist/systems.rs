//! Packages of systems: Debian's and Fedora's, by cargo's tools for them. What goes where stands in
//! the `Cargo.toml` of the program and of the C library; here they are told which of them to make.

use crate::dist::plan::Plan;
use crate::dist::tools;
use crate::{Result, command};

/// The crates with packages, and which each has.
const DEBIAN: [(&str, &[&str]); 3] =
    [("plinth-cli", &[]), ("plinth-capi", &[]), ("plinth-capi", &["--variant", "dev"])];
const FEDORA: [(&str, &[&str]); 3] =
    [("crates/cli", &[]), ("crates/capi", &[]), ("crates/capi", &["--variant", "devel"])];

/// `plinth`, `libplinth`, `libplinth-dev`.
pub fn deb(plan: &Plan) -> Result<()> {
    let tool = tools::of_cargo(tools::CARGO_DEB)?;
    for (package, variant) in DEBIAN {
        let out = plan.out.to_string_lossy();
        let made =
            ["deb", "--quiet", "--no-build", "--no-strip", "--package", package, "--output", &out];
        let quick: &[&str] = if plan.is_release() { &[] } else { &["--fast"] };
        command::run(&tool, &[&made[..], variant, quick].concat())?;
    }
    Ok(())
}

/// `plinth`, `libplinth`, `libplinth-devel`.
pub fn rpm(plan: &Plan) -> Result<()> {
    let tool = tools::of_cargo(tools::CARGO_RPM)?;
    for (package, variant) in FEDORA {
        let (out, epoch) = (plan.out.to_string_lossy(), &plan.epoch);
        // What is needed is named there: looking into programs takes tools of Fedora's.
        let made = [
            "generate-rpm",
            "-p",
            package,
            "--auto-req",
            "disabled",
            "--source-date",
            epoch,
            "-o",
            &out,
        ];
        let quick: &[&str] = if plan.is_release() { &[] } else { &["--payload-compress", "none"] };
        command::run(&tool, &[&made[..], variant, quick].concat())?;
    }
    Ok(())
}
