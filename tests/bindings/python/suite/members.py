"""What special keys say of the servers of a cluster, and do to them: three are there (PLINTH_TARGET=cluster)."""
import ctypes
import json
import pathlib
import tempfile
import time

import fdb
from support import api, rows

SPECIAL = b"\xff\xff/"
PROCESSES = SPECIAL + b"configuration/coordinators/processes"


def _keys(db, prefix):
    prefix = SPECIAL + prefix
    return [key[len(prefix):] for key, _ in rows(db.get_range(prefix, prefix + b"\xff"))]


def _get(db, key):
    return bytes(db[SPECIAL + key])


def _servers(db):
    return _keys(db, b"worker_interfaces/")


@fdb.transactional
def _manage(tr, change):
    tr.options.set_special_key_space_enable_writes()
    change(tr)


def _named(connection_string):
    """The servers that the line of a cluster file names."""
    return sorted(connection_string.strip().split(b"@")[1].split(b","))


def _set(db, key, value=b""):
    _manage(db, lambda tr: tr.set(SPECIAL + key, value))


def _refused(db, key, value, words):
    """A write that can't come to be is refused, and error_message says why."""
    tr = db.create_transaction()
    while True:
        tr.options.set_special_key_space_enable_writes()
        tr[SPECIAL + key] = value
        try:
            tr.commit().wait()
        except fdb.FDBError as error:
            if error.code == 2117:
                break
            # Another server may have begun to lead meanwhile.
            tr.on_error(error).wait()
        else:
            raise AssertionError(f"{key} was written")
    told = json.loads(bytes(tr[SPECIAL + b"error_message"]))
    assert not told["retriable"] and words in told["message"], told


def _until(found, wanted):
    for _ in range(600):
        is_so = found()
        if is_so == wanted:
            return
        time.sleep(0.05)
    raise AssertionError(f"{is_so}, expected {wanted}")


def test_all_servers_are_processes_and_coordinators(db):
    servers = _servers(db)
    assert len(servers) == 3, servers
    assert [bytes(value) for _, value in rows(db.get_range(SPECIAL + b"worker_interfaces/", SPECIAL + b"worker_interfaces0"))] == servers
    coordinators = sorted(bytes(db[PROCESSES]).split(b","))
    assert coordinators == sorted(servers)
    # The file may be from a moment at which others voted: who was excluded before is named again a while after it has its vote back.
    _until(lambda: _named(_get(db, b"connection_string")), sorted(servers))
    assert sorted(_get(db, b"management/auto_coordinators").split(b",")) == sorted(servers)
    status = json.loads(_get(db, b"status/json"))
    assert sorted(process["address"].encode() for process in status["cluster"]["processes"].values()) == sorted(servers)
    assert len(status["client"]["coordinators"]["coordinators"]) == 3
    _until(lambda: json.loads(_get(db, b"status/json"))["client"]["cluster_file"]["up_to_date"], True)


@api(740)
def test_how_many_may_fail_is_told_by_itself(db):
    def spare():
        told = json.loads(_get(db, b"metrics/fault_tolerance_metrics_json"))
        return told["max_zone_failures_without_losing_data"]

    _until(spare, 1)


def test_a_server_is_excluded_and_included(db):
    servers = _servers(db)
    server = servers[1]
    _set(db, b"management/excluded/" + server)
    assert _keys(db, b"management/excluded/") == [server]
    # It comes to be step by step: until then it is in progress.
    _until(lambda: _keys(db, b"management/in_progress_exclusion/"), [])
    _until(lambda: server in bytes(db[PROCESSES]).split(b","), False)
    assert server in _servers(db), "it is there, and only votes no more"
    _manage(db, lambda tr: tr.clear(SPECIAL + b"management/excluded/" + server))
    assert _keys(db, b"management/excluded/") == []
    _until(lambda: len(bytes(db[PROCESSES]).split(b",")), 3)
    # Others find them by the file, which is replaced as a whole.
    file = pathlib.Path(_get(db, b"cluster_file_path").decode())
    _until(lambda: _named(file.read_bytes()), sorted(servers))


def test_what_can_not_be_is_refused_in_words(db):
    servers = _servers(db)
    nobody = b"127.0.0.1:1"
    _refused(db, b"management/excluded/" + nobody, b"", "no server at 127.0.0.1:1")
    _refused(db, b"management/failed/" + nobody, b"", "no server at 127.0.0.1:1")
    _refused(db, b"management/excluded/127.0.0.1", b"", "No voter would be left")
    processes = b"configuration/coordinators/processes"
    _refused(db, processes, b",".join(servers[:2] + [nobody]), "no server at 127.0.0.1:1")
    _refused(db, processes, b",".join(servers[:2]), "survive no more")
    _refused(db, processes, b",".join(servers[:2] + servers[:1]), "twice")
    assert _keys(db, b"management/excluded/") == _keys(db, b"management/failed/") == []
    # What is already so may be asked for.
    _set(db, processes, b",".join(servers))
    # Whoever is named keeps its vote: nobody is from now on.
    _manage(db, lambda tr: tr.clear(SPECIAL + processes))


def test_a_server_begins_anew_and_nobody_misses_it(db):
    capi = fdb.impl._capi
    capi.fdb_database_reboot_worker.restype = ctypes.c_void_p
    capi.fdb_database_reboot_worker.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int]

    def reboot(address, duration=0):
        future = fdb.impl.FutureInt64(capi.fdb_database_reboot_worker(db.dpointer, address, len(address), 0, duration))
        return future.wait()

    assert reboot(b"127.0.0.1:1") == 0
    server = _servers(db)[2]
    assert reboot(server, 5) == 0, "none holds still for a while"
    began = time.monotonic()
    assert reboot(server) == 1
    # What it says itself: the others may not notice that it was away.
    with tempfile.NamedTemporaryFile(suffix=".cluster") as file:
        file.write(_get(db, b"connection_string").split(b"@")[0] + b"@" + server + b"\n")
        file.flush()
        alone = fdb.open(file.name)

        def is_new():
            status = json.loads(_get(alone, b"status/json"))
            uptime = status["cluster"].get("plinth", {}).get("server", {}).get("uptime_seconds")
            return uptime is not None and uptime < time.monotonic() - began

        db[b"a"] = b"1"
        _until(is_new, True)
    assert db[b"a"] == b"1"
