"""OpenTelemetry in a real server: spans of each mode, their export at the end of a worker, and faults."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyworkers import Client
from pyworkers.integrations.otel import client_link
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import ROOT, STALL_S, wait_for, whole_lines

# An hour between two exports: only the end of a worker writes its spans.
APP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from pyworkers.integrations.otel import instrument

instrument(worker)

class FileExporter(SpanExporter):
    def export(self, spans):
        note("export")
        if Path(__file__).with_name("hang").exists():
            time.sleep(301)
        with Path(__file__).with_name("spans").open("a") as file:
            file.writelines(span.to_json(indent=None) + "\\n" for span in spans)
        return SpanExportResult.SUCCESS

@worker.on_startup
def telemetry():
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(FileExporter(), schedule_delay_millis=3_600_000))
    trace.set_tracer_provider(provider)

@worker.job(queue="last")
def last():
    note("last")

@worker.process("process", concurrency=2)
def in_process(message):
    note("process", *message.args)
    if message.args == ["meet"] and not message.crash_count:
        meet("go")
    last.enqueue()

@worker.process("thread", mode="thread", concurrency=4, processes=1)
def in_thread(message):
    last.enqueue()

@worker.process("loop", concurrency=4, processes=1)
async def on_loop(message):
    await last.aenqueue()
"""


class Traced:
    """A client that traces its enqueue calls, and the ids of their spans."""

    def __init__(self, url: str, namespace: str) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.client = Client(url, namespace=namespace, middleware=[client_link(tracer_provider=provider)])

    def ids(self) -> list[str]:
        """The spans so far, as their children name them."""
        return [
            f"0x{span.context.span_id:016x}" for span in self._exporter.get_finished_spans() if span.context
        ]


@pytest.fixture
def traced(one_redis_url: str, namespace: str) -> Traced:
    return Traced(one_redis_url, namespace)


@pytest.fixture
def serve(tmp_path: Path, one_redis_url: str, namespace: str) -> Serve:
    return functools.partial(serving, tmp_path, one_redis_url, namespace, APP)


def spans(server: ServerProcess) -> list[dict[str, Any]]:
    path = server.folder / "spans"
    return [json.loads(line) for line in whole_lines(path)] if path.exists() else []


def by_name(server: ServerProcess, name: str) -> list[dict[str, Any]]:
    return [span for span in spans(server) if span["name"] == name]


def test_each_mode_has_its_spans_when_the_server_stops(serve: Serve, traced: Traced) -> None:
    with serve() as server:
        for queue in ("process", "thread", "loop"):
            for _ in range(5):
                traced.client.enqueue(queue, "Work", ["x"])
        server.wait_for_notes(15, "last")
        wait_for(lambda: server.settled("process", "thread", "loop", "last"))
        assert server.stop() == 0
        runs = [
            span for queue in ("process", "thread", "loop") for span in by_name(server, f"process {queue}")
        ]
        assert sorted(span["parent_id"] for span in runs) == sorted(traced.ids())
        calls = by_name(server, "enqueue last")
        ids = {span["context"]["span_id"] for span in runs}
        assert len(ids) == 15
        assert {span["parent_id"] for span in calls} == ids
        inner = by_name(server, "process last")
        assert {span["parent_id"] for span in inner} == {span["context"]["span_id"] for span in calls}
        assert len({span["context"]["trace_id"] for span in inner}) == 15
        assert server.events("hook.failed") == []


def test_a_worker_that_retires_exports_first(serve: Serve, traced: Traced) -> None:
    with serve(PYWORKERS_SERVER__MAX_JOBS_PER_WORKER="1") as server:
        for number in range(3):
            traced.client.enqueue("process", "Work", [number])
        wait_for(lambda: len(by_name(server, "process process")) == 3)
        assert sorted(s["parent_id"] for s in by_name(server, "process process")) == sorted(traced.ids())


@pytest.mark.fault("V1")
def test_v1_an_exporter_that_hangs_keeps_no_worker(serve: Serve, traced: Traced) -> None:
    with serve() as server:
        (server.folder / "hang").touch()
        traced.client.enqueue("process", "Work", ["x"])
        server.wait_for_notes(1, "last")
        wait_for(lambda: server.settled("process", "last"))
        began = time.monotonic()
        assert server.stop() == 0
        # Otherwise it would be as long as the shutdown timeout: 25 s.
        assert time.monotonic() - began < 10 + 2 * STALL_S
        server.wait_for_output("not exported within 3 s")
        assert spans(server) == []


@pytest.mark.fault("V2")
def test_v2_a_killed_worker_loses_spans_and_no_job(serve: Serve, traced: Traced) -> None:
    with serve() as server:
        traced.client.enqueue("process", "Work", ["meet"], retry=3)
        [[pid, *_]] = server.wait_for_notes(1, "go")
        os.kill(pid, signal.SIGKILL)
        server.wait_for_notes(1, "last")
        wait_for(lambda: server.settled("process", "last"))
        assert server.stop() == 0
        [run] = by_name(server, "process process")
        assert run["parent_id"] == traced.ids()[0]
        assert run["attributes"]["pyworkers.job.outcome"] == "done"


PAGE = (ROOT / "contrib/docs/opentelemetry.md").read_text()
[PROGRAM] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_program_of_the_page(tmp_path: Path, one_redis_url: str, namespace: str, traced: Traced) -> None:
    with serving(tmp_path, one_redis_url, namespace, PROGRAM) as server:
        jid = traced.client.enqueue("mail", "send_mail", [7])
        server.wait_for_output("mail to 7")
        wait_for(lambda: server.settled("mail"))
        assert server.stop() == 0
        log = server.log_text()
    assert '"name": "process mail"' in log
    assert f'"messaging.message.id": "{jid}"' in log
    assert f'"parent_id": "{traced.ids()[0]}"' in log
    assert '"service.name": "shop"' in log
    assert '"name": "messaging.process.duration"' in log
