"""Builds the wheel: maturin makes it of the program and the Python sources, and the C library is put beside these.

Nothing is written into the source tree: the library goes from cargo's target directory straight into the wheel.
PLINTH_PROFILE names another of cargo's profiles than `release`.
"""
import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile

import maturin
from maturin import get_requires_for_build_wheel, prepare_metadata_for_build_wheel  # noqa: F401

LIBRARY = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    profile = os.environ.get("PLINTH_PROFILE", "release")
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {profile}")
    name = maturin.build_wheel(wheel_directory, settings, metadata_directory)
    _add(os.path.join(wheel_directory, name), f"plinth/{LIBRARY}", _library(profile))
    return name


def _library(profile):
    # With the program, so that what both use is built once.
    packages = ["--package", "plinth-capi", "--package", "plinth-cli"]
    subprocess.run(["cargo", "build", *packages, "--profile", profile], check=True)
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"], check=True, capture_output=True
    )
    target = json.loads(metadata.stdout)["target_directory"]
    with open(os.path.join(target, "debug" if profile == "dev" else profile, LIBRARY), "rb") as file:
        return file.read()


def _add(wheel, name, content):
    """Adds a file to a wheel and to the wheel's list of its files."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    beside = wheel + ".new"
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                data = f"{name},sha256={digest},{len(content)}\n".encode() + data
            new.writestr(entry, data, zipfile.ZIP_DEFLATED)
        new.writestr(name, content)
    os.replace(beside, wheel)
