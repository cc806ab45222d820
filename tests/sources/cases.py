"""Expressions of our own table, put to a Prometheus that has the same points: every answer has to be the same."""

import json
import os
import re
import subprocess
import urllib.request

from serving import Child, Failed, equal, free_port, get, until

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "../../crates/promql/tests/cases.txt")
SERIES = os.path.join(HERE, "../../crates/promql/tests/cases.rs")
MINUTE = 60
# Windows end between points: a point at the very beginning of one is in it for Prometheus 2, and isn't for Prometheus 3, whose rule we have.
BESIDE = 7.013
# A range at a fixed time ends at a point whenever it is asked for.
FIXED = re.compile(r"\[.*@|@.*\[")
# What Prometheus 2 knows otherwise than Prometheus 3, or not at all: what its own words say of it.
UNKNOWN = re.compile(r"unknown function|parse error|unexpected character|bad number or duration|expected type")
# What Prometheus 3 answers otherwise than Prometheus 2: sums are compensated by now, classic histograms have fractions, and what is no time has
# no day.
OTHERWISE = re.compile(r"exact\[|sum\(tiny\)|histogram_fraction|day_of_week\(vector\(NaN\)\)")

TEXT = re.compile(r'r#"(.*)"#,$')
NUMBER = r"\d[\d.]*(?:[eE][+-]?\d+)?"
ONE = re.compile(rf"(-?{NUMBER}|NaN|[+-]?Inf)([+-]{NUMBER})?x(\d+)$")


def points(words):
    """The points of a series as the table writes them, a minute apart: `1+2x3` is 1 3 5 7."""
    place, found = 0, []
    for word in words.split():
        if word.startswith("_"):
            place += int(word[2:]) if word.startswith("_x") else 1
            continue
        many = ONE.match(word)
        base, step, more = (many[1], many[2] or "0", int(many[3])) if many else (word, "0", 0)
        for at in range(more + 1):
            found.append((place, float(base) + at * float(step)))
            place += 1
    return found


def exposition():
    """Metric, name, value and seconds of each point of the series that consist of numbers; and the names of the others."""
    lines, left_out = [], []
    with open(SERIES) as file:
        found = [TEXT.match(line.strip()) for line in file]
    for text in (match[1] for match in found if match):
        name, _, words = re.match(r'((?:[\w:]+)?(?:\{.*?"\})?)( )(.*)', text).groups()
        if "{{" in words or "stale" in words or name.startswith("{"):
            left_out.append(name.split("{")[0] or name)
            continue
        plain = name.replace('", ', '",')
        lines += [(name.split("{")[0], plain, value, at * MINUTE) for at, value in points(words)]
    return lines, left_out


def expressions(left_out):
    """Time and expression of each case about the other series."""
    word = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in left_out if name.isidentifier()) + '|na.me|"offset"|"on"|"and"')
    with open(TABLE) as file:
        rows = [line.split(" | ", 2) for line in file if " | " in line and not line.startswith("#")]
    for time, expression, *answer in rows:
        if not word.search(expression) and not FIXED.search(expression) and not "".join(answer).startswith("!"):
            yield time, expression


def seconds(time):
    return sum(int(count) * {"h": 3600, "m": 60, "s": 1}[unit] for count, unit in re.findall(r"(\d+)([hms])", time))


class Prometheus:
    """One that has these points and no others."""

    def __init__(self, directory, lines):
        self.port, self.url = free_port(), None
        self.url = f"http://127.0.0.1:{self.port}"
        text, data, config = (os.path.join(directory, name) for name in ["points.om", "blocks", "cases.yml"])
        with open(text, "w") as file:
            file.writelines(f"{name} {value!r} {at}\n".replace(" nan ", " NaN ") for _, name, value, at in sorted(lines, key=lambda line: (line[0], line[1], line[3])))
            file.write("# EOF\n")
        made = subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", text, data], capture_output=True, text=True)
        if made.returncode != 0:
            raise Failed(f"promtool: {made.stdout}{made.stderr}")
        open(config, "w").close()
        self.child = Child(directory, "cases", [
            "prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", f"--web.listen-address=127.0.0.1:{self.port}",
            "--storage.tsdb.retention.time=100y",
        ])
        if not until(self.is_ready):
            raise Failed(f"Prometheus does not answer: {self.child.log()[-2000:]}")

    def is_ready(self):
        try:
            return get(f"{self.url}/-/ready")[0] == 200
        except OSError:
            return False


def answer(url, form):
    """Status and data of a question, in any order, numbers to eleven digits: sums are added up in another order."""
    status, _, text = get(f"{url}/api/v1/{'query_range' if 'step' in form else 'query'}", form)
    found = json.loads(text)
    if status != 200:
        return status, found["error"]

    data = found["data"]

    def plain(one):
        if isinstance(one, list) and len(one) == 2 and isinstance(one[1], str):
            return [round(float(one[0]), 3), f"{float(one[1]):.11g}"] if data["resultType"] != "string" else one
        if isinstance(one, list):
            return [plain(part) for part in one]
        return {key: part if key == "metric" else plain(part) for key, part in one.items()} if isinstance(one, dict) else one

    ordered = data["result"] if data["resultType"] in ("scalar", "string") else sorted(data["result"], key=lambda row: json.dumps(row["metric"], sort_keys=True))
    return status, plain(ordered)


def expressions_are_answered_as_by_prometheus(server):
    lines, left_out = exposition()
    text = "".join(f"{name} {value!r} {at}.0\n".replace(" nan ", " NaN ") for _, name, value, at in lines)
    request = urllib.request.Request(f"{server.url}/api/v1/import/prometheus", text.encode(), {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=30) as told:
        equal(told.status, 204)
    other = Prometheus(server.directory, lines)
    compared, unknown, differ = 0, 0, []
    try:
        for time, expression in expressions(left_out):
            at = seconds(time) + BESIDE
            for form in [{"query": expression, "time": at}, {"query": expression, "start": BESIDE, "end": at + 120, "step": 60}]:
                ours, theirs = answer(server.url, form), answer(other.url, form)
                if theirs[0] != 200 and UNKNOWN.search(theirs[1]):
                    unknown += 1
                    continue
                compared += 1
                if ours != theirs and not (ours[0] != 200 and theirs[0] != 200) and not OTHERWISE.search(expression):
                    differ.append((expression, form, ours, theirs))
    finally:
        other.child.stop()
    for expression, form, ours, theirs in differ:
        print(f"{expression} {form}\n   ours:   {str(ours)[:600]}\n   theirs: {str(theirs)[:600]}")
    equal(len(differ), 0, f"answers that differ, of {compared}; {unknown} that this Prometheus doesn't know")
    if compared < 300:
        raise Failed(f"only {compared} answers were compared, {unknown} are of what this Prometheus doesn't know")
