# For each suite's `run` to read in, from the root of the repository: which library is tested, and where to install.
#   PLINTH_LIBRARY  directory of a libfdb_c.so and a program `plinth` that are built already; else they are built
#   PLINTH_TARGET   the database that suites open: a directory, a cluster file (:memory:), or `new`: a new directory; or
#                   `server`: one is started; or `cluster`: three are, as one database
#   PLINTH_ENGINE   the engine of `new` or of `server` (memory)
#   PLINTH_KILL_SECONDS  of a cluster one server after the other is killed so often, and started again; what runs in no loop of
#                   retries then meets with 1021
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
    # As `cargo xtask test` has built them: other features would have most crates built once more.
    cargo build --quiet --workspace --all-features --lib --bin plinth --profile checked
    PLINTH_LIBRARY=$target/checked
fi
# Before the loader's other places; the official packages bring no library of their own on Linux.
LD_LIBRARY_PATH=$PLINTH_LIBRARY${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
DYLD_LIBRARY_PATH=$PLINTH_LIBRARY
PLINTH_TARGET=${PLINTH_TARGET:-:memory:}

if [ "$PLINTH_TARGET" = new ]; then
    served=$(mktemp -d "${TMPDIR:-/tmp}/plinth-new-XXXXXX")
    trap 'rm -rf "$served"' EXIT
    trap 'exit 1' INT TERM
    PLINTH_TARGET="$served/data?engine=${PLINTH_ENGINE:-memory}"
fi
# A server of a new database on a free port, which ends with the suite: so no suite may `exec` in this shell's place.
if [ "$PLINTH_TARGET" = server ]; then
    served=$(mktemp -d "${TMPDIR:-/tmp}/plinth-served-XXXXXX")
    mkfifo "$served/ready"
    "$PLINTH_LIBRARY/plinth" server --engine "${PLINTH_ENGINE:-memory}" --listen 127.0.0.1:0 --dir "$served/data" \
        --cluster-file "$served/fdb.cluster" >"$served/ready" &
    server=$!
    trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$served"' EXIT
    trap 'exit 1' INT TERM
    # Read and written: the server's later words go nowhere, and don't stop it.
    exec 9<>"$served/ready"
    read -r word rest <&9
    [ "$word" = ready ] || { echo "the server said: $word $rest"; exit 1; }
    PLINTH_TARGET=$served/fdb.cluster
fi
# Three servers as one database.
if [ "$PLINTH_TARGET" = cluster ]; then
    served=$(mktemp -d "${TMPDIR:-/tmp}/plinth-cluster-XXXXXX")
    "$PLINTH_LIBRARY/plinth" dev --nodes 3 --respawn --dir "$served/data" >"$served/said" 2>"$served/events" &
    server=$!
    trap 'kill $killer $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$served"' EXIT
    trap 'exit 1' INT TERM
    killer=
    waited=0
    while ! grep -q "^Ctrl-C" "$served/said" 2>/dev/null; do
        kill -0 $server 2>/dev/null && [ $waited -lt 120 ] || { cat "$served/said" "$served/events"; exit 1; }
        sleep 1
        waited=$((waited + 1))
    done
    if [ -n "${PLINTH_KILL_SECONDS:-}" ]; then
        (
            turn=0
            while sleep "$PLINTH_KILL_SECONDS"; do
                turn=$((turn % 3 + 1))
                pkill -9 -f "server --dir $served/data/node-$turn " 2>/dev/null || true
            done
        ) &
        killer=$!
    fi
    PLINTH_TARGET=$(sed -n 's/^ready //p' "$served/said")
    PLINTH_SERVERS=3
    export PLINTH_SERVERS
fi
export LD_LIBRARY_PATH DYLD_LIBRARY_PATH PLINTH_LIBRARY PLINTH_TARGET
