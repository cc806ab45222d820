//! The Python package, by its own build backend, which is handed what was built.

use crate::dist::plan::{Plan, remove};
use crate::{Result, command};
use std::path::Path;
use std::process::Command;

/// `plinth-0.1.0-py3-none-manylinux_2_28_x86_64.whl`.
pub fn wheel(plan: &Plan) -> Result<()> {
    for old in std::fs::read_dir(&plan.out).into_iter().flatten().flatten() {
        if old.path().extension().is_some_and(|end| end == "whl") {
            std::fs::remove_file(old.path())
                .map_err(|e| format!("remove {}: {e}", old.path().display()))?;
        }
    }
    let program = format!(
        "import plinth_backend; plinth_backend.build_wheel({:?})",
        plan.out.to_string_lossy()
    );
    let mut python = Command::new("python3");
    python.args(["-c", &program]).current_dir("bindings/python");
    python.env("PYTHONPATH", "backend").env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("PLINTH_BUILT", plan.built()).env("SOURCE_DATE_EPOCH", &plan.epoch);
    command::finish(&mut python)?;
    remove(Path::new("bindings/python/backend/__pycache__"))
        .map_err(|e| format!("tidy up behind python: {e}"))
}
