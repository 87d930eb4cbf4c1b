"""The reference of the metrics, from the exposition of a server that has one of everything.

Connects to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from contrib.reference.tables import code, plain, table
from pyworkers.protocol.flow.counted import INCIDENTS
from pyworkers.protocol.histogram import Tally
from pyworkers.server.http.pages import Numbers
from pyworkers.server.http.prometheus import exposition
from pyworkers.server.plan import Group
from pyworkers.store.counters import Counts

_HEAD = """# Metrics

The page `/metrics` of a server, for Prometheus: see [Monitoring](../monitoring.md#http). No
payload adds a time series: the labels are names of handlers, queues and groups that the application
declares.

"""


def page() -> str:
    """The page: a table of all metrics."""
    rows = (
        (code(_name(metric)), metric.type, ", ".join(map(code, labels)), plain(metric.documentation))
        for metric, labels in metrics()
    )
    return _HEAD + table(("metric", "type", "labels", "meaning"), rows)


def metrics() -> Iterator[tuple[Metric, list[str]]]:
    """Each metric family with the names of its labels."""
    for metric in text_string_to_metric_families(exposition({"default": _sample()}).decode()):
        labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
        yield metric, [label for label in labels if label != "le"]


def _name(metric: Metric) -> str:
    return metric.name + ("_total" if metric.type == "counter" else "")


def _sample() -> Numbers:
    return Numbers(
        ready=dict.fromkeys(("fetching", "lease", "redis"), True),
        tallies={"mail": Tally(processed=1)},
        workers={"mail": {"idle": 1}},
        groups={"mail": Group("mail", {"mail": 1}, strict=False, concurrency=1, processes=1, mode="process")},
        busy={"mail": 0},
        paused={"mail": False},
        counts=Counts(counted={}, retries=0, enqueued={"mail": 0}),
        memory_bytes=1,
        expired={"mail": 0},
        incidents=dict.fromkeys(INCIDENTS, 0),
    )
