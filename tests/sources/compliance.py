"""The queries of prometheus/compliance, put to a Prometheus that has the same points.

The list is not ours, and is read from a copy: `PLINTH_COMPLIANCE=DIR/promql/promql-test-queries.yml tests/sources/run compliance`.
The points are ours: what the metrics of its demo service are, of three instances, a point each five seconds.
"""

import itertools
import json
import math
import random
import re
import urllib.request

from cases import Prometheus
from serving import Failed, equal, get

STEP = 5
HOUR = 3600
# Windows end between points, as those of our own table do.
BESIDE = 2.013
# What stands for the words in braces, each in turn.
VARIANTS = {
    "range": "1s 15s 1m 5m 15m 1h",
    "offset": "1m 5m 10m",
    "simpleAggrOp": "sum avg max min count stddev stdvar",
    "simpleTimeAggrOp": "sum avg max min count stddev stdvar absent last",
    "topBottomOp": "topk bottomk",
    "quantile": "-0.5 0.1 0.5 0.75 0.95 0.90 0.99 1 1.5",
    "arithBinOp": "+ - * / % ^",
    "compBinOp": "== != < > <= >=",
    "binOp": "+ - * / % ^ == != < > <= >=",
    "simpleMathFunc": "abs ceil floor exp sqrt ln log2 log10 round",
    "extrapolatedRateFunc": "delta rate increase",
    "clampFunc": "clamp_min clamp_max",
    "instantRateFunc": "idelta irate",
    "dateFunc": "day_of_month day_of_week days_in_month hour minute month year",
}
# What Prometheus 3 has otherwise than the 2 that Debian has, and we have as 3: any text of UTF-8 is the name of a label, and a point at the
# beginning of a window is not in it, which the windows of a subquery meet.
OTHERWISE = re.compile(r'^label_(replace|join)\(demo_num_cpus, "~invalid"|\[2m:10s\]\)$')
# Averages are added up otherwise.
NEAR = 1e-9


def quoted(text):
    """A value of a line of the list: in either quotes, or bare."""
    text = text.strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return json.loads(text) if text.startswith('"') else text


def queries(path):
    """Each query of the list with all that its words in braces stand for, and whether it has to fail."""
    found = []
    with open(path) as file:
        for line in file:
            if match := re.match(r"\s*(?:- )?query: (.*)", line):
                found.append([quoted(match[1]), [], False])
            elif match := re.match(r"\s*variant_args: \[(.*)\]", line):
                found[-1][1] = [word.strip(" '\"") for word in match[1].split(",")]
            elif re.match(r"\s*should_fail: true", line):
                found[-1][2] = True
    for text, names, fails in found:
        for values in itertools.product(*(VARIANTS[name].split() for name in names)):
            query = text
            for name, value in zip(names, values):
                query = query.replace("{{." + name + "}}", value)
            yield query, fails


def exposition():
    """Metric, name, value and seconds of each point."""
    dice, lines = random.Random(7), []

    def series(metric, labels, values):
        name = metric + "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"
        lines.extend((metric, name, value, at * STEP) for at, value in enumerate(values) if value is not None)

    count = 2 * HOUR // STEP
    for port in range(10000, 10003):
        of = {"instance": f"demo.promlabs.com:{port}", "job": "demo"}

        def rising(most, resets=True):
            value = 0.0
            for _ in range(count):
                value = 0.0 if resets and dice.random() < 0.002 else value + dice.random() * most
                yield value

        series("demo_num_cpus", of, [4.0] * count)
        for kind in ["free", "used", "cached", "buffers"]:
            base = dice.uniform(1e8, 4e9)
            series("demo_memory_usage_bytes", {**of, "type": kind}, [base + 1e7 * math.sin(at / 60) + dice.randrange(1000) for at in range(count)])
        for mode in ["user", "system", "idle"]:
            series("demo_cpu_usage_seconds_total", {**of, "mode": mode}, rising(3))
        series("demo_disk_usage_bytes", of, [1e9 + 1e5 * at + dice.randrange(10**6) for at in range(count)])
        series("demo_batch_last_success_timestamp_seconds", of, [float(at // 40 * 40 * STEP) for at in range(count)])
        series("demo_intermittent_metric", of, [1.0 if at // 70 % 2 else None for at in range(count)])
        for path, status in [("/api/foo", "200"), ("/api/foo", "500"), ("/api/bar", "200")]:
            labels = {**of, "method": "GET", "path": path, "status": status}
            # Buckets in which the lower ones are part of those above.
            steps = [list(rising(2, resets=False)) for _ in range(5)]
            above = [list(map(sum, zip(*steps[: size + 1]))) for size in range(5)]
            for bound, values in zip(["0.001", "0.01", "0.1", "1", "+Inf"], above):
                series("demo_api_request_duration_seconds_bucket", {**labels, "le": bound}, map(math.floor, values))
            series("demo_api_request_duration_seconds_count", labels, map(math.floor, above[-1]))
            series("demo_api_request_duration_seconds_sum", labels, [value / 50 for value in above[-1]])
    return lines


def asked(url, form):
    """Status, and what is answered: of each series by its labels the values by their times."""
    status, _, text = get(f"{url}/api/v1/query_range", form)
    found = json.loads(text)
    if status != 200:
        return status, found["error"]
    return status, {json.dumps(row["metric"], sort_keys=True): row["values"] for row in found["data"]["result"]}


def is_same(ours, theirs):
    if ours[0] != theirs[0] or ours[0] != 200:
        return ours[0] != 200 and theirs[0] != 200
    if ours[1].keys() != theirs[1].keys():
        return False

    def near(one, other):
        (time, text), (their_time, their_text) = one, other
        value, their = float(text), float(their_text)
        return abs(time - their_time) < 0.001 and (text == their_text or math.isclose(value, their, rel_tol=NEAR) or (value != value and their != their))

    return all(len(rows) == len(theirs[1][name]) and all(map(near, rows, theirs[1][name])) for name, rows in ours[1].items())


def compliance_queries_are_answered_as_by_prometheus(server, path):
    lines = exposition()
    text = "".join(f"{name} {value!r} {at}.0\n" for _, name, value, at in lines)
    request = urllib.request.Request(f"{server.url}/api/v1/import/prometheus", text.encode(), {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=60) as told:
        equal(told.status, 204)
    other = Prometheus(server.directory, lines)
    same, otherwise, differ, end = 0, [], [], 2 * HOUR - 120 + BESIDE
    try:
        for query, fails in queries(path):
            form = {"query": query, "start": end - 600, "end": end, "step": 10}
            ours, theirs = asked(server.url, form), asked(other.url, form)
            if is_same(ours, theirs) and fails == (ours[0] != 200):
                same += 1
            elif OTHERWISE.search(query):
                otherwise.append(query)
            else:
                differ.append((query, ours, theirs))
    finally:
        other.child.stop()
    for query, ours, theirs in differ:
        print(f"{query}\n   ours:   {str(ours)[:600]}\n   theirs: {str(theirs)[:600]}")
    print(f"{same} answers are the same, {len(otherwise)} are those of Prometheus 3: {otherwise}")
    equal(len(differ), 0, "answers that differ")
    if same < 500:
        raise Failed(f"only {same} answers were compared: is {path} the list?")
