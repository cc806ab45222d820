"""FoundationDB's Python API on a Plinth database: a directory, a store in memory, or a server.

``open`` hands back the official package's ``Database``. The C library below that package is Plinth's from the moment
this module is imported, so import it before ``fdb`` has opened anything.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from fdb.impl import Database

__all__ = ["library_path", "open"]

_FILE = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"


def library_path() -> str:
    """Where the C library lies, for programs of other languages too."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), _FILE)


# The loader hands out a library that is loaded already to whoever asks for it by name, as `fdb` does.
_library = ctypes.CDLL(library_path(), mode=ctypes.RTLD_GLOBAL)


def open(path: Union[str, "os.PathLike[str]"] = ":memory:", api_version: Optional[int] = None) -> Database:
    """Opens a database: a directory (made if there is none), a FoundationDB cluster file, or, by default, memory.

    Each call with ``:memory:`` gives an empty database of its own; ``:memory:NAME`` is shared by its name while it is
    open. A directory is opened once in a process, however often it is asked for; another process gets error 1529.

    The API version is selected at the first call, and holds for the process: the package's newest, unless one is given or
    ``fdb.api_version`` was called before.
    """
    import fdb
    from fdb.apiversion import LATEST_API_VERSION

    if api_version is not None or not fdb.is_api_version_selected():
        fdb.api_version(LATEST_API_VERSION if api_version is None else api_version)
    import fdb.impl

    _check(fdb.impl._capi)
    with fdb.impl._network_thread_reentrant_lock:
        if not fdb.impl._network_thread:
            fdb.impl.init()
    # Not fdb.open: that keeps every database it ever opened, and gives the same one for the same name.
    return fdb.impl.create_database(os.fspath(path))


def _check(loaded: ctypes.CDLL) -> None:
    """Fails if `fdb` has loaded another C library before this module was imported."""
    version = loaded.fdb_get_client_version
    restype, version.restype = version.restype, ctypes.c_char_p
    told = version()
    version.restype = restype
    if b"plinth" not in told:
        raise ImportError(f"fdb uses another C library, {told.decode()}: import plinth before anything opens a database")
