"""Prometheus: the numbers of one server in Prometheus' format. Needs the extra ``metrics``.

Runs in the master, which has aggregated all workers. Labels are the names of groups, queues and handlers
alone, so that no payload can add a time series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pyworkers.protocol.flow.counted import COUNTERS
from pyworkers.protocol.histogram import BOUNDS_MS, Tally
from pyworkers.server.http.pages import Numbers
from pyworkers.store.counters import Counts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MEMORY = "pyworkers_resident_memory_bytes"
_STATES = ("booting", "idle", "busy", "leaving")


def exposition(snapshots: Mapping[str, Numbers]) -> bytes:
    """The text of the page /metrics: the numbers by the name of each Redis, a label if there are several."""
    registry = CollectorRegistry(auto_describe=False)
    collectors = {name: _Collector(snapshot) for name, snapshot in snapshots.items()}
    several = len(collectors) > 1
    registry.register(_Labelled(collectors) if several else next(iter(collectors.values())))
    return bytes(generate_latest(registry))


class _Labelled:
    """The families of all Redis servers: samples have the label ``redis``, unless they are the server's."""

    def __init__(self, collectors: Mapping[str, _Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Any]:
        """The metric families: prometheus_client's interface."""
        families: dict[str, Any] = {}
        for redis, collector in self._collectors.items():
            for found in collector.collect():
                family = families.setdefault(found.name, type(found)(found.name, found.documentation))
                where = {} if found.name == _MEMORY else {"redis": redis}
                if where or not family.samples:
                    samples = (one._replace(labels={**one.labels, **where}) for one in found.samples)
                    family.samples.extend(samples)
        yield from families.values()


class _Collector:
    def __init__(self, snapshot: Numbers) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Any]:
        """The metric families: prometheus_client's interface."""
        yield from self._jobs()
        yield from self._groups()
        yield from self._queues()
        for name, holds in self._snapshot.ready.items():
            yield GaugeMetricFamily(f"pyworkers_ready_{name}", f"1 if this holds: {name}", value=holds)
        text = "Memory of master, fork server and workers; shared pages count once"
        yield GaugeMetricFamily(_MEMORY, text, value=self._snapshot.memory_bytes)

    def _jobs(self) -> Iterator[Any]:
        processed = CounterMetricFamily(
            "pyworkers_jobs_processed", "Jobs that ran here, failed ones included", labels=["job_class"]
        )
        failed = CounterMetricFamily("pyworkers_jobs_failed", "Jobs that failed here", labels=["job_class"])
        expired = CounterMetricFamily(
            "pyworkers_jobs_expired", "Jobs that were dropped here: they had expired", labels=["job_class"]
        )
        for name, number in self._snapshot.expired.items():
            expired.add_metric([name], number)
        duration = HistogramMetricFamily(
            "pyworkers_job_duration_seconds", "How long jobs ran that did not fail", labels=["job_class"]
        )
        for name, tally in self._snapshot.tallies.items():
            processed.add_metric([name], tally.processed)
            failed.add_metric([name], tally.failed)
            duration.add_metric([name], buckets=_buckets(tally), sum_value=tally.total_ms / 1000)
        yield from (processed, failed, expired, duration)
        for name, number in self._snapshot.incidents.items():
            yield CounterMetricFamily(f"pyworkers_jobs_{name}", COUNTERS[name], value=number)

    def _groups(self) -> Iterator[Any]:
        workers = GaugeMetricFamily("pyworkers_workers", "Worker processes", labels=["group", "state"])
        for name, states in self._snapshot.workers.items():
            for state in _STATES:
                workers.add_metric([name, state], states.get(state, 0))
        most = GaugeMetricFamily(
            "pyworkers_group_concurrency", "Jobs that can run at a time", labels=["group", "mode"]
        )
        busy = GaugeMetricFamily("pyworkers_group_busy", "Jobs that run", labels=["group"])
        text = "1 if the group has no worker and cannot start one"
        failing = GaugeMetricFamily("pyworkers_group_failing", text, labels=["group"])
        for name, group in self._snapshot.groups.items():
            failing.add_metric([name], name in self._snapshot.failing)
            most.add_metric([name, group.mode], group.concurrency)
            busy.add_metric([name], self._snapshot.busy[name])
        yield from (workers, most, busy, failing)

    def _queues(self) -> Iterator[Any]:
        paused = GaugeMetricFamily("pyworkers_queue_paused", "1 if the queue is paused", labels=["queue"])
        for queue, holds in self._snapshot.paused.items():
            paused.add_metric([queue], holds)
        yield paused
        if self._snapshot.counts is not None:
            size = GaugeMetricFamily("pyworkers_queue_size", "Jobs that wait", labels=["queue"])
            for queue, number in self._snapshot.counts.enqueued.items():
                size.add_metric([queue], number)
            latency = GaugeMetricFamily(
                "pyworkers_queue_latency_seconds", "How long the next job has been waiting", labels=["queue"]
            )
            for queue, seconds in self._snapshot.counts.latencies_s.items():
                latency.add_metric([queue], seconds)
            yield from (size, latency, *_sets(self._snapshot.counts))


def _sets(counts: Counts) -> Iterator[Any]:
    yield GaugeMetricFamily("pyworkers_retries", "Jobs that wait for a retry", value=counts.retries)
    yield GaugeMetricFamily("pyworkers_scheduled", "Jobs that are scheduled", value=counts.scheduled)
    yield GaugeMetricFamily("pyworkers_dead", "Jobs that are dead", value=counts.dead)


def _buckets(tally: Tally) -> list[tuple[str, float]]:
    bounds = [*(str(ms / 1000) for ms in BOUNDS_MS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(tally.buckets)), strict=True))
