"""Sources that exist, as they are: what they send is read back, and every point is compared.

    suite.py PROGRAM [NAME...]

PROGRAM is `plinth`. Prometheus, promtool and collectd are found on the PATH, the client libraries by Python. Nothing of them is changed but their
configuration, which is the one that docs/series.md shows. A server is killed under what sends to it where that has a promise to keep.
"""

import http.server
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
import warnings
from datetime import datetime, timedelta, timezone

from influxdb import InfluxDBClient as FirstClient
from influxdb.exceptions import InfluxDBClientError
from influxdb_client import InfluxDBClient, Point, WriteOptions, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS, PointSettings
from influxdb_client.rest import ApiException
from prometheus_api_client import PrometheusConnect

from otel import COLLECTOR, a_collector_passes_on_whoever_is_killed, opentelemetry_counts_on_whoever_is_killed, opentelemetry_has_native_histograms
from cases import expressions_are_answered_as_by_prometheus
from compliance import compliance_queries_are_answered_as_by_prometheus
from serving import Child, Failed, Server, equal, free_port, get, prometheus_data, raw_points, until
from tables import duckdb_answers_as_the_server_does

PROGRAM = sys.argv[1]
# The list of prometheus/compliance, where somebody has a copy.
COMPLIANCE = os.environ.get("PLINTH_COMPLIANCE")


class Exporter:
    """What Prometheus scrapes: numbers of every kind, labels that are hard to write, and a series that comes and goes."""

    def __init__(self):
        exporter, self.scrapes, self.random = self, 0, random.Random(7)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = exporter.text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def text(self):
        self.scrapes += 1
        n = self.scrapes
        lines = [
            f"scrapes_total {n}",
            f'large_total{{kind="integer"}} {2**53 + 2 * n}',
            'odd{of="nan"} NaN',
            f'odd{{of="infinity"}} {"+Inf" if n % 2 else "-Inf"}',
            'odd{of="small"} 5e-324',
            # Not -0, of which Prometheus sends nothing but that there is a value: it arrives as 0.
            'odd{of="zero"} 0',
            'words{path="C:\\\\dir\\\\x y",quote="\\"=,{}|",line="one\\ntwo",other="café \\\\",empty=""} 1',
        ]
        lines += [f'walk{{n="{i}"}} {self.random.gauss(0, 1e3)!r}' for i in range(20)]
        if n % 7 < 4:
            lines.append(f"comes_and_goes {n}")
        return "\n".join(lines) + "\n"

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


PROMETHEUS_YML = """
global:
  scrape_interval: 500ms
scrape_configs:
  - job_name: exporter
    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]
  - job_name: prometheus
    static_configs: [{{targets: ["127.0.0.1:{own}"]}}]
remote_write:
  - url: {url}/api/v1/write
    queue_config: {{batch_send_deadline: 300ms, min_backoff: 100ms, max_backoff: 500ms}}
"""


# One that has no points of its own.
READER_YML = """
remote_read:
  - url: {url}/api/v1/read
    read_recent: true
"""


class Prometheus:
    """A Prometheus that scrapes an exporter and itself, and sends all of it on; or one that reads what was sent."""

    def __init__(self, server, exporter):
        self.directory, self.port = server.directory, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.name = "prometheus" if exporter else "reader"
        self.config = os.path.join(self.directory, f"{self.name}.yml")
        with open(self.config, "w") as file:
            if exporter:
                file.write(PROMETHEUS_YML.format(exporter=exporter.port, own=self.port, url=server.url))
            else:
                file.write(READER_YML.format(url=server.url))
        subprocess.run(["promtool", "check", "config", self.config], check=True, capture_output=True)

    def start(self):
        self.child = Child(self.directory, self.name, [
            "prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={self.directory}/{self.name}-data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ])
        if not until(self.is_ready):
            raise Failed(f"Prometheus does not answer: {self.child.log()[-2000:]}")

    def is_ready(self):
        try:
            return get(f"{self.url}/-/ready")[0] == 200
        except OSError:
            return False


EVERY = '{__name__=~".+"}'


def same_points(server, prometheus):
    """Waits until the server has every point that Prometheus has up to now, and nothing else; gives the moment and the points."""
    at = round(time.time() - 0.2, 3)
    wanted = raw_points(prometheus.url, EVERY, 3600, at)
    found = until(lambda: (got := raw_points(server.url, EVERY, 3600, at)) == wanted and got)
    if not found:
        found = raw_points(server.url, EVERY, 3600, at)
        missing = [(name, points, found.get(name)) for name, points in wanted.items() if found.get(name) != points]
        more = [name for name in found if name not in wanted]
        raise Failed(f"of {len(wanted)} series differ {len(missing)}, {missing[:5]}; more: {more[:5]}")
    return at, found


def prometheus_sends_every_point_whoever_is_killed(server):
    exporter = Exporter()
    prometheus = Prometheus(server, exporter)
    prometheus.start()
    try:
        until(lambda: exporter.scrapes >= 8)
        _, points = same_points(server, prometheus)
        hard = [dict(name) for name in points if dict(name)["__name__"] == "words"]
        equal([{key: one[key] for key in ("path", "quote", "line", "other")} for one in hard],
              [{"path": "C:\\dir\\x y", "quote": '"=,{}|', "line": "one\ntwo", "other": "café \\"}])
        # What the server misses while it is away is sent again.
        server.kill()
        scraped = exporter.scrapes
        until(lambda: exporter.scrapes >= scraped + 5)
        server.start()
        until(lambda: exporter.scrapes >= scraped + 14)
        _, points = same_points(server, prometheus)
        same_answers(server, prometheus)
        same_lists(server, prometheus)
        reads_the_same(server)
        # A Prometheus that is killed sends nothing later that it had not sent, but nothing wrong either.
        killed_at, _ = same_points(server, prometheus)
        prometheus.child.kill()
        gone_at = time.time()
        prometheus.start()
        scraped = exporter.scrapes
        until(lambda: exporter.scrapes >= scraped + 8)
        at = round(time.time() - 0.2, 3)
        wanted = raw_points(prometheus.url, EVERY, 3600, at)

        def all_but_the_gap(points):
            return {(name, when, value) for name, all in points.items() for when, value in all if not killed_at < when <= gone_at}

        wanted = all_but_the_gap(wanted)
        found = until(lambda: (got := all_but_the_gap(raw_points(server.url, EVERY, 3600, at))) == wanted and got)
        if not found:
            got = all_but_the_gap(raw_points(server.url, EVERY, 3600, at))
            raise Failed(f"missing {sorted(wanted - got)[:5]}, more {sorted(got - wanted)[:5]}")
        print(f"  {len(found)} points of {len(points)} series", flush=True)
    finally:
        prometheus.child.stop()
        exporter.stop()


# What both have to answer alike. No scrape falls on the edge of a window: the moments end in odd milliseconds. No window of a counter begins before
# its first point: there Prometheus 2 takes the rise to go on towards zero further than Prometheus 3 does, whose rule we have.
EXPRESSIONS = [
    "up", "sum by (job) (up)", "rate(scrapes_total[3s])", "increase(scrapes_total[4s])", "irate(scrapes_total[5s])", 'walk{n=~"1|2"} * 2 - 1',
    "max without (n) (walk)", "min(walk)", "avg(walk)", "count(walk)", "avg_over_time(walk[5s])", "sum_over_time(walk[5s])", 'count_over_time(odd{of="zero"}[5s])',
    "max_over_time(walk[10s])", "last_over_time(comes_and_goes[10s])", "comes_and_goes", 'walk{n!~"1.*"}', "1 + 1", "up[5s]", 'words{path="C:\\\\dir\\\\x y"}',
    "delta(walk[4s])", "go_goroutines / 2", "(scrapes_total - 1) % 5", "2 - -up ^ 2", 'prometheus_http_requests_total{code="200", handler!=""}',
]


def canonical(text):
    """What an answer of promtool's says: numbers to twelve digits, since sums are added up in another order, and in any order."""
    def plain(one):
        if isinstance(one, dict):
            return {key: plain(value) if key != "metric" else value for key, value in one.items()}
        if isinstance(one, list):
            return [plain(value) for value in one]
        try:
            return f"{float(one):.12g}"
        except (TypeError, ValueError):
            return one

    found = plain(json.loads(text))
    return sorted(found, key=json.dumps) if isinstance(found, list) and found and isinstance(found[0], dict) else found


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise Failed(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def reads_the_same(server):
    """A Prometheus that asks the server by remote read has every point, the marks of ends too, and answers alike."""
    reader = Prometheus(server, None)
    reader.start()
    try:
        at = round(time.time() - 2, 3)
        equal(raw_points(reader.url, EVERY, 3600, at), raw_points(server.url, EVERY, 3600, at))
        same_answers(server, reader)
        asked = '{__name__=~"walk|odd",n!~"1.+",of!="nan"}'
        equal(raw_points(reader.url, asked, 3600, at), raw_points(server.url, asked, 3600, at))
    finally:
        reader.child.stop()


def same_answers(server, prometheus):
    at = round(time.time() - 2) + 0.0137
    differ = []
    for expression in EXPRESSIONS:
        answers = [canonical(promtool("query", "instant", "-o", "json", f"--time={at}", url, expression)) for url in (server.url, prometheus.url)]
        differ += [(expression, *answers)] if answers[0] != answers[1] else []
        if not expression.endswith("]"):
            window = [f"--start={at - 4}", f"--end={at}", "--step=1s"]
            answers = [canonical(promtool("query", "range", "-o", "json", *window, url, expression)) for url in (server.url, prometheus.url)]
            differ += [(f"{expression} over a range", *answers)] if answers[0] != answers[1] else []
    equal(differ, [], "expression, answer, Prometheus' answer")


def same_lists(server, prometheus):
    for before, behind in [(["series", "--match=walk", "--match=up"], []), (["labels"], ["job"]), (["labels"], ["__name__"])]:
        answers = [sorted(promtool("query", *before, url, *behind).split("\n")) for url in (server.url, prometheus.url)]
        equal(*answers, f"{before} {behind}")


COLLECTD_CONF = """
Hostname "box"
FQDNLookup false
BaseDir "{directory}"
PIDFile "{directory}/collectd.pid"
PluginDir "{plugins}"
TypesDB "{types}"
Interval 1
LoadPlugin cpu
LoadPlugin load
LoadPlugin memory
LoadPlugin uptime
LoadPlugin write_tsdb
<Plugin write_tsdb>
  <Node>
    Host "127.0.0.1"
    Port "{port}"
    HostTags "site=here"
  </Node>
  <Node>
    Host "127.0.0.1"
    Port "{beside}"
    HostTags "site=here"
  </Node>
</Plugin>
"""


class Beside:
    """Hears what collectd sends to us as well, from collectd itself."""

    def __init__(self):
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.text = self.listener.getsockname()[1], b""
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
                self.connections += 1
                while more := connection.recv(1 << 16):
                    self.text += more
                self.connections -= 1
            except OSError:
                return

    def points(self):
        """{(metric, seconds): the last value}; a line that is not whole is none."""
        found = {}
        for line in self.text.decode().split("\n")[:-1]:
            put, metric, when, value, *tags = line.split()
            equal((put, tags), ("put", ["fqdn=box", "site=here"]))
            found[metric, int(when)] = float(value)
        return found


def collectd_sends_every_point(server):
    plugins = next((path for path in ("/usr/lib/collectd", "/usr/lib64/collectd") if os.path.isdir(path)), "/usr/lib/collectd")
    beside = Beside()
    config = os.path.join(server.directory, "collectd.conf")
    with open(config, "w") as file:
        file.write(COLLECTD_CONF.format(directory=server.directory, plugins=plugins, types="/usr/share/collectd/types.db",
                                        port=server.tsdb_port, beside=beside.port))
    collectd = Child(server.directory, "collectd", ["collectd", "-f", "-C", config])
    try:
        until(lambda: beside.text.count(b"uptime") >= 4)
        # It says nothing of what it lost: what it sent while nobody was there is gone, and what it sends afterwards arrives.
        saved = until(lambda: held(server) if "put" in beside.text.decode() else None)
        server.kill()
        killed_at = time.time()
        server.start()
        until(lambda: beside.text.count(b"uptime") >= 10)
    finally:
        collectd.stop()  # with which it sends what it still has
    until(lambda: beside.connections == 0)
    wanted = beside.points()
    seconds = sorted({when for _, when in wanted})
    found = until(lambda: (got := held(server)) and max(when for _, when in got) == seconds[-1] and got)
    equal([point for point in found if point not in wanted], [], "never sent")
    equal([(point, found[point], wanted[point]) for point in found if found[point] != wanted[point]], [], "another value")
    equal([point for point in saved if point not in found], [], "gone since the server was killed")
    lost = {when for point, when in wanted if (point, when) not in found}
    # What it held in its buffers, and until it tried its connection again.
    equal(all(killed_at - 3 <= when <= killed_at + 4 for when in lost), True, f"lost are points of {sorted(lost)} of {seconds}, {killed_at}")
    print(f"  {len(found)} of {len(wanted)} points, {len(lost)} seconds lost while the server was away", flush=True)


def held(server):
    """The points of collectd that the server has."""
    status, _, text = get(f"{server.url}/api/v1/label/__name__/values")
    equal(status, 200)
    found = {}
    for metric in json.loads(text)["data"]:
        for name, points in server.points(metric).items():
            equal(name, f"{metric} fqdn=box site=here")
            found.update({(metric, when // 10**9): float(value) for when, value in points.items()})
    return found


def the_second_influxdb_client_writes_what_it_is_given(server):
    with InfluxDBClient(url=server.url, token="nobody-looks", org="o", enable_gzip=True) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        equal((client.ping(), client.health().status, client.ready().status), (True, "pass", "ready"))
        equal("plinth" in client.version(), True, client.version())
        with client.write_api(write_options=SYNCHRONOUS) as write:
            base = 1_767_225_600_000_000_001
            values = [0.1, -0.0, -1e300, 5e-324, 123456789.123456789, 1e21]
            write.write("b", record=[Point("air").tag("room", "a b,c=d").field("warm", value).time(base + n)
                                     for n, value in enumerate(values)])
            equal({when: repr(float(value)) for when, value in server.points("air.warm")["air.warm room=a\\ b,c=d"].items()},
                  {base + n: repr(value) for n, value in enumerate(values)})
            integers = [2**63 - 1, -2**63, 0, 2**53 + 1]
            write.write("b", record=[Point("count").tag("host", "é").field("n", value).time(base + n) for n, value in enumerate(integers)])
            equal(server.points("count.n"), {"count.n host=é": {base + n: str(value) for n, value in enumerate(integers)}})
            write.write("b", record=[{"measurement": "mix", "tags": {"host": "h"}, "time": 1_767_225_600_123,
                                      "fields": {"is": True, "note": 'a "word", = \\ here', "v": 2.5}}], write_precision=WritePrecision.MS)
            moment = 1_767_225_600_123_000_000
            equal(server.points("mix.is"), {"mix.is host=h": {moment: "1"}})
            equal(server.points("mix.v"), {"mix.v host=h": {moment: "2.5"}})
            equal(server.points("!mix.note", "select-events"), {"!mix.note host=h": {moment: 'a "word", = \\ here'}})
            with client.write_api(write_options=SYNCHRONOUS, point_settings=PointSettings(host="a")) as tagged:
                tagged.write("b", record=Point("bare").field("n", 1).time(base))
            equal(server.points("bare.n"), {"bare.n host=a": {base: "1"}})
            try:
                write.write("b", record="no,tag v=1")
                raise Failed("a line with a tag without a value was taken")
            except ApiException as error:
                equal((error.status, "key=value" in error.message), (400, True), error.message)
        equal(json.loads(get(f"{server.url}/api/v1/query", {"query": "air.warm", "time": 1_767_225_600.1})[2])["data"]["result"],
              [{"metric": {"__name__": "air.warm", "room": "a b,c=d"}, "value": [1767225600.1, "1e+21"]}])


def batches_are_sent_again_when_the_server_was_killed(server):
    options = WriteOptions(batch_size=200, flush_interval=200, retry_interval=300, max_retry_delay=500, max_retries=50, jitter_interval=0)
    base, count, failed = 1_767_225_600_000_000_000, 6000, []
    with InfluxDBClient(url=server.url, token="t", org="o") as client:
        with client.write_api(write_options=options, error_callback=lambda *error: failed.append(error)) as write:
            for n in range(count):
                write.write("b", record=Point("walk").tag("host", f"h{n % 5}").field("n", n).time(base + n))
                if n == count // 2:
                    until(lambda: any(server.points("walk.n").values()) if has(server, "walk.n") else None)
                    server.kill()
                if n == count // 2 + 1000:
                    time.sleep(0.5)
                    server.start()
    equal(failed, [])
    wanted = {f"walk.n host=h{host}": {base + n: str(n) for n in range(host, count, 5)} for host in range(5)}
    equal(server.points("walk.n"), wanted)


def has(server, metric):
    return metric in json.loads(get(f"{server.url}/api/v1/label/__name__/values")[2])["data"]


def the_first_influxdb_client_writes_what_it_is_given(server):
    client = FirstClient("127.0.0.1", server.http_port, "user", "secret", "db", gzip=True)
    try:
        equal("plinth" in client.ping(), True)
        equal(client.get_list_database(), [])
        client.create_database("db")
        base = 1_767_225_600_000
        points = [{"measurement": "air", "time": base + n, "fields": {"warm": 0.1 * n, "n": n}} for n in range(2500)]
        equal(client.write_points(points, time_precision="ms", tags={"host": "a"}, batch_size=1000), True)
        found = server.points("air.warm")["air.warm host=a"]
        equal({when: float(value) for when, value in found.items()}, {(base + n) * 10**6: 0.1 * n for n in range(2500)})
        equal(server.points("air.n"), {"air.n host=a": {(base + n) * 10**6: str(n) for n in range(2500)}})
        client.write_points(["air,host=b warm=1 1767225600"], time_precision="s", protocol="line")
        equal(server.points("air.warm")["air.warm host=b"], {1_767_225_600 * 10**9: "1"})
        try:
            client.query("select * from air")
            raise Failed("a query of InfluxDB's was answered")
        except InfluxDBClientError as error:
            equal((error.code, "InfluxQL" in str(error)), (400, True), str(error))
    finally:
        client.close()


def a_client_of_prometheus_reads_every_point(server):
    base = 1_767_225_600
    lines = [f"up,job=j{job},n=x n={job * 1000 + n} {base + n}" for job in range(3) for n in range(600)]
    equal(post_lines(server, "\n".join(lines), "s"), 204)
    client = PrometheusConnect(url=server.url)
    equal(client.check_prometheus_connection(), True)
    equal(client.all_metrics(), ["up.n"])
    equal(client.get_label_names(), ["__name__", "job", "n"])
    equal(client.get_label_values("job"), ["j0", "j1", "j2"])
    equal(client.get_metric_metadata("up.n"), [])
    start, end = (datetime.fromtimestamp(base + n, timezone.utc) for n in (-1, 599))
    found = client.get_metric_range_data("up.n", {"job": "j1"}, start, end, chunk_size=timedelta(minutes=2))
    values = [tuple(pair) for part in found for pair in part["values"]]
    equal(sorted(set(values)), [(base + n, str(1000 + n)) for n in range(600)])
    equal(client.custom_query("sum(up.n)", params={"time": base + 599}), [{"metric": {}, "value": [base + 599, str(3000 + 3 * 599)]}])
    found = client.custom_query_range("up.n{job='j2'}", start + timedelta(seconds=1), end, "1")
    equal(found, [{"metric": {"__name__": "up.n", "job": "j2", "n": "x"}, "values": [[base + n, str(2000 + n)] for n in range(600)]}])
    equal(client.get_series(start, end, {"match[]": "up.n"}), [{"__name__": "up.n", "job": f"j{job}", "n": "x"} for job in range(3)])


def post_lines(server, text, precision):
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/write?precision={precision}", text.encode())) as answer:
        return answer.status


def grafana_gets_what_its_data_source_asks(server):
    base = 1_767_225_600
    equal(post_lines(server, "\n".join(f"cpu,host={host} user={n} {base + n * 15}" for host in "ab" for n in range(40)), "s"), 204)
    end = base + 585
    # Save & test.
    status, _, text = get(f"{server.url}/api/v1/query", {"query": "1+1", "time": "1767225600.123", "timeout": "60s"})
    equal((status, json.loads(text)["data"]), (200, {"resultType": "scalar", "result": [1767225600.123, "2"]}))
    status, _, text = get(f"{server.url}/api/v1/status/buildinfo")
    version = json.loads(text)["data"]["version"]
    equal((status, [int(part) for part in version.split(".")] >= [2, 24, 0]), (200, True), version)
    window = {"start": base, "end": end}
    # What the editor lists, by POST with a form and by GET.
    for path, form, wanted in [
        ("labels", {"match[]": "cpu.user"}, ["__name__", "host"]),
        ("labels", {"match[]": ['{__name__="cpu.user"}', '{__name__="nothing"}']}, ["__name__", "host"]),
        ("series", {"match[]": 'cpu.user{host="a"}'}, [{"__name__": "cpu.user", "host": "a"}]),
        ("query_exemplars", {"query": "cpu.user"}, []),
    ]:
        equal(prometheus_data(server.url, path, **window, **form), wanted, path)
    for path, wanted in [
        ("label/__name__/values", ["cpu.user"]), ("label/host/values", ["a", "b"]),
        ("label/host/values?match%5B%5D=cpu.user%7Bhost%3D%22b%22%7D&start=1767225600&end=1767226185&limit=40000", ["b"]),
        ("metadata", {}), ("metadata?limit=1", {}), ("rules", {"groups": []}), ("alerts", {"alerts": []}),
    ]:
        status, _, text = get(f"{server.url}/api/v1/{path}")
        equal((status, json.loads(text)), (200, {"status": "success", "data": wanted}), path)
    # A panel; one of a table; and a mistake, which is shown.
    found = prometheus_data(server.url, "query_range", query='cpu.user{host="a"}', step="15", timeout="60s", **window)
    equal(found, {"resultType": "matrix", "result": [
        {"metric": {"__name__": "cpu.user", "host": "a"}, "values": [[base + n * 15, str(n)] for n in range(40)]}]})
    found = prometheus_data(server.url, "query", query="sum(cpu.user)", time=f"{end}.000")
    equal(found, {"resultType": "vector", "result": [{"metric": {}, "value": [end, "78"]}]})
    status, headers, text = get(f"{server.url}/api/v1/query", {"query": "sum(", "time": end})
    equal((status, headers["Content-Type"], json.loads(text)["errorType"]), (400, "application/json", "bad_data"))


def compliance(server):
    compliance_queries_are_answered_as_by_prometheus(server, COMPLIANCE)


TESTS = [
    prometheus_sends_every_point_whoever_is_killed,
    collectd_sends_every_point,
    the_second_influxdb_client_writes_what_it_is_given,
    batches_are_sent_again_when_the_server_was_killed,
    the_first_influxdb_client_writes_what_it_is_given,
    a_client_of_prometheus_reads_every_point,
    grafana_gets_what_its_data_source_asks,
    opentelemetry_counts_on_whoever_is_killed,
    opentelemetry_has_native_histograms,
    *([a_collector_passes_on_whoever_is_killed] if COLLECTOR else []),
    duckdb_answers_as_the_server_does,
    expressions_are_answered_as_by_prometheus,
    *([compliance] if COMPLIANCE else []),
]


def main():
    wanted = sys.argv[2:]
    chosen = [test for test in TESTS if not wanted or any(part in test.__name__ for part in wanted)]
    failed = 0
    for test in chosen:
        begun = time.monotonic()
        try:
            with Server(PROGRAM) as server:
                test(server)
            print(f"test {test.__name__} ... ok ({time.monotonic() - begun:.1f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"test {test.__name__} ... FAILED", flush=True)
    print(f"test result: {'FAILED' if failed else 'ok'}. {len(chosen) - failed} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
