//! `cargo xtask packages`: everything that can be handed to people, in `target/packages`, from the
//! repository and package registries alone.
//!
//! ```text
//!   cargo build, once, for an older C library -> stripped, its size and its symbols judged     build.rs
//!     `-> a root with all files                                                               stage.rs, install.rs
//!           |-> plinth_0.1.0-1_amd64.deb, libplinth, libplinth-dev; the same as rpm            systems.rs
//!           |-> plinth-0.1.0-x86_64-linux.tar.gz, and -debug.tar.gz for debuggers              archives.rs
//!           |-> plinth-0.1.0-py3-none-manylinux_2_28_x86_64.whl                                wheel.rs
//!           `-> plinth-0.1.0-image-amd64.tar, an OCI layout                                    image.rs
//!     plinth-chart-0.1.0.tgz, plinth-0.1.0-source.tar.gz, plinth.rb, SHA256SUMS                archives.rs
//! ```
//! `packages-test` makes them and tries what this machine can, as a user would: `trial.rs`. With
//! another profile than `release` the same way is gone with programs that are there already, which
//! is how `make test` does it; those packages are nobody's.

mod archives;
mod build;
mod image;
pub mod plan;
mod stage;
mod systems;
pub mod tools;
mod trial;
mod wheel;

use crate::Result;
use plan::{Kind, Plan};

/// Makes packages of a kind.
type Maker = fn(&Plan) -> Result<()>;

/// `cargo xtask packages`.
pub fn run(arguments: &[&str]) -> Result<bool> {
    let plan = Plan::new(arguments)?;
    make(&plan)?;
    println!("packages are in {}", plan.out.display());
    Ok(true)
}

/// `cargo xtask packages-test`.
pub fn test(arguments: &[&str]) -> Result<bool> {
    let plan = Plan::new(arguments)?;
    make(&plan)?;
    trial::run(&plan)
}

fn make(plan: &Plan) -> Result<()> {
    plan::remove(&plan.out).map_err(|e| format!("remove {}: {e}", plan.out.display()))?;
    build::build(plan)?;
    stage::lay_out(plan)?;
    let makers: [(Kind, Maker); 7] = [
        (Kind::Tarball, archives::tarball),
        (Kind::Deb, systems::deb),
        (Kind::Rpm, systems::rpm),
        (Kind::Wheel, wheel::wheel),
        (Kind::Image, image::image),
        (Kind::Chart, archives::chart),
        (Kind::Formula, archives::formula),
    ];
    for (kind, maker) in makers {
        if plan.wants(kind) {
            let begun = std::time::Instant::now();
            maker(plan)?;
            println!("made {kind:?} in {:.1} s", begun.elapsed().as_secs_f64());
        }
    }
    archives::sums(plan)
}
