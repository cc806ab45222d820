"""Backups to an object store: a server of S3 that others wrote, as it is, and one that is at a loss now and then.

    suite.py PROGRAM [NAME...]

PROGRAM is `plinth`. Between it and moto's server stands a proxy of this file, which answers in its place, cuts connections and keeps silent as
a test tells it. What is restored is compared with what was written, row for row.
"""

import http.client
import http.server
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

from moto.server import ThreadedMotoServer

PROGRAM = sys.argv[1]
KEY, SECRET = "AKIDTEST", "verysecretword/with+slash"
ENVIRONMENT = {
    **os.environ,
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Failed(Exception):
    pass


def check(holds, what):
    if not holds:
        raise Failed(what)


class Proxy:
    """Passes requests on, but for those that a test's `fault` takes: it is called with method, path and how often that came so far."""

    def __init__(self, port):
        proxy, self.backend = self, port
        self.clear()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body=b"", headers=()):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def handle_one(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                key = f"{self.command} {self.path}"
                with proxy.lock:
                    count = proxy.seen[key] = proxy.seen.get(key, 0) + 1
                    proxy.count += 1
                fault = proxy.fault(self.command, self.path, count) if proxy.fault else None
                if fault == "cut":
                    self.close_connection = True
                    return
                if fault == "silent":
                    time.sleep(2)
                    self.close_connection = True
                    return
                if isinstance(fault, tuple):
                    return self.answer(*fault)
                backend = http.client.HTTPConnection("127.0.0.1", proxy.backend, timeout=30)
                headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
                backend.request(self.command, self.path, body, headers)
                answer = backend.getresponse()
                body = answer.read()
                if fault == "lose":
                    self.close_connection = True
                    return
                headers = [
                    (name, value)
                    for name, value in answer.getheaders()
                    if name.lower() not in ("connection", "transfer-encoding", "server", "date")
                ]
                if self.command == "HEAD":
                    self.send_response(answer.status)
                    for name, value in headers:
                        self.send_header(name, value)
                    self.end_headers()
                elif fault == "half":
                    self.send_response(answer.status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                else:
                    self.answer(answer.status, body, [h for h in headers if h[0].lower() != "content-length"])

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def clear(self):
        self.fault, self.seen, self.count, self.lock = None, {}, 0, threading.Lock()


class World:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="plinth-backup-suite-")
        self.moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
        self.moto.start()
        self.s3 = self.moto.get_host_and_port()[1]
        self.proxy = Proxy(self.s3)
        self.direct("PUT", "/shop")
        self.database, self.rows = self.path("db"), {}

    def path(self, name):
        return os.path.join(self.directory, name)

    def direct(self, method, path, body=None):
        """Asks moto itself."""
        connection = http.client.HTTPConnection("127.0.0.1", self.s3, timeout=30)
        signed = "AWS4-HMAC-SHA256 Credential=A/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
        connection.request(method, path, body, {"Authorization": signed})
        answer = connection.getresponse()
        check(answer.status < 300, (method, path, answer.status))
        return answer.status, answer.read()

    def objects(self, prefix):
        _, body = self.direct("GET", f"/shop?list-type=2&prefix={prefix}")
        return re.findall(r"<Key>([^<]*)</Key>", body.decode())

    def url(self, prefix, more=""):
        return f"s3://shop/{prefix}?endpoint=http://127.0.0.1:{self.proxy.port}&region=us-east-1{more}"

    def run(self, *arguments, code=0, environment=ENVIRONMENT):
        ended = subprocess.run(
            [PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        said = ended.stdout + ended.stderr
        check(SECRET not in said, f"the secret stands in what was said: {said}")
        check(ended.returncode == code, f"{arguments}: ended with {ended.returncode}, not {code}: {said}")
        return said

    def write(self, rows):
        """Writes rows, each by itself."""
        script = "writemode on\n" + "".join(f"set {key} {value}\n" for key, value in rows.items())
        ended = subprocess.run(
            [PROGRAM, "shell", "--create", "--dir", self.database], input=script, capture_output=True, text=True, timeout=120
        )
        check(ended.returncode == 0, ended.stderr[:2000])
        self.rows.update(rows)

    def read(self, directory):
        said = self.run("shell", "--dir", directory, "--exec", "getrange a b 100000")
        return dict(re.findall(r"`([^']*)' is `([^']*)'", said))

    def restored(self, url, *more, rows=None, environment=ENVIRONMENT):
        directory = tempfile.mkdtemp(dir=self.directory)
        self.run("restore", "-r", url, "--dest-dir", directory, *more, environment=environment)
        found, wanted = self.read(directory), self.rows if rows is None else rows
        check(found == wanted, f"{len(found)} rows, not the {len(wanted)} that were written")
        shutil.rmtree(directory)

    def backup(self, url, *more, code=0, environment=ENVIRONMENT):
        return self.run("backup", "now", "--dir", self.database, url, *more, code=code, environment=environment)

    def close(self):
        self.moto.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def some_rows(seed, count, length):
    draw = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return {f"a{n:05}": "".join(draw.choices(letters, k=length)) for n in range(count)}


def test_there_and_back(world):
    """A backup, looked at, verified, restored, added to, expired and deleted."""
    url = world.url("there/and")
    world.backup(url)
    said = world.run("backup", "describe", url)
    check("ranges       everything" in said and f"{len(world.rows)} rows" in said.replace(",", ""), said)
    check("s3://shop/there/and" in world.run("backup", "list", world.url("there")), "the listing")
    world.run("backup", "verify", url)
    world.restored(url)
    world.backup(url)
    world.run("backup", "expire", url, "--before", "9000000000000000000")
    described = json.loads(world.run("backup", "describe", url, "--json"))
    check(len(described["snapshots"]) == 1, described)
    world.restored(url)
    world.run("backup", "delete", url)
    check(world.objects("there/") == [], world.objects("there/"))


def test_foundationdb_url_and_credentials(world):
    """`blobstore://`, with the secret in the URL, in a file, and wrongly."""
    place = f"127.0.0.1:{world.proxy.port}/old?bucket=shop&region=us-east-1&secure_connection=0"
    bare = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("AWS_")}
    said = world.backup(f"blobstore://{KEY}:word@{place}", environment=bare)
    check(":word@" not in said, said)
    file = world.path("credentials")
    with open(file, "w") as out:
        accounts = {f"{KEY}@127.0.0.1:{world.proxy.port}": {"secret": SECRET}}
        json.dump({"accounts": accounts}, out)
    url = f"blobstore://{KEY}@{place}"
    world.restored(url, "--blob-credentials", file, environment=bare)
    world.run("backup", "verify", url, environment={**bare, "FDB_BLOB_CREDENTIALS": file})
    said = world.run("backup", "describe", url, code=2, environment=bare)
    check("--blob-credentials" in said, said)
    for wrong in [url.replace("bucket=shop&", ""), "s3://", url + "&what=1", "ftp://x"]:
        world.run("backup", "describe", wrong, code=2, environment={**bare, "FDB_BLOB_CREDENTIALS": file})


def test_faults_that_pass(world):
    """Every request fails once, in one way after the other: nothing of that is seen."""
    busy = (503, b"<Error><Code>SlowDown</Code></Error>", [("Retry-After", "1")])
    faults = [(500, b"no"), "cut", busy, "half", (429, b"", [("Retry-After", "1")]), "lose", "silent"]
    url = world.url("faulty", "&request_timeout=1")
    draw = random.Random(3)
    for command in [lambda: world.backup(url), lambda: world.run("backup", "verify", url), lambda: world.restored(url)]:
        world.proxy.clear()
        world.proxy.fault = lambda method, path, count: draw.choice(faults) if count == 1 and draw.random() < 0.3 else None
        command()
    world.proxy.clear()


def test_half_an_upload(world):
    """A large file goes up in parts; when those end in the middle there is no file, and no snapshot."""
    url = world.url("half", "&request_tries=2")
    lost = lambda method, path, count: (500, b"") if "partNumber=2" in path else None
    world.proxy.fault = lost
    said = world.backup(url, code=1)
    check("500" in said, said)
    world.proxy.clear()
    check(not [name for name in world.objects("half/snapshots/") if name.endswith(".manifest")], "a manifest")
    check("nothing: there is no whole snapshot" in world.run("backup", "describe", url), "restorable")
    # The answer to the request that completes it is lost: it was carried out all the same.
    world.proxy.fault = lambda method, path, count: "lose" if method == "POST" and "uploadId" in path and count == 1 else None
    world.backup(url)
    check(any("partNumber=2" in key for key in world.proxy.seen), "nothing went up in parts")
    world.proxy.clear()
    world.run("backup", "verify", url)
    world.restored(url)


def test_a_store_that_is_gone_or_refuses(world):
    """What is said when nothing helps, and that no more is asked than was allowed."""
    url = world.url("gone", "&request_tries=2")
    world.proxy.fault = lambda method, path, count: (500, b"<Error><Code>InternalError</Code><Message>Sorry</Message></Error>")
    said = world.backup(url, code=1)
    check("InternalError: Sorry" in said and world.proxy.count == 2, (world.proxy.count, said))
    world.proxy.fault = lambda method, path, count: (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
    world.proxy.count = 0
    said = world.backup(url, code=1)
    check("SignatureDoesNotMatch" in said and world.proxy.count == 1, (world.proxy.count, said))
    world.proxy.clear()
    check("there is no backup in s3://shop/gone" in world.run("backup", "describe", url, code=1), "describe")
    said = world.run("backup", "describe", "s3://nosuchbucket/x?" + url.split("?")[1], code=1)
    check("nosuchbucket" in said, said)


def test_damaged_swapped_and_missing(world):
    """Each is named by `verify`, and nothing is restored from it."""
    url = world.url("damaged")
    world.backup(url, "--workers", "1")
    name = [name for name in world.objects("damaged/snapshots/") if name.endswith(".rows")][0]
    path = f"/shop/{name}"
    manifest = [name for name in world.objects("damaged/snapshots/") if name.endswith(".manifest")][0]
    _, whole = world.direct("GET", path)
    _, other = world.direct("GET", f"/shop/{manifest}")
    flipped = whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]
    for contents in [flipped, whole[:-1], other, None]:
        if contents is None:
            world.direct("DELETE", path)
        else:
            world.direct("PUT", path, contents)
        said = world.run("backup", "verify", url, code=3)
        check(name.removeprefix("damaged/") in said, said)
        directory = world.path("not")
        said = world.run("restore", "-r", url, "--dest-dir", directory, code=1)
        check("rows" in said, said)
        check(not os.path.exists(directory), "something was restored")
    world.direct("PUT", path, whole)
    world.restored(url)


def test_two_backups_on_one_place(world):
    """The second one is refused while the first is at it; ranges and databases aren't mixed."""
    url = world.url("two")
    world.backup(url)
    said = world.backup(url, "-k", "a a1", code=1)
    check("take a place of its own" in said, said)
    other = world.path("other")
    world.run("shell", "--create", "--dir", other, "--exec", "writemode on; set a1 b")
    said = world.run("backup", "now", "--dir", other, url, code=1)
    check("another database" in said, said)
    # A backup that stands still in the middle of its work, and goes on.
    held = threading.Event()

    def slow(method, path, count):
        if method == "PUT" and ".rows" in path and not held.is_set():
            held.set()
            time.sleep(8)

    world.proxy.fault = slow
    copy = world.path("copy")
    shutil.copytree(world.database, copy)
    first = subprocess.Popen([PROGRAM, "backup", "now", "--dir", world.database, url], env=ENVIRONMENT, stdout=subprocess.PIPE)
    check(held.wait(20), "the first one never put rows")
    said = world.run("backup", "now", "--dir", copy, url, code=1)
    check("is written by process" in said, said)
    check(first.wait(60) == 0, "the first one failed")
    world.proxy.clear()
    world.run("backup", "verify", url)


def main():
    wanted = sys.argv[2:]
    tests = {name.removeprefix("test_"): run for name, run in globals().items() if name.startswith("test_")}
    counts, world = [0, 0], World()
    try:
        world.write(some_rows(1, 230, 60_000))
        for name, run in tests.items():
            if wanted and not any(part in name for part in wanted):
                continue
            began = time.monotonic()
            try:
                run(world)
                counts[0] += 1
                print(f"test {name} ... ok ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception:
                counts[1] += 1
                print(f"test {name} ... FAILED", flush=True)
                traceback.print_exc()
            world.proxy.clear()
    finally:
        world.close()
    word = "FAILED" if counts[1] else "ok"
    print(f"test result: {word}. {counts[0]} passed; {counts[1]} failed; 0 ignored")
    sys.exit(1 if counts[1] else 0)


main()
