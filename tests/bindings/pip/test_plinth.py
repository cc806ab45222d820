"""The package from outside: what it opens, its fixture, its program."""
import os
import subprocess
import sys

import fdb
import plinth
import pytest


def test_a_directory_keeps_what_was_written(tmp_path):
    path = tmp_path / "data"
    db = plinth.open(path)
    db[b"a"] = b"1"
    again = plinth.open(str(path))
    assert again[b"a"] == b"1"
    del db, again
    program = "import plinth, sys; print(bytes(plinth.open(sys.argv[1])[b'a']))"
    told = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "b'1'"


def test_a_missing_parent_directory_is_an_error(tmp_path):
    with pytest.raises(Exception) as told:
        plinth.open(tmp_path / "missing" / "data")[b"a"]
    assert getattr(told.value, "code", None) == 1511
    assert not (tmp_path / "missing").exists()


def test_each_store_in_memory_is_its_own():
    one, two = plinth.open(), plinth.open()
    one[b"a"] = b"1"
    assert two[b"a"] is None
    shared, same = plinth.open(":memory:shared"), plinth.open(":memory:shared")
    shared[b"a"] = b"2"
    assert same[b"a"] == b"2"


def test_the_fixture_is_empty(plinth_db):
    assert list(plinth_db.get_range(b"", b"\xff")) == []
    plinth_db[b"a"] = b"1"


def test_the_fixture_is_empty_for_the_next_test_too(plinth_db):
    assert list(plinth_db.get_range(b"", b"\xff")) == []


def test_it_is_the_official_database(plinth_db):
    assert isinstance(plinth_db, fdb.Database)

    @fdb.transactional
    def count(tr):
        tr.add(b"n", (1).to_bytes(8, "little"))
        return tr[b"n"]

    assert [int.from_bytes(bytes(count(plinth_db)), "little") for _ in range(3)] == [1, 2, 3]
    users = fdb.directory.create_or_open(plinth_db, ("app", "users"))
    plinth_db[users["ada"]] = b"1815"
    assert plinth_db[users["ada"]] == b"1815"


def test_a_directory_belongs_to_one_process(tmp_path):
    path = tmp_path / "data"
    db = plinth.open(path)
    program = "import plinth, sys; plinth.open(sys.argv[1])"
    told = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert told.returncode != 0 and "1529" in told.stderr
    del db


def test_an_api_version_may_be_chosen():
    program = "import plinth, fdb; db = plinth.open(api_version=630); db[b'a'] = b'1'; print(fdb._version)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "630"
    with pytest.raises(RuntimeError):
        plinth.open(api_version=630)


def test_the_program_is_there():
    program = os.path.join(os.path.dirname(sys.executable), "plinth")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert "plinth" in told.stdout


def test_the_library_and_its_types_are_there():
    assert os.path.isfile(plinth.library_path())
    assert os.path.isfile(os.path.join(os.path.dirname(plinth.__file__), "py.typed"))
    assert plinth.open.__annotations__["return"] == "Database"
