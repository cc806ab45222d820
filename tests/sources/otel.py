"""OpenTelemetry's SDK, its exporter and its collector, as they are: what a program counted is what is asked for, in either temporality, the server
killed in between."""

import os
import threading
from types import SimpleNamespace

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from serving import Child, Failed, equal, free_port, get, prometheus_data, until

RESOURCE = {"service.name": "shop", "service.namespace": "eu", "service.instance.id": "box:1", "host.name": "a b", "process.tags": ["x", "y"]}


def provider(server, temporality, compression, views=()):
    kinds = {kind: temporality for kind in (Counter, Histogram, UpDownCounter)}
    exporter = OTLPMetricExporter(endpoint=f"{server.url}/v1/metrics", compression=compression, preferred_temporality=kinds)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    return MeterProvider([reader], resource=Resource.create(RESOURCE), views=views)


def values(server, expression):
    """{the labels but those of the resource and of the meter: the value}"""
    found = {}
    for series in prometheus_data(server.url, "query", query=expression)["result"]:
        labels = {name: value for name, value in series["metric"].items() if name not in ("job", "instance") and not name.startswith("otel_scope_")}
        equal((series["metric"]["job"], series["metric"]["instance"]), ("eu/shop", "box:1"), expression)
        found[tuple(sorted(labels.items()))] = float(series["value"][1])
    return found


def counts(server, temporality, compression):
    """A program that counts, while the server is killed and comes back between two of its exports."""
    name = temporality.name.lower()
    views = [View(instrument_name=f"{name}.took", aggregation=ExplicitBucketHistogramAggregation([0.5, 10, 2500]))]
    of = provider(server, temporality, compression, views)
    meter = of.get_meter("tests", "1.0")
    requests = meter.create_counter(f"{name}.requests", unit="{request}")
    size = meter.create_up_down_counter(f"{name}.size", unit="By")
    took = meter.create_histogram(f"{name}.took", unit="ms")
    meter.create_observable_gauge(f"{name}.used", [lambda _: [Observation(0.25, {"disk": "C:\\x y"})]], unit="1")
    for step in range(3):
        requests.add(3, {"http.method": "GET", "deep": ("a", "b")})
        requests.add(step, {"http.method": "PUT"})
        size.add(2**40 if step == 0 else -1)
        for value in (0.25, 5, 7, 1e6):
            took.record(value, {"route": "/"})
        equal(of.force_flush(), True)
        server.kill()
        server.start()
    metric = lambda suffix, **labels: tuple(sorted({"__name__": f"{name}_{suffix}", **labels}.items()))
    equal(values(server, f"{name}_requests_total"), {
        metric("requests_total", http_method="GET", deep='["a","b"]'): 9, metric("requests_total", http_method="PUT"): 3})
    equal(values(server, f"{name}_size_bytes"), {metric("size_bytes"): 2**40 - 2})
    [series] = prometheus_data(server.url, "query", query=f"{name}_size_bytes")["result"]
    equal([series["metric"].get(f"otel_scope_{part}") for part in ("name", "version")], ["tests", "1.0"])
    equal(values(server, f"{name}_used_ratio"), {metric("used_ratio", disk="C:\\x y"): 0.25})
    equal(values(server, f"{name}_took_milliseconds_bucket"), {
        metric("took_milliseconds_bucket", route="/", le=le): count for le, count in [("0.5", 3), ("10", 9), ("2500", 9), ("+Inf", 12)]})
    equal(values(server, f"{name}_took_milliseconds_count"), {metric("took_milliseconds_count", route="/"): 12})
    equal(values(server, f"{name}_took_milliseconds_sum"), {metric("took_milliseconds_sum", route="/"): 3 * (12.25 + 1e6)})
    of.shutdown()


def opentelemetry_counts_on_whoever_is_killed(server):
    counts(server, AggregationTemporality.CUMULATIVE, Compression.Gzip)
    counts(server, AggregationTemporality.DELTA, Compression.NoCompression)
    info = prometheus_data(server.url, "query", query="target_info")["result"]
    equal([(one["metric"]["host_name"], one["metric"]["process_tags"], one["metric"]["telemetry_sdk_language"]) for one in info],
          [("a b", '["x","y"]', "python")])


def opentelemetry_has_native_histograms(server):
    views = [View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation())]
    of = provider(server, AggregationTemporality.CUMULATIVE, Compression.Gzip, views)
    meter = of.get_meter("tests")
    meter.create_histogram("exponential").record(5)
    meter.create_counter("beside").add(1)
    equal(of.force_flush(), True)
    of.shutdown()
    equal(list(values(server, "beside_total").values()), [1.0])
    for asked, expected in [("histogram_count(exponential)", "1"), ("histogram_sum(exponential)", "5")]:
        result = prometheus_data(server.url, "query", query=asked)["result"]
        equal([one["value"][1] for one in result], [expected])


COLLECTOR = os.environ.get("PLINTH_COLLECTOR", "")

# Without a queue, whoever sends is answered when the server has it.
COLLECTOR_YML = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  otlphttp:
    endpoint: "{url}"
    sending_queue: {{enabled: false}}
    retry_on_failure: {{initial_interval: 100ms, max_interval: 300ms, max_elapsed_time: 60s}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlphttp]}}}}
"""


def a_collector_passes_on_whoever_is_killed(server):
    """It sends again what the server missed while it was away, and nothing is counted twice."""
    port = free_port()
    config = os.path.join(server.directory, "collector.yml")
    with open(config, "w") as file:
        file.write(COLLECTOR_YML.format(port=port, url=server.url))
    collector = Child(server.directory, "collector", [COLLECTOR, f"--config=file:{config}"])
    try:
        here = SimpleNamespace(url=f"http://127.0.0.1:{port}")

        def is_there():
            try:
                return get(f"{here.url}/v1/metrics")[0] == 405
            except OSError:
                return False

        if not until(is_there):
            raise Failed(f"the collector does not answer: {collector.log()[-2000:]}")
        of = provider(server=here, temporality=AggregationTemporality.DELTA, compression=Compression.Gzip)
        counter = of.get_meter("tests").create_counter("passed.on")
        for step in range(4):
            counter.add(1 + step, {"step": "odd" if step % 2 else "even"})
            server.kill()
            sending = threading.Thread(target=of.force_flush)
            sending.start()
            # Until it has been refused at least once.
            refused = collector.log().count("Exporting failed")
            until(lambda: collector.log().count("Exporting failed") > refused, 5)
            server.start()
            sending.join(30)
            equal(sending.is_alive(), False)
        of.shutdown()
        name = lambda step: (("__name__", "passed_on_total"), ("step", step))
        equal(values(server, "passed_on_total"), {name("even"): 4, name("odd"): 6}, collector.log()[-2000:])
    finally:
        collector.stop()
