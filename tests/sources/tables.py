"""What is exported as Parquet and Arrow, as DuckDB reads it: the same numbers as the server's own answers."""

import os
import random
import subprocess

import duckdb
import pyarrow

from serving import equal, prometheus_data

BEGIN = 1_767_225_600
POINTS = 5_000


def points():
    """Numbers of several series: integers, floats of many digits, and times that no other unit than nanoseconds tells apart."""
    draw = random.Random(11)
    for which, name in enumerate(["cpu.user host=a", "cpu.user host=b", "cpu.idle host=a", "memory"]):
        when = BEGIN * 10**9
        for _ in range(POINTS):
            when += draw.randrange(1, 2 * 10**9)
            yield name, when, draw.randrange(-10**6, 10**6) if which % 2 else draw.uniform(-1e3, 1e3)


def duckdb_answers_as_the_server_does(server):
    """Counts, sums, ends and bounds of each series, of a file of Parquet, of a stream of Arrow, and of both imported again."""
    program, data = server.program, os.path.join(server.directory, "data")
    csv = os.path.join(server.directory, "points.csv")
    with open(csv, "w") as file:
        file.writelines(f"{name},{when},{value!r}\n" for name, when, value in points())
    cluster = os.path.join(data, "fdb.cluster")
    series = [program, "series"]

    def run(*arguments):
        subprocess.run([*series, *arguments], check=True, capture_output=True, timeout=120)

    run("import", "--cluster-file", cluster, "--format", "csv", csv)
    files = {kind: os.path.join(server.directory, f"points.{kind}") for kind in ["parquet", "arrow"]}
    for kind, file in files.items():
        with open(file, "wb") as out:
            command = [*series, "export", "--cluster-file", cluster, "--format", kind]
            subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL, timeout=120)
    with open(files["arrow"], "rb") as file:
        arrow = pyarrow.ipc.open_stream(file).read_all()
    parquet = duckdb.sql(f"select * from read_parquet('{files['parquet']}')")
    wanted = answers(parquet)
    equal(len(wanted), 4)
    equal([count for _, count, *_ in wanted], [POINTS] * 4)
    rows = points_of(parquet)
    equal(points_of(duckdb.from_arrow(arrow)), rows, "Arrow beside Parquet")
    equal(rounded(promql(server, name) for name, *_ in wanted), rounded(wanted), "the server's answers beside DuckDB's")
    # What was read back is what was written.
    again = os.path.join(server.directory, "again")
    run("import", "--dir", again, "--create", "--format", "parquet", files["parquet"])
    with open(files["parquet"] + ".again", "wb") as out:
        subprocess.run([*series, "export", "--dir", again, "--format", "parquet"], check=True, stdout=out, stderr=subprocess.DEVNULL, timeout=120)
    read_again = duckdb.sql(f"select * from read_parquet('{files['parquet']}.again')")
    equal(points_of(read_again), rows, "imported and exported again")


def points_of(table):
    """Every point, in order: nothing that DuckDB's threads could do in another order."""
    return table.project("series, epoch_ns(time) as nanoseconds, value").order("series, nanoseconds, value").fetchall()


def answers(table):
    """A row for each series: its name, how many points, their sum, the least and the greatest."""
    return table.aggregate("series, count(value), sum(value), min(value), max(value)", "series").order("series").fetchall()


def rounded(rows):
    """Sums are added up in another order, DuckDB's own in whichever order its threads take."""
    return [(name, *(f"{float(number):.11g}" for number in numbers)) for name, *numbers in rows]


def promql(server, name):
    """The same from the server, by PromQL."""
    metric, *tags = name.split(" ")
    labels = "".join(f',{tag.split("=")[0]}="{tag.split("=")[1]}"' for tag in tags)
    functions = ["count", "sum", "min", "max"]
    queries = [f'{function}_over_time({{__name__="{metric}"{labels}}}[1d])' for function in functions]
    found = [prometheus_data(server.url, "query", query=query, time=BEGIN + 4 * POINTS)["result"] for query in queries]
    return (name, *(rows[0]["value"][1] for rows in found))
