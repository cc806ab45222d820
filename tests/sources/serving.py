"""What the suite starts: a server that keeps its ports when it is killed, and what asks it."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request


class Failed(Exception):
    pass


def equal(found, wanted, what=""):
    if found != wanted:
        raise Failed(f"{what}: found {str(found)[:2000]}, not {str(wanted)[:2000]}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(what, seconds=30):
    """Asks again and again until something is there, and gives it."""
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def get(url, form=None, method=None):
    """Status, headers and text of a request."""
    body = urllib.parse.urlencode(form, doseq=True).encode() if form is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, method=method), timeout=30) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def prometheus_data(url, path, **form):
    status, _, text = get(f"{url}/api/v1/{path}", form)
    if status != 200:
        raise Failed(f"{path} {form}: {status} {text[:500]}")
    return json.loads(text)["data"]


def raw_points(url, selector, seconds, at):
    """Every point of each series, as {labels: [[time, text], ...]}."""
    data = prometheus_data(url, "query", query=f"{selector}[{seconds}s]", time=at)
    equal(data["resultType"], "matrix")
    return {tuple(sorted(series["metric"].items())): series["values"] for series in data["result"]}


class Child:
    """A program that ends with the test, whose words are kept."""

    def __init__(self, directory, name, command, **options):
        self.log_file = os.path.join(directory, f"{name}.log")
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **options)

    def log(self):
        with open(self.log_file, errors="replace") as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()


class Server:
    """A server of a new database, on ports that it keeps."""

    def __init__(self, program):
        self.program = program
        self.directory = tempfile.mkdtemp(prefix="plinth-sources-")
        self.http_port, self.tsdb_port, self.port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.child = None

    def start(self):
        self.child = Child(self.directory, "plinth", [
            self.program, "server", "--dir", os.path.join(self.directory, "data"), "--listen", f"127.0.0.1:{self.port}",
            "--series-http", f"127.0.0.1:{self.http_port}", "--series-opentsdb", f"127.0.0.1:{self.tsdb_port}",
            "--series-metrics=false",
        ])
        if not until(lambda: self.is_there()):
            raise Failed(f"the server does not answer: {self.child.log()}")

    def is_there(self):
        try:
            return get(f"{self.url}/-/ready")[0] == 200
        except OSError:
            return False

    def kill(self):
        self.child.kill()

    def points(self, metric, kind="select"):
        """The points of a metric's series as {name: {nanoseconds: text}}, each as exactly as it is kept."""
        query = {kind: metric, "range": {"from": 0, "to": "22000101T000000"}, "output": {"format": "csv", "timestamp": "raw"}}
        request = urllib.request.Request(f"{self.url}/api/query", json.dumps(query).encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        if text.startswith("-"):
            raise Failed(f"{metric}: {text}")
        found = {}
        for line in text.splitlines():
            name, when, value = re.fullmatch(r"(.*?),ts=(\d+),(.*)", line).groups()
            found.setdefault(name, {})[int(when)] = value
        return found

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.child.process.poll() is None:
            self.child.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
