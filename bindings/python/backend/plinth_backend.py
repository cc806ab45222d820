"""Builds the wheel: the Python sources, the C library beside them, and the program, in one archive (PEP 427, PEP 517).

There is nothing to compile for Python itself, so a wheel is its files and a list of them, and needs no other tool.
Nothing is written into the source tree.

PLINTH_BUILT names a directory that has program and library; else cargo builds them. PLINTH_PROFILE names another of cargo's
profiles than `release`.
"""
import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
import zipfile

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARY = "libfdb_c.dylib" if sys.platform == "darwin" else "libfdb_c.so"


def get_requires_for_build_wheel(config_settings=None):
    return [] if tomllib else ["tomli"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = _project()
    built = os.environ.get("PLINTH_BUILT") or _build(os.environ.get("PLINTH_PROFILE", "release"))
    program, library = _read(built, "plinth"), _read(built, LIBRARY)
    tag = f"py3-none-{_platform(program, library)}"
    stem = f"{project['name']}-{project['version']}"
    name = f"{stem}-{tag}.whl"
    files = [(f"plinth/{LIBRARY}", library, 0o755), (f"{stem}.data/scripts/plinth", program, 0o755)]
    source = os.path.join(HERE, "source")
    for directory, _, names in sorted(os.walk(source)):
        for file in sorted(names):
            if not file.endswith(".pyc"):
                inside = os.path.relpath(os.path.join(directory, file), source).replace(os.sep, "/")
                files.append((inside, _read(directory, file), 0o644))
    info = f"{stem}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: plinth_backend\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files += [
        (f"{info}/METADATA", _metadata(project).encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/entry_points.txt", _entry_points(project).encode(), 0o644),
        (f"{info}/licenses/LICENSE", _read(ROOT, "LICENSE"), 0o644),
        (f"{info}/licenses/CHANGELOG.md", _read(ROOT, "CHANGELOG.md"), 0o644),
    ]
    _write(os.path.join(wheel_directory, name), files, f"{info}/RECORD")
    return name


def _project():
    toml = tomllib
    if toml is None:
        import tomli as toml
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as file:
        return toml.load(file)["project"]


def _build(profile):
    packages = ["--package", "plinth-capi", "--package", "plinth-cli"]
    subprocess.run(["cargo", "build", "--locked", *packages, "--profile", profile], check=True, cwd=ROOT)
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"], check=True, capture_output=True, cwd=ROOT
    )
    target = json.loads(metadata.stdout)["target_directory"]
    return os.path.join(target, "debug" if profile == "dev" else profile)


def _read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def _platform(*programs):
    """On what the programs run, as pip asks for it: on Linux that goes by the newest symbol of the C library that one of them wants.

    Whatever looks like such a symbol counts, so the tag may say less than would be true, and never more.
    """
    if sys.platform != "linux":
        return re.sub("[-.]", "_", sysconfig.get_platform())
    wanted = {int(minor) for program in programs for minor in re.findall(rb"GLIBC_2\.(\d+)", program)}
    machine = sysconfig.get_platform().split("-", 1)[1].replace("-", "_")
    return f"manylinux_2_{max(wanted | {28})}_{machine}"


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {wanted}" for wanted in project["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + _read(HERE, project["readme"]).decode()


def _entry_points(project):
    text = ""
    for group, points in project["entry-points"].items():
        text += f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
    return text


def _write(path, files, record):
    """Writes the archive, and in it the list of its files; the same files give the same bytes."""
    epoch = max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800)  # zip begins in 1980
    lines = []
    beside = path + ".new"
    with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, time.gmtime(epoch)[:6])
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)

        for name, content, mode in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            add(name, content, mode)
        add(record, "".join([*lines, f"{record},,\n"]).encode(), 0o644)
    os.replace(beside, path)
