"""The console, clicked through in a real browser: what a person would look at, with figures that move.

    suite.py PROGRAM BROWSER [NAME...]

Each test has a server of its own kind and one page. Whatever the page complains of in the browser's own log (an
exception, something that its policy has blocked) fails the test as well.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request

from browser import Browser, Failed

PROGRAM, BROWSER = sys.argv[1:3]
SHOTS = os.environ.get("PLINTH_SHOTS")


class Skipped(Exception):
    """Why a test can't be run here."""


class SmallDisk:
    """A file system of its own, which can be filled."""

    def __init__(self, size):
        self._directory = tempfile.TemporaryDirectory(prefix="plinth-console-disk-")
        self.path = self._directory.name
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path]
        if not hasattr(os, "geteuid") or os.geteuid() != 0 or subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
            raise Skipped("a file system of its own takes the right to mount")

    def fill(self):
        with open(os.path.join(self.path, "others"), "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass

    def make_room(self):
        os.remove(os.path.join(self.path, "others"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path])
        self._directory.cleanup()


class Server:
    """A server of a new database, with the console."""

    def __init__(self, *options, disk=None):
        self._directory = tempfile.TemporaryDirectory(prefix="plinth-console-data-", dir=disk and disk.path)
        data = os.path.join(self._directory.name, "data")
        self._cluster_file = os.path.join(data, "fdb.cluster")
        self.token_file = os.path.join(self._directory.name, "token")
        options = [option.replace("TOKEN", self.token_file) for option in options]
        self._process = subprocess.Popen(
            [PROGRAM, "server", "--dir", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE, text=True,
        )
        ready = self._process.stdout.readline().split()
        if ready[:1] != ["ready"]:
            raise Failed(f"the server said {ready}")
        self.address = ready[-1]
        # Where points of time series are taken in, if they are.
        self.resp = None
        if "--series-resp" in options:
            said = self._process.stdout.readline().split()
            if said[:2] != ["series", "resp"]:
                raise Failed(f"the server said {said}")
            host, port = said[2].rsplit(":", 1)
            self.resp = (host, int(port))

    def post(self, path, body):
        headers = {"Content-Type": "application/json", "X-Plinth-Console": "1"}
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def set(self, key, value):
        self.post("/api/set", {"key": key, "value": value})

    def points(self, name, points):
        """Sends points, of seconds and a value, and hears that they are there."""
        lines = "".join(f"+{name}\n:{int(time * 1000) * 1000000}\n+{value}\n" for time, value in points)
        with socket.create_connection(self.resp, timeout=10) as connection:
            connection.sendall((lines + "+SYNC\n").encode())
            said = connection.recv(100).decode()
        if said != f"+OK {len(points)}\r\n":
            raise Failed(f"points were answered by {said}")

    def series(self, *words):
        """Has the command line do something with series."""
        place = ["--cluster-file", self._cluster_file]
        subprocess.run([PROGRAM, "series", *words, *place], check=True, stdout=subprocess.DEVNULL, timeout=60)

    def stop(self):
        self._process.terminate()
        self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self._process.stdout.close()
        self._directory.cleanup()


class Cluster:
    """Three servers of a new cluster, each with a console."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="plinth-console-data-")
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.members = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        for one in sockets:
            one.close()
        cluster_file = os.path.join(self._directory.name, "fdb.cluster")
        with open(cluster_file, "w") as file:
            file.write(f"console:three@{','.join(self.members)}\n")
        self._processes = [
            subprocess.Popen(
                [PROGRAM, "server", "--dir", os.path.join(self._directory.name, str(number)), "--listen", member,
                 "--cluster-file", cluster_file, "--http", "127.0.0.1:0"],
                stdout=subprocess.PIPE, text=True,
            )
            for number, member in enumerate(self.members)
        ]
        self.addresses = [self._page(process) for process in self._processes]

    def _page(self, process):
        """Where the console is, once the server is ready; before it says whom it waits for."""
        line = next((line for line in process.stdout if line.startswith("ready")), None)
        if not line:
            raise Failed("a server of the cluster has ended")
        address = line.split()[-1]
        # It may have yet to hear from the one that leads who may look at it.
        for _ in range(200):
            try:
                urllib.request.urlopen(address + "/api/overview", timeout=10).close()
                return address
            except urllib.error.HTTPError:
                time.sleep(0.05)
        raise Failed(f"the console at {address} shows nothing")

    def kill(self, number):
        self._processes[number].kill()
        self._processes[number].wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for number, process in enumerate(self._processes):
            self.kill(number)
            process.stdout.close()
        self._directory.cleanup()


class Load:
    """Commits, one after another, until it ends."""

    def __init__(self, server):
        self._end = threading.Event()

        def run():
            number = 0
            while not self._end.is_set():
                server.set(f"load/{number % 50:02}", str(number))
                number += 1

        self._thread = threading.Thread(target=run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def equal(found, wanted):
    if found != wanted:
        raise Failed(f"found {found!r}, not {wanted!r}")


def serving(browser):
    browser.wait("document.getElementById('health').dataset.state === 'serving'", "health is shown")


# A figure of the headline as a number; the text has thin spaces and units.
FIGURE = "[...document.querySelectorAll('#figures div')].find((one) => one.firstChild.textContent === {name!r}).querySelector('dd span').textContent"
# Labels of charts' values that begin left of their chart, where they are cut.
CUT = """[...document.querySelectorAll('.chart svg')].flatMap((svg) => [...svg.querySelectorAll('.amount')].filter((label) =>
    label.getBoundingClientRect().left < svg.getBoundingClientRect().left).map((label) => label.textContent)).join()"""
POINTS = "Number(document.querySelectorAll('.chart')[{chart}].querySelector('.line')?.dataset.points ?? 0)"


def live_figures_move_and_charts_have_points(browser):
    with Server("--console-write") as server:
        browser.open(server.address)
        serving(browser)
        with Load(server):
            committed = FIGURE.format(name="Commits")
            browser.wait(f"parseFloat({committed}) > 0", "commits are counted")
            first = browser.run(committed)
            browser.wait(f"{committed} !== {first!r}", "the figure moves")
            for chart in [0, 2, 8, 9]:
                points = browser.wait(POINTS.format(chart=chart) + " >= 3", f"chart {chart} has points")
            browser.wait(POINTS.format(chart=5) + " >= 2", "syncs of the log have percentiles")
            while "MB/s" not in browser.run("document.querySelectorAll('.chart')[10].textContent"):
                server.set("large", "x" * 90_000)
            equal(browser.run(CUT), "")
            browser.point(".chart svg", 0.97)
            browser.wait("document.querySelectorAll('.chart .cursor').length >= 6", "all charts show the moment")
            browser.run("document.querySelector('.chart svg').focus()")
            browser.press("ArrowLeft", 37)
            browser.wait("document.querySelectorAll('.chart .cursor').length >= 6")
            label = browser.run("document.querySelector('.chart svg').getAttribute('aria-label')")
            if "now" not in label:
                raise Failed(f"a chart is not told in words: {label}")
            picture(browser, "light")
            # The history is the server's: a page just opened has it.
            browser.open(server.address)
            browser.wait(POINTS.format(chart=0) + " >= 3", "a page just opened shows the last minutes")
            browser.click("#span label:nth-of-type(3) span")
            equal(browser.run("document.querySelector('#span input:checked').value"), "600")


def keys_are_browsed_and_decoded(browser):
    with Server("--console-write") as server:
        for number in range(1, 61):
            server.set(f"\\x02users\\x00\\x15\\x{number:02x}\\x05\\x02name\\x00\\x00\\xff\\x00", f"user {number}")
        server.set("\\x01raw\\x00\\xff\\xfe\\x00", "\\x07\\x00\\x00\\x00")
        server.set("plain/1 tuple", "\\x02Ada\\x00\\x16\\x07\\x17")
        server.set("plain/2 counter", "\\x15\\x00\\x00\\x00\\x00\\x00\\x00\\x00")
        server.set("plain/<b>key</b>", "<img src=x onerror=alert(1)>")
        browser.open(server.address + "/#keys")
        rows = "[...document.querySelectorAll('#rows tr')].map((row) => row.cells[0].textContent)"
        browser.wait(f"{rows}.length === 50", "a page of keys")
        equal(browser.run(rows)[:3], ['(b"raw\\x00\\xfe")', '("users", 1, ("name", null))', '("users", 2, ("name", null))'])
        picture(browser, "keys")
        browser.click("#next")
        browser.wait(f"{rows}.length === 14", "the next page")
        values = browser.run("[...document.querySelectorAll('#rows tr')].slice(-3).map((row) => row.cells[1].textContent)")
        equal(values[:2], ['("Ada", 1815)', "\\x15" + "\\x00" * 7])
        equal(browser.run(rows)[-1], "plain/<b>key</b>")
        browser.click("#previous")
        browser.wait(f"{rows}.length === 50", "and back")
        browser.type("#range [name=prefix]", '("users", 7)')
        browser.click("#range .primary")
        browser.wait(f"{rows}.length === 1", "a tuple as the prefix")
        equal(browser.run(rows), ['("users", 7, ("name", null))'])
        browser.click("#rows button")
        browser.wait("document.querySelector('#entry[open] dl')?.textContent.includes('user 7')", "the whole value")
        browser.press("Escape", 27)
        browser.type("#range [name=prefix]", "")
        browser.click("#range [name=reverse]")
        browser.wait(f"{rows}[0] === 'plain/<b>key</b>'", "the last key first")
        browser.type("#range [name=prefix]", "broken\\x0")
        browser.press("Enter", 13)
        browser.wait("!document.getElementById('keys-error').hidden", "a broken escape is told")
        browser.complaints = [said for said in browser.complaints if "400" not in said]
        browser.type("#range [name=prefix]", "nowhere")
        browser.press("Enter", 13)
        browser.wait("document.getElementById('no-rows').textContent === 'No keys in this range.'")


def long_keys_take_three_lines_and_are_whole_in_their_own_view(browser):
    with Server("--console-write") as server:
        server.set("long/" + "k" * 9000, "v" * 9000)
        server.set("short", "v")
        browser.open(server.address + "/#keys")
        browser.wait("document.querySelectorAll('#rows tr').length === 2", "both keys")
        heights = browser.run("[...document.querySelectorAll('#rows tr')].map((row) => row.getBoundingClientRect().height)")
        if not heights[1] < heights[0] < 5 * heights[1]:
            raise Failed(f"the rows of a long and a short key are {heights} pixels high")
        browser.click("#rows button")
        browser.wait(f"document.querySelector('#entry[open] dl')?.textContent.includes('{'k' * 9000}')", "the whole key")
        browser.press("Escape", 27)


def keys_are_changed_only_after_a_second_click(browser):
    with Server("--console-write") as server:
        server.set("k", "old")
        browser.open(server.address + "/#keys")
        browser.wait("document.querySelectorAll('#rows tr').length === 1")
        browser.wait("!document.getElementById('new-key').hidden")
        browser.click("#rows button")
        browser.wait("document.querySelector('#entry textarea') !== null")
        browser.type("#entry textarea", "new")
        browser.click("#entry .primary")
        equal(browser.run("document.querySelector('#entry .primary').textContent"), "Really save it")
        browser.click("#entry .primary")
        browser.wait("document.querySelector('#rows tr')?.cells[1].textContent === 'new'", "the new value")
        browser.click("#rows button")
        browser.wait("document.querySelector('#entry .danger') !== null")
        browser.click("#entry .danger")
        browser.click("#entry .danger")
        browser.wait("document.querySelectorAll('#rows tr').length === 0", "the key is gone")
        browser.open("about:blank")
    with Server() as server:
        browser.open(server.address + "/#keys")
        serving(browser)
        equal(browser.run("document.getElementById('new-key').hidden"), True)


SERIES = ["--series-resp", "127.0.0.1:0"]
DRAWN = "Number(document.querySelector('#series-chart .line')?.dataset.points ?? 0)"
SAID = "document.querySelector('#series-chart svg').getAttribute('aria-label')"
FOUND = "[...document.querySelectorAll('#series-found button[data-name]')].map((one) => one.textContent)"
# What stands above the plot: of each series its name, unless it is alone, and a figure; and the colours of its lines.
TOLD = "[...document.querySelectorAll('#series-chart .readout')].map((one) => [...one.querySelectorAll('.name, .value')].map((part) => part.textContent).join(' '))"
TONES = "[...document.querySelectorAll('#series-chart .line')].map((one) => one.classList[1])"


def series_are_found_by_typing_and_drawn_as_they_grow(browser):
    with Server(*SERIES) as server:
        now = time.time()
        for host in ["a", "b", "c"]:
            server.points(f"cpu.user host={host} region=eu", [(now - 3000 + step * 10, 10 + step % 7 / 8) for step in range(300)])
        server.points("idle host=a", [(now - 90 * 86400, 5), (now - 80 * 86400, 7)])
        browser.open(server.address)
        serving(browser)
        browser.wait("!document.getElementById('to-series').hidden", "the view is offered")
        browser.click("#to-series")
        found = FOUND
        browser.wait(f"{found}.includes('cpu.user') && {found}.includes('idle')", "metrics")
        browser.type("#series-name", "cpu.u")
        browser.wait(f"{found}.length === 1", "fewer as one types")
        browser.click("#series-found button")
        browser.wait(f"{found}.length === 3", "the series of the metric")
        browser.type("#series-name", "cpu.user region=eu host=b")
        browser.wait(f"{found}.length === 1", "the one with these tags")
        browser.press("Enter", 13)
        browser.wait(f"{DRAWN} >= 100", "it is drawn")
        equal(browser.run("document.getElementById('series-title').textContent"), "cpu.user host=b region=eu")
        browser.wait("document.querySelector('#series-chart .band')?.getAttribute('d') !== null", "with a band")
        picture(browser, "series")
        # What comes in meanwhile is shown without being asked for.
        server.points("cpu.user host=b region=eu", [(time.time(), 4321)])
        browser.wait(f"{SAID}.includes('now 4321')", "it goes on")
        browser.point("#series-chart svg", 0.5)
        browser.wait("document.querySelector('#series-chart .cursor') !== null", "a moment is read")
        browser.run("document.querySelector('#series-chart svg').focus()")
        browser.press("ArrowLeft", 37)
        browser.wait("document.querySelector('#series-chart .when').textContent !== 'over the time shown'")
        browser.click("#series-rate")
        browser.wait(f"{SAID}.includes('rate per second')", "as a rate")
        browser.click("#series-rate")
        # By its address, over all of its time.
        browser.open("about:blank")
        browser.open(server.address + "/#series/idle%20host%3Da")
        serving(browser)
        browser.wait("document.querySelector('#series-chart .words')?.textContent === 'nothing measured yet' || document.querySelector('#series-chart .words')?.textContent === 'no samples yet'", "an hour without points")
        browser.click("#series-span label:nth-of-type(5) span")
        browser.wait(f"{DRAWN} === 2", "all there is")
        browser.type("#series-name", "nowhere")
        browser.wait("document.getElementById('series-summary').textContent === 'No metric like that'")
        browser.open("about:blank")
        browser.open(server.address + "/#series/no%20such%3Done")
        browser.wait("document.getElementById('series-error').textContent.includes('there is no series')", "a name that there is not")
        # The page asks again each second, in case the series comes to be: it is left before what it said is passed over.
        browser.open("about:blank")
        browser.complaints = [said for said in browser.complaints if "404" not in said]
    with Server() as server:
        browser.open(server.address)
        serving(browser)
        equal(browser.run("document.getElementById('to-series').hidden"), True)


def figures_are_of_all_that_is_shown_or_of_the_moment_pointed_at(browser):
    with Server(*SERIES) as server:
        now = time.time()
        # Nine points in one place, and a lone one long before them.
        server.points("m a=1", [(now - 3000, 0)] + [(now - 60 + step / 100, 100 + step) for step in range(9)])
        browser.open(server.address + "/#series/m%20a%3D1")
        serving(browser)
        browser.wait(f"{DRAWN} >= 2", "it is drawn")
        # Weighted by how many points there are: (9 * 104 + 0) / 10.
        equal(browser.run(TOLD), ["mean 93.6", "least 0", "greatest 108", "points 10"])
        browser.run("document.querySelector('#series-chart svg').focus()")
        browser.point("#series-chart svg", 0.3)
        browser.wait(f"{TOLD}.join() === 'mean 0,least 0,greatest 0,points 1'", "the lone one")
        browser.press("Escape", 27)
        browser.wait(f"{TOLD}[0] === 'mean 93.6'", "all again")


def series_are_put_beside_each_other_and_taken_away(browser):
    with Server(*SERIES) as server:
        now = time.time()
        names = [f"cpu.user host={host}" for host in ["a", "b", "c", "d", "e", "f", "g", "x&y/z%"]]
        for number, name in enumerate(names):
            server.points(name, [(now - 3000 + step * 10, 10 * number + step % 2) for step in range(290)])
        browser.open(server.address + "/#series/cpu.user%20host%3Da")
        serving(browser)
        browser.wait(f"{DRAWN} >= 100 && {FOUND}.length === 1", "one is drawn")
        equal(browser.run("document.querySelectorAll('#series-chart .band').length"), 1)
        browser.type("#series-name", "cpu.user ")
        browser.wait(f"{FOUND}.length === 8", "all of the metric")
        toggle = "#series-found button[data-toggle='cpu.user host={}']"
        equal(browser.run(f"document.querySelector(\"{toggle.format('a')}\").disabled"), True)
        # By mouse, by keyboard. What was looked for once more may be answered between the press and the release of a button.
        answered = "performance.getEntriesByType('resource').some((one) => one.name.includes('api/series?'))"

        def look_again():
            browser.run("performance.clearResourceTimings(); dispatchEvent(new HashChangeEvent('hashchange'))")
            browser.wait(answered, "the list is answered again")
            browser.run("new Promise((done) => setTimeout(done, 50))")

        browser.click(toggle.format("b"), meanwhile=look_again)
        browser.wait(f"{TOLD}.join() === 'cpu.user host=a 0.5,cpu.user host=b 10.5'", "a legend with means")
        equal(browser.run(TONES), ["tone-first", "tone-second"])
        equal(browser.run("document.querySelectorAll('#series-chart .band').length"), 0)
        equal(browser.run("location.hash"), "#series/cpu.user%20host%3Da&cpu.user%20host%3Db")
        for host in "cdef":
            browser.run(f"document.querySelector(\"{toggle.format(host)}\").focus()")
            browser.press("Enter", 13)
            browser.wait(f"{TOLD}.length === {ord(host) - ord('a') + 1}")
            equal(browser.run("document.activeElement.dataset.toggle"), f"cpu.user host={host}")
        browser.wait(f"{TONES}.length === 6 && {TOLD}[5] === 'cpu.user host=f 50.5'", "six of them")
        equal(len(set(browser.run(TONES))), 6)
        equal(browser.run(f"document.querySelector(\"{toggle.format('g')}\").disabled"), True)
        browser.point("#series-chart svg", 0.5)
        browser.wait("document.querySelectorAll('#series-chart .dot').length === 6", "a moment of all")
        picture(browser, "several")
        browser.colours("dark")
        # Colours take a moment to change.
        browser.wait(f"({CONTRAST}).length === 0", "all can be read")
        picture(browser, "several-dark")
        browser.colours("light")
        # The others keep their colours.
        browser.click("#series-chart .readout:nth-of-type(1) button")
        browser.wait(f"{TOLD}.length === 5 && {TONES}[0] === 'tone-second'", "the first is gone")
        browser.wait("document.activeElement.dataset.toggle === 'cpu.user host=b'", "and the next can be taken")
        browser.click(toggle.format("g"))
        browser.wait(f"{TONES}[5] === 'tone-first'", "its colour is free again")
        browser.run("history.back()")
        browser.wait(f"{TOLD}.length === 5", "as the browser goes back")
        # By its address; a name that is nowhere is told, and the others are drawn.
        browser.open("about:blank")
        browser.open(server.address + "/#series/cpu.user%20host%3Dx%26y%2Fz%25&cpu.user%20host%3Db&gone%20a%3D1")
        serving(browser)
        browser.wait(f"{TOLD}.slice(0, 2).join() === 'cpu.user host=x&y/z% 70.5,cpu.user host=b 10.5'", "names are whole")
        browser.wait("document.getElementById('series-error').textContent.includes('there is no series gone')")
        browser.complaints = [said for said in browser.complaints if "404" not in said]
        browser.open("about:blank")


def own_metrics_are_folded_behind_the_users(browser):
    with Server(*SERIES) as server:
        now = time.time()
        for number in range(60):
            server.points(f"plinth_{number:02} server=a", [(now, 1)])
        browser.open(server.address + "/#series")
        serving(browser)
        open_ = "document.getElementById('series-own').open"
        browser.wait(f"{open_}", "they are all there is")
        server.points("zebra host=a", [(now, 1)])
        browser.open("about:blank")
        browser.open(server.address + "/#series")
        serving(browser)
        browser.wait(f"{FOUND}.join() === 'zebra'", "the user's")
        equal(browser.run("document.getElementById('series-summary').textContent"), "One metric")
        equal(browser.run(open_), False)
        browser.click("#series-own summary")
        browser.wait(f"{open_} && document.querySelectorAll('#series-own button').length === 50", "the others when wanted")
        picture(browser, "own")
        browser.click("#series-own button")
        browser.wait(f"{FOUND}.join() === 'plinth_00 server=a'", "and chosen")


def what_is_kept_is_told(browser):
    with Server(*SERIES, "--series-http", "127.0.0.1:0") as server:
        server.points("cpu.user host=a", [(time.time(), 1)])
        browser.open(server.address + "/#series")
        serving(browser)
        kept = "document.getElementById('series-kept')"
        equal(browser.run(f"{kept}.hidden"), True)
        rule = ["rollup", "add", "--every", "5m", "--keep", "730d", "--raw", "30d", "cpu.*"]
        server.series(*rule)
        server.series("retention", "*=90d")
        browser.wait(f"{kept}.textContent === 'Rollups: cpu.* every 5m keep 730d raw 30d. Points are kept: *=90d.'", "what is kept")
        picture(browser, "kept")
        server.series("rollup", "remove", "--yes", "cpu.*")
        browser.wait(f"{kept}.textContent === 'Points are kept: *=90d.'", "one rule less")


def colours_follow_the_system_and_the_choice(browser):
    with Server() as server:
        browser.colours("light")
        browser.open(server.address)
        serving(browser)
        paper = "getComputedStyle(document.body).backgroundColor"
        light = browser.run(paper)
        browser.colours("dark")
        dark = browser.wait(f"{paper} !== {light!r} && {paper}", "the system's choice")
        picture(browser, "dark")
        browser.click("#theme")
        browser.wait(f"{paper} === {light!r}", "the person's own choice")
        browser.open(server.address)
        serving(browser)
        equal(browser.run(paper), light)
        browser.click("#theme")
        browser.wait(f"{paper} === {dark!r}")
        browser.run("localStorage.clear()")
        browser.colours("light")


# The contrast of each piece of text with what is behind it, the least ones first.
CONTRAST = """(() => {
  const part = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c[3] !== 0 && !(c[3] < 1)) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('main *, header *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.disabled || e.closest('svg')) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.className || e.tagName}: ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""


def everything_has_a_name_and_can_be_read(browser):
    with Server("--console-write", *SERIES) as server:
        server.set("\\x02k\\x00\\x15\\x01", "v")
        server.points("m a=1", [(time.time() - 2, 1), (time.time() - 1, 2)])
        for scheme in ["light", "dark"]:
            browser.colours(scheme)
            for view in ["overview", "keys", "series/m%20a%3D1"]:
                browser.open("about:blank")
                browser.open(f"{server.address}/#{view}")
                serving(browser)
                picture(browser, f"{scheme}-{view.split('/')[0]}")
                equal(browser.run(CONTRAST), [])
                tree = browser.page("Accessibility.getFullAXTree")["nodes"]
                roles = {"button", "link", "textbox", "combobox", "checkbox", "radio", "image", "img", "dialog"}
                nameless = [node["role"]["value"] for node in tree
                            if not node.get("ignored") and node.get("role", {}).get("value") in roles and not node.get("name", {}).get("value")]
                equal(nameless, [])
        browser.colours("light")


def a_phone_scrolls_in_one_direction(browser):
    with Server("--console-write", *SERIES) as server:
        server.set("k" * 200, "v" * 3000)
        long = "metric." + "x" * 100 + " host=" + "h" * 100
        server.points(long, [(time.time() - 2, 1e12), (time.time() - 1, -2e12)])
        browser.size(390, 844, is_phone=True)
        try:
            for view in ["overview", "keys", "series/" + long.replace(" ", "%20")]:
                browser.open("about:blank")
                browser.open(f"{server.address}/#{view}")
                serving(browser)
                browser.wait(f"!document.getElementById('overview').hidden || document.querySelectorAll('#rows tr').length > 0 || {DRAWN} > 0")
                equal(browser.run("document.documentElement.scrollWidth"), 390)
                picture(browser, f"phone-{view.split('/')[0]}")
        finally:
            browser.size(1280, 900)


def a_wrong_token_is_refused_and_the_right_one_opens(browser):
    with Server("--http-token", "TOKEN") as server:
        browser.open(server.address)
        browser.wait("document.getElementById('login').open", "the token is asked for")
        equal(browser.run("document.getElementById('overview').innerText.includes('127.0.0.1')"), False)
        browser.type("#token", "not the token at all")
        browser.click("#login .primary")
        browser.wait("document.getElementById('login-error').textContent === 'the token is wrong'", "it is refused")
        picture(browser, "login")
        with open(server.token_file) as file:
            browser.type("#token", file.read().strip())
        browser.click("#login .primary")
        serving(browser)
        equal(browser.run("document.cookie"), "")
        browser.open("about:blank")
        browser.open(server.address)
        serving(browser)
        browser.wait("!document.getElementById('logout').hidden")
        browser.click("#logout")
        browser.wait("document.getElementById('login')?.open", "logged out")
        browser.complaints = [said for said in browser.complaints if "401" not in said]


def a_server_that_is_gone_is_said_to_be(browser):
    with Server() as server:
        browser.open(server.address)
        serving(browser)
        server.stop()
        browser.wait("/does not answer; last seen .* ago/.test(document.getElementById('health').textContent)", "it is told")
        picture(browser, "away")
        browser.complaints = [said for said in browser.complaints if "ERR_" not in said]


def a_full_disk_is_told_until_there_is_room(browser):
    with SmallDisk("96m") as disk, Server("--console-write", disk=disk) as server:
        server.set("k", "v")
        browser.open(server.address)
        serving(browser)
        disk.fill()
        # What room is kept for itself is gone when enough was refused, or known at once by whoever looks at the disk.
        ended = threading.Event()

        def write():
            while not ended.is_set():
                try:
                    server.set("k", "x" * 5000)
                except OSError:
                    pass

        writer = threading.Thread(target=write)
        writer.start()
        try:
            browser.wait("document.getElementById('health').dataset.state === 'refusing'", "it is told that commits are refused")
            words = browser.run("document.getElementById('health').textContent")
            if "disk" not in words:
                raise Failed(f"the page says {words!r}")
            equal(browser.run("document.title"), "! Plinth")
            picture(browser, "full-disk")
            disk.make_room()
            serving(browser)
        finally:
            ended.set()
            writer.join()
        browser.wait("document.title === 'Plinth'")
        server.set("k", "again")


# What the table of servers says: address, role, and entries behind.
MEMBERS = """[...document.querySelectorAll('table')].filter((one) => one.tHead.textContent.includes('Entries behind'))
    .flatMap((one) => [...one.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent)))"""


def a_cluster_shows_its_servers_and_which_of_them_is_gone(browser):
    with Cluster() as cluster:
        browser.open(cluster.addresses[0])
        serving(browser)

        def roles(wanted):
            roles = f"JSON.stringify({MEMBERS}.map((row) => row[1]).sort())"
            browser.wait(f"{roles} === {json.dumps(json.dumps(sorted(wanted), separators=(',', ':')))}", f"servers are {wanted}")

        roles(["leads", "follows, votes", "follows, votes"])
        here = f"{cluster.members[0]} (this one)"
        equal(sorted(row[0] for row in browser.run(MEMBERS)), sorted([here, *cluster.members[1:]]))
        browser.wait("document.body.textContent.includes('1 server may fail; term ')")
        picture(browser, "cluster")
        # Whoever it is, another one leads or goes on leading.
        cluster.kill(1)
        roles(["leads", "follows, votes", "can't be reached"])
        gone = [row[0] for row in browser.run(MEMBERS) if row[1] == "can't be reached"]
        equal(gone, [cluster.members[1]])
        browser.wait("document.body.textContent.includes('0 servers may fail')")
        told = f"Can't reach {gone[0]}; 0 more may fail"
        browser.wait(f"document.getElementById('health').textContent.includes({json.dumps(told)})", "it is told")
        # The last one alone answers nobody.
        cluster.kill(2)
        browser.wait("document.getElementById('health').dataset.state === 'failed'", "it is told that nobody is answered")
        browser.wait("document.body.textContent.includes('nobody is answered; term ')")


def picture(browser, name):
    if SHOTS:
        browser.picture(os.path.join(SHOTS, f"{name}.png"))


TESTS = [
    live_figures_move_and_charts_have_points,
    keys_are_browsed_and_decoded,
    long_keys_take_three_lines_and_are_whole_in_their_own_view,
    keys_are_changed_only_after_a_second_click,
    series_are_found_by_typing_and_drawn_as_they_grow,
    figures_are_of_all_that_is_shown_or_of_the_moment_pointed_at,
    series_are_put_beside_each_other_and_taken_away,
    own_metrics_are_folded_behind_the_users,
    what_is_kept_is_told,
    colours_follow_the_system_and_the_choice,
    everything_has_a_name_and_can_be_read,
    a_phone_scrolls_in_one_direction,
    a_wrong_token_is_refused_and_the_right_one_opens,
    a_server_that_is_gone_is_said_to_be,
    a_full_disk_is_told_until_there_is_room,
    a_cluster_shows_its_servers_and_which_of_them_is_gone,
]


def main():
    wanted = sys.argv[3:]
    chosen = [test for test in TESTS if not wanted or any(part in test.__name__ for part in wanted)]
    failed = skipped = 0
    for test in chosen:
        browser = Browser(BROWSER)
        try:
            browser.size(1280, 900)
            test(browser)
            if browser.complaints:
                raise Failed(f"the page complains: {browser.complaints}")
            print(f"test {test.__name__} ... ok", flush=True)
        except Skipped as why:
            skipped += 1
            print(f"test {test.__name__} ... ignored, {why}", flush=True)
        except Exception as failure:
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"FAILED {test.__name__} - {' '.join(str(failure).split())[:300]}", flush=True)
        finally:
            browser.close()
    passed = len(chosen) - failed - skipped
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {skipped} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
