"""What needs processes of its own: opening, sharing and locking a directory, ending with work in flight, forks."""
import os
import subprocess
import sys
import tempfile

import fdb
from support import another

START = "import fdb, sys, os, threading; fdb.api_version(730); db = fdb.open(sys.argv[1]);"


def _run(program, target, timeout=60):
    command = [sys.executable, "-c", START + program, target]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def _passes(program, target):
    result = _run(program, target)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_data_outlives_its_process(db):
    with tempfile.TemporaryDirectory() as directory:
        target = os.path.join(directory, "data")
        _passes("db[b'a'] = b'1'", target)
        _passes("db[b'b'] = b'2'; os._exit(0)", target)
        assert _passes("print(bytes(db[b'a']), bytes(db[b'b']))", target) == "b'1' b'2'"


def test_a_name_says_where_a_store_is_and_how_it_is_opened(db):
    with tempfile.TemporaryDirectory() as directory:
        for name, code, words in [
            ("none/sub/db", "(1511)", "none/sub/db: the directory above it"),
            ("fdb.clustr", "(1511)", "fdb.clustr: is a cluster file meant?"),
            ("db?create=false", "(1511)", os.path.join(directory, "db")),
            ("db?speed=high", "(2007)", 'there is no option "speed=high"'),
            ("db?engine=disk", "(2006)", 'there is no storage engine "disk"'),
        ]:
            result = _run("db[b'a']", os.path.join(directory, name))
            told = result.stderr.strip().splitlines()[-1]
            assert result.returncode != 0 and code in told and words in told, (name, result.stderr)
        assert os.listdir(directory) == []
        target = os.path.join(directory, "db")
        _passes("db[b'a'] = b'1'", target + "?engine=ssd&memory=64MiB")
        assert os.path.exists(os.path.join(target, "gen-1", "tables"))
        assert _passes("print(bytes(db[b'a']))", target + "?create=false") == "b'1'"
        identity = os.path.join(target, "IDENTITY")
        with open(identity, "r+b") as file:
            file.write(b"not what was written")
        result = _run("db[b'a']", target)
        told = result.stderr.strip().splitlines()[-1]
        assert result.returncode != 0 and "(1522)" in told and identity in told, result.stderr


def test_one_directory_is_opened_once_in_a_process(db):
    with tempfile.TemporaryDirectory() as directory:
        link = os.path.join(directory, "link")
        target = os.path.join(directory, "data")
        os.symlink(target, link)
        one, two = another(target), another(link)
        one[b"k"] = b"v"
        assert two[b"k"] == b"v"
        result = _run("db[b'k']", target)
        assert result.returncode != 0 and "1529" in result.stderr, result.stderr
        if sys.platform == "linux":
            assert "is locked by process %d (" % os.getpid() in result.stderr, result.stderr
        tr = one.create_transaction()
        del one, two
        again = another(target)
        assert tr[b"k"] == b"v" and again[b"k"] == b"v"
        del again, tr
        assert _passes("print(bytes(db[b'k']))", target) == "b'v'"


def test_stores_in_memory(db):
    one, two = another(), another()
    one[b"k"] = b"1"
    assert two[b"k"] is None
    shared, same = another(":memory:name"), another(":memory:name")
    shared[b"k"] = b"2"
    assert same[b"k"] == b"2" and one[b"k"] == b"1"


def test_the_environment_names_the_database(db):
    with tempfile.TemporaryDirectory() as directory:
        program = "import fdb; fdb.api_version(730); fdb.open()[b'a'] = b'1'"
        environment = dict(os.environ, FDB_CLUSTER_FILE=os.path.join(directory, "data"))
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
        assert _passes("print(bytes(db[b'a']))", environment["FDB_CLUSTER_FILE"]) == "b'1'"
        environment["FDB_NETWORK_OPTION_TRACE_FORMAT"] = "yaml"
        result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        assert result.returncode != 0 and "2022" in result.stderr, result.stderr


def test_a_process_ends_with_work_in_flight(db):
    _passes(
        "tr = db.create_transaction(); watches = [tr.watch(b'%d' % i) for i in range(100)]; tr.commit().wait();"
        "[watch.on_ready(lambda f: None) for watch in watches];"
        "many = [db.create_transaction() for i in range(100)];"
        "[tr.set(b'k', b'v') for tr in many]; commits = [tr.commit() for tr in many];"
        "[commit.on_ready(lambda f: None) for commit in commits];"
        "threading.Thread(target=lambda: [db.set(b'x', b'y') for i in range(10**9)], daemon=True).start()",
        ":memory:",
    )


def test_a_fork_does_not_hang(db):
    assert (
        _passes(
            "db[b'a'] = b'1'\npid = os.fork()\nif pid == 0: os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), bytes(db[b'a']))",
            ":memory:",
        )
        == "7 b'1'"
    )
    assert (
        _passes(
            "db[b'a'] = b'1'\npid = os.fork()\nif pid == 0: sys.exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), bytes(db[b'a']))",
            ":memory:",
        )
        == "7 b'1'"
    )


def test_api_versions(db):
    program = "import fdb, sys; fdb.api_version(int(sys.argv[1])); db = fdb.open(':memory:'); db[b'a'] = b'1'; print(bytes(db[b'a']))"
    for version in (510, 520, 600, 610, 620, 630, 700, 710, 720, 730):
        command = [sys.executable, "-c", program, str(version)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert result.stdout.strip() == "b'1'", (version, result.stderr)
    result = subprocess.run([sys.executable, "-c", program, "9000"], capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    library = fdb.impl._capi
    assert library.fdb_select_api_version_impl(730, 730) == 2201
    assert library.fdb_get_max_api_version() >= 740
