"""Backups to an object store: a server of S3 that others wrote, as it is, and one that is at a loss now and then.

    suite.py PROGRAM [NAME...]

PROGRAM is `plinth`. Between it and moto's server stands a proxy of this file, which answers in its place, cuts connections and keeps silent as
a test tells it. What is restored is compared with what was written, row for row.
"""

import concurrent.futures
import copy
import http.client
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

import stores
from moto.server import ThreadedMotoServer
from stores import Failed, Proxy, Unavailable, check

PROGRAM = sys.argv[1]
KEY, SECRET = "AKIDTEST", "verysecretword/with+slash"
ENVIRONMENT = {
    **os.environ,
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


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

    def url(self, prefix, more="", proxy=None):
        port = (proxy or self.proxy).port
        return f"s3://shop/{prefix}?endpoint=http://127.0.0.1:{port}&region=us-east-1{more}"

    def run(self, *arguments, code=0, environment=ENVIRONMENT):
        ended = subprocess.run(
            [PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        said = ended.stdout + ended.stderr
        check(SECRET not in said, f"the secret stands in what was said: {said}")
        check(ended.returncode == code, f"{arguments}: ended with {ended.returncode}, not {code}: {said}")
        return said

    def write(self, rows, where=None):
        """Writes rows, each by itself, into the world's database or another one."""
        script = "writemode on\n" + "".join(f"set {key} {value}\n" for key, value in rows.items())
        command = [PROGRAM, "shell", *(where or ["--create", "--dir", self.database])]
        ended = subprocess.run(command, input=script, capture_output=True, text=True, timeout=120)
        check(ended.returncode == 0, ended.stderr[:2000])
        if where is None:
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

    def there_and_back(self, url, environment=ENVIRONMENT):
        """A backup, looked at, verified, restored, added to, expired and deleted."""
        run = lambda *arguments, code=0: self.run("backup", *arguments, code=code, environment=environment)
        self.backup(url, environment=environment)
        said = run("describe", url)
        check("ranges       everything" in said and f"{len(self.rows)} rows" in said.replace(",", ""), said)
        run("verify", url)
        self.restored(url, environment=environment)
        self.backup(url, environment=environment)
        run("expire", url, "--before", "9000000000000000000")
        described = json.loads(run("describe", url, "--json"))
        check(len(described["snapshots"]) == 1, described)
        self.restored(url, environment=environment)
        run("delete", url, code=1)
        run("delete", url, "--yes")
        check("there is no backup in" in run("describe", url, code=1), "something is left")

    def apart(self, name):
        """The same world, with a copy of the database, which one process at a time can open."""
        other = copy.copy(self)
        other.database = shutil.copytree(self.database, self.path(f"db-{name}"))
        return other

    def close(self):
        self.moto.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def some_rows(seed, count, length):
    draw = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return {f"a{n:05}": "".join(draw.choices(letters, k=length)) for n in range(count)}


def test_there_and_back(world):
    """A backup's whole life."""
    url = world.url("there/and")
    world.there_and_back(url)
    check(world.objects("there/") == [], world.objects("there/"))
    world.backup(url)
    check("s3://shop/there/and" in world.run("backup", "list", world.url("there")), "the listing")


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


def with_faults(world, proxy, url, environment=ENVIRONMENT):
    """Requests fail once, in one way after the other: nothing of that is seen."""
    busy = (503, b"<Error><Code>SlowDown</Code></Error>", [("Retry-After", "1")])
    faults = [(500, b"no"), "cut", busy, "half", (429, b"", [("Retry-After", "1")]), "lose", "silent"]
    draw = random.Random(3)
    verify = lambda: world.run("backup", "verify", url, environment=environment)
    restored = lambda: world.restored(url, environment=environment)
    for command in [lambda: world.backup(url, environment=environment), verify, restored]:
        proxy.clear()
        proxy.fault = lambda method, path, count: draw.choice(faults) if count == 1 and draw.random() < 0.3 else None
        command()
    proxy.clear()


def test_faults_that_pass(world):
    """Faults of a store that speaks S3."""
    with_faults(world, world.proxy, world.url("faulty", "&request_timeout=1"))


def test_another_s3(world):
    """The same with another server of S3, which looks at signatures."""
    program = stores.program("S3S_FS")
    root = world.path("s3s")
    os.makedirs(os.path.join(root, "shop"))
    command = lambda port: [program, "--host", "127.0.0.1", "--port", port, "--access-key", KEY, "--secret-key", SECRET, root]
    server = stores.Process(command, world.path("s3s.log"))
    try:
        proxy = Proxy(server.port)
        url = lambda name: f"s3://shop/{name}?endpoint=http://127.0.0.1:{proxy.port}&region=us-east-1"
        world.there_and_back(url("there/and"))
        with_faults(world, proxy, url("faulty") + "&request_timeout=1")
        wrong = {**ENVIRONMENT, "AWS_SECRET_ACCESS_KEY": "another"}
        said = world.backup(url("wrong"), code=1, environment=wrong)
        check("SignatureDoesNotMatch" in said, said)
    finally:
        server.end()


def test_azure(world):
    """The same with Azure's own stand-in for its store."""
    program = stores.program("AZURITE_BLOB")
    command = lambda port: [
        *[program, "--blobHost", "127.0.0.1", "--blobPort", port, "--inMemoryPersistence"],
        *["--skipApiVersionCheck", "--disableTelemetry", "--silent"],
    ]
    server = stores.Process(command, world.path("azurite.log"))
    try:
        stores.make_container(server.port, "shop")
        proxy = Proxy(server.port)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{proxy.port}",
        }
        world.there_and_back("az://shop/there/and", environment)
        with_faults(world, proxy, "az://shop/faulty?request_timeout=1", environment)
        said = world.run("backup", "describe", "az://nosuch/x", code=1, environment=environment)
        check("nosuch" in said, said)
    finally:
        server.end()


def test_google(world):
    """The same by the requests of Google's store, with a service account and with a machine's credentials."""
    google = stores.Google(world.s3)
    file = world.path("account.json")
    with open(file, "w") as out:
        out.write(google.account())
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_"))}
    environment = {**bare, "GOOGLE_SERVICE_ACCOUNT": file}
    world.there_and_back("gs://shop/google/and", environment)
    check(google.accounts > 10 and google.conditions > 1, (google.accounts, google.conditions))
    check(world.objects("google/") == [], world.objects("google/"))
    with_faults(world, google, "gs://shop/google?request_timeout=1", environment)
    said = world.run("backup", "describe", "gs://nosuch/x", code=1, environment=environment)
    check("nosuch" in said, said)
    # Parts that end in the middle.
    google.fault = lambda method, path, count: (500, b"") if "partNumber=2" in path else None
    said = world.backup("gs://shop/half?request_tries=2", code=1, environment=environment)
    check("500" in said, said)
    check(not [name for name in world.objects("half/snapshots/") if name.endswith(".manifest")], "a manifest")
    google.clear()
    place = {"GCE_METADATA_HOST": f"127.0.0.1:{google.port}", "GOOGLE_BASE_URL": f"http://127.0.0.1:{google.port}"}
    on_machine = {**bare, **place, "HOME": world.directory}
    world.backup("gs://shop/of-a-machine", environment=on_machine)
    world.restored("gs://shop/of-a-machine", environment=on_machine)
    check(google.machines > 0, "no machine's credentials")
    # Another account's key.
    with open(file, "w") as out:
        out.write(stores.Google(world.s3).account())
    wrong = {**environment, "GOOGLE_BASE_URL": f"http://127.0.0.1:{google.port}"}
    said = world.run("backup", "describe", "gs://shop/google", code=1, environment=wrong)
    check("AuthenticationRequired" in said and "PRIVATE KEY" not in said, said)


def test_tls(world):
    """A store behind TLS: with its authority, without, and under another name."""
    authority, certificate = stores.certificates(world.directory)
    proxy = Proxy(world.s3, certificate)
    url = lambda host: f"s3://shop/tls?endpoint=https://{host}:{proxy.port}&region=us-east-1&request_tries=1"
    trusting = {**ENVIRONMENT, "SSL_CERT_FILE": authority}
    world.backup(url("localhost"), environment=trusting)
    world.restored(url("localhost"), environment=trusting)
    place = f"blobstore://{KEY}:{SECRET}@localhost:{proxy.port}/tls-too?bucket=shop&region=us-east-1"
    world.backup(place, environment=trusting)
    for host, environment in [("localhost", ENVIRONMENT), ("127.0.0.1", trusting)]:
        proxy.count = 0
        said = world.run("backup", "describe", url(host), code=1, environment=environment)
        check("certificate" in said and proxy.count == 0, said)


class Served:
    """A server of a new database, which does a continuous backup."""

    def __init__(self, world, url, environment):
        self.world, directory = world, tempfile.mkdtemp(dir=world.directory)
        self.rows, self.file = {}, os.path.join(directory, "fdb.cluster")
        command = [PROGRAM, "server", "--listen", "127.0.0.1:0", "--dir", os.path.join(directory, "data")]
        command += ["--cluster-file", self.file, "--log", "text,debug"]
        self.log = os.path.join(directory, "log")
        with open(self.log, "w") as log:
            self.child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        said = self.child.stdout.readline()
        check(said.startswith("ready "), said)
        self.write("a", 20)
        self.command("backup", "start", "-d", url, "--wait", environment=environment)

    def command(self, *arguments, environment=ENVIRONMENT):
        return self.world.run(*arguments, "--cluster-file", self.file, environment=environment)

    def write(self, prefix, count):
        rows = {f"a{prefix}{n:05}": f"{prefix}{n}" for n in range(count)}
        self.world.write(rows, ["--cluster-file", self.file])
        self.rows.update(rows)

    def status(self):
        return json.loads(self.command("backup", "status", "--json"))

    def until(self, what, is_so):
        for _ in range(240):
            status = self.status()
            if is_so(json.dumps(status)):
                return
            time.sleep(0.25)
        raise Failed(f"never {what}: {status}")

    def end(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        with open(self.log) as log:
            said = log.read()
        check("default" in said and SECRET not in said, f"the server's log: {said[:5000]}")


def test_credentials_that_end(world):
    """The store takes the credentials no longer, in the middle: the log is kept, and goes there once the file has others."""
    file = world.path("ending")
    proxy = Proxy(world.s3)
    host = f"127.0.0.1:{proxy.port}"

    def give(token):
        with open(file + ".new", "w") as out:
            json.dump({"accounts": {f"{KEY}@{host}": {"secret": SECRET, "token": token}}}, out)
        os.replace(file + ".new", file)

    bare = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("AWS_")}
    environment = {**bare, "FDB_BLOB_CREDENTIALS": file}
    url = f"blobstore://{KEY}@{host}/ending?bucket=shop&region=us-east-1&secure_connection=0"
    give("first")
    proxy.token = "first"
    served = Served(world, url, environment)
    try:
        proxy.token = "second"
        served.write("b", 20)
        served.until("told", lambda status: "ExpiredToken" in status)
        check(proxy.refused > 0, "nothing was refused")
        give("second")
        served.until("taken up again", lambda status: "ExpiredToken" not in status)
        served.write("c", 20)
        served.command("backup", "discontinue", "--wait", environment=environment)
    finally:
        served.end()
    world.run("backup", "verify", url, environment=environment)
    world.restored(url, rows=served.rows, environment=environment)


def test_a_secret_in_the_url(world):
    """It is in the database, and is shown by nothing that tells of the backup: neither while that goes well nor when it doesn't."""
    proxy = Proxy(world.s3)
    place = f"127.0.0.1:{proxy.port}/secret?bucket=shop&region=us-east-1&secure_connection=0"
    served = Served(world, f"blobstore://{KEY}:{SECRET}@{place}", ENVIRONMENT)
    try:
        for _ in range(2):
            for words in (["backup", "status"], ["backup", "status", "--json"], ["shell", "--exec", "status json"]):
                said = served.command(*words)
                check(proxy.fault or "/secret" in said or words[0] == "shell", said)
            proxy.fault = lambda method, path, count: (403, b"<Error><Code>AccessDenied</Code></Error>")
            served.write("b", 5)
            served.until("told", lambda status: "AccessDenied" in status)
    finally:
        served.end()


def test_a_full_target(world):
    """No room in the store, once and for a while: no snapshot is left that isn't whole, and a continuous backup goes on without a gap."""
    full = (507, b"<Error><Code>XMinioStorageFull</Code><Message>Storage backend has reached its minimum free drive.</Message></Error>")
    no_room = lambda method, path, count: full if method in ("PUT", "POST") else None
    no_rows = lambda method, path, count: full if method in ("PUT", "POST") and ".rows" in path else None
    proxy = Proxy(world.s3)
    url = world.url("full", proxy=proxy)
    proxy.fault = no_rows
    said = world.backup(url, code=1)
    check("XMinioStorageFull" in said, said)
    check(not [name for name in world.objects("full/snapshots/") if name.endswith(".manifest")], "a manifest")
    proxy.clear()
    url = world.url("full-again", proxy=proxy)
    served = Served(world, url, ENVIRONMENT)
    try:
        proxy.fault = no_room
        served.write("b", 20)
        served.until("told", lambda status: "XMinioStorageFull" in status)
        proxy.clear()
        served.until("taken up again", lambda status: "XMinioStorageFull" not in status)
        served.write("c", 20)
        served.command("backup", "discontinue", "--wait")
    finally:
        served.end()
    world.run("backup", "verify", url)
    world.restored(url, rows=served.rows)


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


def test_no_sooner_than_asked(world):
    """A store that wants to be left alone for a while is, for as long as it said, whatever it answers."""
    url = world.url("later")
    world.backup(url)
    for status in (429, 503):
        asked = []

        def busy(method, path, count):
            if "backup.id" in path:
                asked.append(time.monotonic())
                return (status, b"", [("Retry-After", "3")]) if len(asked) == 1 else None

        world.proxy.fault = busy
        world.run("backup", "describe", url)
        check(len(asked) > 1 and asked[1] - asked[0] >= 3, (status, asked))
        world.proxy.clear()


def test_damaged_swapped_and_missing(world):
    """Each is named by `verify`, and nothing is restored from it; a whole file in another one's place is one, too."""
    url = world.url("damaged")
    world.backup(url, "--workers", "1")
    name = [name for name in world.objects("damaged/snapshots/") if name.endswith(".rows")][0]
    path = f"/shop/{name}"
    manifest = [name for name in world.objects("damaged/snapshots/") if name.endswith(".manifest")][0]
    _, whole = world.direct("GET", path)
    _, other = world.direct("GET", f"/shop/{manifest}")
    # The file of the same name of a later snapshot, of a row that has changed since. That snapshot goes, or it would be restored.
    before = dict(world.rows)
    world.write({"a00000": "later"})
    world.backup(url, "--workers", "1")
    later = [place for place in world.objects("damaged/snapshots/") if os.path.dirname(place) != os.path.dirname(name)]
    same = [place for place in later if os.path.basename(place) == os.path.basename(name)]
    _, swapped = world.direct("GET", f"/shop/{same[0]}")
    for place in later:
        world.direct("DELETE", f"/shop/{place}")
    flipped = whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]
    for contents in [flipped, whole[:-1], other, swapped, None]:
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
    world.restored(url, rows=before)


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
    twin = world.path("copy")
    shutil.copytree(world.database, twin)
    first = subprocess.Popen([PROGRAM, "backup", "now", "--dir", world.database, url], env=ENVIRONMENT, stdout=subprocess.PIPE)
    check(held.wait(20), "the first one never put rows")
    said = world.run("backup", "now", "--dir", twin, url, code=1)
    check("is written by process" in said, said)
    check(first.wait(60) == 0, "the first one failed")
    world.proxy.clear()
    world.run("backup", "verify", url)


# These have proxies of their own, and wait for the most part: they run beside the others.
APART = ["another_s3", "azure", "google", "credentials_that_end", "a_secret_in_the_url", "a_full_target"]


def run_one(world, name, run):
    """Gives what is said of a test, and 0, 1 or 2 if it passed, failed or can't be run here."""
    began = time.monotonic()
    try:
        run(world)
        return f"test {name} ... ok ({time.monotonic() - began:.1f} s)", 0
    except Unavailable as why:
        return f"test {name} ... ignored: {why}", 2
    except Exception:
        return f"test {name} ... FAILED\n{traceback.format_exc()}", 1


def main():
    wanted = sys.argv[2:]
    tests = {name.removeprefix("test_"): run for name, run in globals().items() if name.startswith("test_")}
    tests = {name: run for name, run in tests.items() if not wanted or any(part in name for part in wanted)}
    counts, world = [0, 0, 0], World()

    def told(said, which):
        counts[which] += 1
        print(said, flush=True)

    try:
        world.write(some_rows(1, 230, 60_000))
        with concurrent.futures.ThreadPoolExecutor(len(APART)) as threads:
            worlds = {name: world.apart(name) for name in tests if name in APART}
            apart = [threads.submit(run_one, own, name, tests[name]) for name, own in worlds.items()]
            for name, run in tests.items():
                if name not in APART:
                    told(*run_one(world, name, run))
                    world.proxy.clear()
            for ended in apart:
                told(*ended.result())
    finally:
        world.close()
    word = "FAILED" if counts[1] else "ok"
    print(f"test result: {word}. {counts[0]} passed; {counts[1]} failed; {counts[2]} ignored")
    sys.exit(1 if counts[1] else 0)


main()
