# For each suite's `run` to read in, from the root of the repository: which library is tested, and where to install.
#   PLINTH_LIBRARY  directory of a libfdb_c.so that is built already; else it is built
#   PLINTH_TARGET   the database that suites open: a directory, a cluster file (:memory:)
# A suite that can't run on this machine says why in its last line and ends with status 77.
skip() {
    echo "$1"
    exit 77
}

root=$PWD
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
installed=$target/bindings
mkdir -p "$installed"

if [ -z "${PLINTH_LIBRARY:-}" ]; then
    cargo build --quiet --package plinth-capi --profile checked
    PLINTH_LIBRARY=$target/checked
fi
# Before the loader's other places; the official packages bring no library of their own on Linux.
LD_LIBRARY_PATH=$PLINTH_LIBRARY${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
DYLD_LIBRARY_PATH=$PLINTH_LIBRARY
PLINTH_TARGET=${PLINTH_TARGET:-:memory:}
export LD_LIBRARY_PATH DYLD_LIBRARY_PATH PLINTH_LIBRARY PLINTH_TARGET
