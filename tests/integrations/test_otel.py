"""OpenTelemetry: spans and metrics of enqueue calls and jobs, with the real SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes, messaging_attributes
from opentelemetry.trace import SpanKind, StatusCode

from pyworkers import (
    Client,
    Discard,
    DualLink,
    Interrupted,
    JobCancelled,
    JobTimeout,
    Kill,
    Message,
    Outcome,
    PyworkersError,
    Retry,
    Snooze,
    Worker,
)
from pyworkers.integrations.otel import client_link, instrument
from pyworkers.protocol.draft import PushedJob
from pyworkers.testing import EnqueuedJob, Fake, fake, inline

TRACE, PRODUCER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PRODUCER}-01"


@dataclass
class Telemetry:
    """The exporters of a test, and a worker that writes to them."""

    worker: Worker
    providers: dict[str, Any]
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def spans(self, kind: SpanKind | None = None) -> list[ReadableSpan]:
        found = self.exporter.get_finished_spans()
        return [span for span in found if kind is None or span.kind is kind]

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """The attributes and the count of each point, by the name of the metric."""
        data = self.reader.get_metrics_data()
        resources = [] if data is None else data.resource_metrics
        return {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "count", None) or getattr(point, "value", None))
                for point in metric.data.data_points
            ]
            for resource in resources
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    worker = Worker()
    providers: dict[str, Any] = {"tracer_provider": tracers, "meter_provider": meters}
    instrument(worker, **providers)
    yield Telemetry(worker, providers, exporter, reader)
    tracers.shutdown()
    meters.shutdown()


def drain(queue: Fake) -> None:
    """Run all jobs, also after one that raises."""
    count = len(queue.jobs)
    for _ in range(count):
        with suppress(Exception):
            queue.drain()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return (
        span.parent is not None
        and parent.context is not None
        and (span.parent.trace_id, span.parent.span_id) == (parent.context.trace_id, parent.context.span_id)
    )


def test_a_job_and_its_enqueue_call_are_one_trace(telemetry: Telemetry) -> None:
    @telemetry.worker.job(queue="mail")
    def send(user: int) -> None: ...

    with fake() as queue:
        jid = send.enqueue(7)
        raw = queue.jobs[0].raw
        queue.drain()
    [enqueued], [processed] = telemetry.spans(SpanKind.PRODUCER), telemetry.spans(SpanKind.CONSUMER)
    assert (enqueued.name, processed.name) == ("enqueue mail", "process mail")
    assert is_child(processed, enqueued)
    assert attributes(enqueued) == {
        "messaging.system": "pyworkers",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "create",
        "messaging.destination.name": "mail",
        "messaging.message.id": jid,
        "pyworkers.job.class": "send",
    }
    assert attributes(processed) == {
        "messaging.system": "pyworkers",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": jid,
        "messaging.message.envelope.size": len(raw),
        "pyworkers.job.class": "send",
        "pyworkers.job.attempt": 0,
        "pyworkers.job.outcome": "done",
    }


def test_the_names_are_those_of_the_conventions(telemetry: Telemetry) -> None:
    @telemetry.worker.job(retry=False)
    def fail() -> None:
        raise LookupError("lost")

    with fake() as queue:
        fail.enqueue()
        fail.enqueue_bulk([()])
        drain(queue)
    known = {
        value
        for module in (messaging_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    used = {name for span in telemetry.spans() for name in attributes(span)}
    assert {name for name in used if not name.startswith("pyworkers.")} <= known


def test_metrics(telemetry: Telemetry) -> None:
    @telemetry.worker.job(queue="mail", retry=False)
    def send(user: int) -> None:
        if user == 3:
            raise LookupError(user)

    with fake() as queue:
        send.enqueue(1)
        send.enqueue_bulk([(2,), (3,)])
        drain(queue)
    about = {"messaging.system": "pyworkers", "messaging.destination.name": "mail"}
    process = {**about, "messaging.operation.name": "process"}
    assert telemetry.metrics() == {
        "messaging.client.sent.messages": [({**about, "messaging.operation.name": "enqueue"}, 3)],
        "messaging.client.consumed.messages": [(process, 3)],
        "messaging.process.duration": [(process, 2), ({**process, "error.type": "LookupError"}, 1)],
    }


def test_jobs_of_a_bulk_are_linked_to_its_one_span(telemetry: Telemetry) -> None:
    @telemetry.worker.job(queue="mail")
    def send(user: int) -> None: ...

    with fake() as queue:
        send.enqueue_bulk([(1,), (2,)])
        send.enqueue_bulk([(3,)])
        queue.drain()
    first, second = telemetry.spans(SpanKind.PRODUCER)
    assert attributes(first)["messaging.batch.message_count"] == 2
    jobs = telemetry.spans(SpanKind.CONSUMER)
    assert [span.parent for span in jobs] == [None] * 3
    assert len({span.context.trace_id for span in [*jobs, first, second] if span.context}) == 5
    linked = [link.context.span_id for span in jobs for link in span.links]
    assert first.context
    assert second.context
    assert linked == [first.context.span_id, first.context.span_id, second.context.span_id]


async def test_jobs_of_event_loops(telemetry: Telemetry) -> None:
    @telemetry.worker.job(queue="mail")
    def send(user: int) -> None: ...

    with fake() as queue:
        with telemetry.providers["tracer_provider"].get_tracer("web").start_as_current_span("request"):
            await asyncio.gather(send.aenqueue(1), send.aenqueue_bulk([(2,), (3,)]))
        fields = [{name for name in job.data if name.startswith("trace")} for job in queue.jobs]
    assert sorted(fields, key=len) == [{"traceparent"}, *[{"traceparent", "tracelink"}] * 2]
    [request] = telemetry.spans(SpanKind.INTERNAL)
    assert [is_child(span, request) for span in telemetry.spans(SpanKind.PRODUCER)] == [True, True]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_what_a_job_enqueues_is_a_part_of_its_span(telemetry: Telemetry, kind: str) -> None:
    @telemetry.worker.job
    def inner() -> None: ...

    if kind == "def":

        @telemetry.worker.job
        def outer() -> None:
            inner.enqueue()
    else:

        @telemetry.worker.job(name="outer")
        async def outer_async() -> None:
            await inner.aenqueue()

    with fake() as queue:
        telemetry.worker.enqueue("default", "outer")
        queue.drain()
    start, outer_span, call, inner_span = (
        telemetry.spans(SpanKind.PRODUCER)[0],
        next(
            span
            for span in telemetry.spans(SpanKind.CONSUMER)
            if attributes(span)["pyworkers.job.class"] == "outer"
        ),
        telemetry.spans(SpanKind.PRODUCER)[1],
        telemetry.spans(SpanKind.CONSUMER)[1],
    )
    assert is_child(outer_span, start)
    assert is_child(call, outer_span)
    assert is_child(inner_span, call)


def run(telemetry: Telemetry, **fields: Any) -> ReadableSpan:
    """The consumer span of a job with these fields, of a producer without telemetry."""
    with fake() as queue:
        Client().enqueue("q", "job", extra=fields)
        queue.drain(telemetry.worker)
    [span] = telemetry.spans()
    return span


@pytest.fixture
def job(telemetry: Telemetry) -> None:
    @telemetry.worker.job(queue="q")
    def job() -> None: ...


@pytest.mark.usefixtures("job")
def test_the_fields_of_another_producer(telemetry: Telemetry) -> None:
    span = run(telemetry, traceparent=TRACEPARENT, tracestate="vendor=a")
    assert span.parent
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PRODUCER)
    assert span.parent.trace_state.to_header() == "vendor=a"


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"traceparent": 7},
        {"traceparent": ["a"]},
        {"traceparent": None},
        {"traceparent": "x" * 100_000},
        {"traceparent": f"00-{'0' * 32}-{PRODUCER}-01"},
        {"traceparent": TRACEPARENT, "tracestate": {"vendor": "a"}},
        {"traceparent": TRACEPARENT, "tracestate": "a=b," * 100_000},
        {"traceparent": 7, "tracelink": True},
        {"tracelink": "yes"},
    ],
)
def test_invalid_fields_of_another_producer_begin_a_trace(
    telemetry: Telemetry, fields: dict[str, Any]
) -> None:
    span = run(telemetry, **fields)
    assert (span.parent, span.links, span.status.status_code) == (None, (), StatusCode.UNSET)


@pytest.mark.parametrize(
    ("error", "outcome", "name"),
    [
        (LookupError("lost"), "failed", "LookupError"),
        (ExceptionGroup("both", [LookupError()]), "failed", "ExceptionGroup"),
        (LookupError(ValueError()), "failed", "LookupError"),
        (Kill("bad"), "dead", "pyworkers.errors.Kill"),
        (Retry(delay=1), "retry", "pyworkers.errors.Retry"),
        (Discard("old"), "discard", ""),
        (Snooze(5), "snooze", ""),
        (ExceptionGroup("tasks", [Snooze(5)]), "snooze", ""),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_how_a_job_ended(telemetry: Telemetry, error: Exception, outcome: str, name: str, kind: str) -> None:
    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    job: Callable[[], Any] = fail if kind == "def" else fail_async
    telemetry.worker.job(retry=3)(job)
    with fake() as queue:
        telemetry.worker.enqueue("default", job.__name__)
        drain(queue)
    [span] = telemetry.spans(SpanKind.CONSUMER)
    found = attributes(span)
    assert (found["pyworkers.job.outcome"], found.get("error.type", "")) == (outcome, name)
    assert span.status.status_code is (StatusCode.ERROR if name else StatusCode.UNSET)
    assert [event.name for event in span.events] == (["exception"] if name else [])


def test_each_attempt_is_a_span_of_the_same_trace(telemetry: Telemetry) -> None:
    @telemetry.worker.job(retry=2)
    def fail() -> None:
        raise LookupError

    with fake() as queue:
        fail.enqueue()
        [job] = queue.jobs
        drain(queue)
        assert job.outcome
        queue.jobs = [EnqueuedJob.of(PushedJob(job.queue, job.outcome.payload, job.jid), telemetry.worker)]
        drain(queue)
    [enqueued], attempts = telemetry.spans(SpanKind.PRODUCER), telemetry.spans(SpanKind.CONSUMER)
    assert [attributes(span)["pyworkers.job.attempt"] for span in attempts] == [0, 1]
    assert all(is_child(span, enqueued) for span in attempts)


def test_an_enqueue_call_that_raises(telemetry: Telemetry) -> None:
    with inline(), pytest.raises(PyworkersError):
        telemetry.worker.enqueue("mail", "send", [object()])
    [span] = telemetry.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "pyworkers.errors.BadArgumentError"
    assert "messaging.client.sent.messages" not in telemetry.metrics()


def test_a_job_that_a_link_stops_is_not_sent(telemetry: Telemetry) -> None:
    telemetry.worker.client_middleware(lambda draft, call_next: "")
    with fake() as queue:
        assert telemetry.worker.enqueue("mail", "send") == ""
        assert queue.jobs == []
    [span] = telemetry.spans()
    assert "messaging.message.id" not in attributes(span)
    assert "messaging.client.sent.messages" not in telemetry.metrics()


def test_a_client_without_an_application(telemetry: Telemetry) -> None:
    with fake() as queue:
        Client(middleware=[client_link(**telemetry.providers)]).enqueue("mail", "send")
        assert "traceparent" in queue.jobs[0].data
    assert [span.name for span in telemetry.spans()] == ["enqueue mail"]


def test_without_an_sdk_no_field_is_written() -> None:
    worker = Worker()
    instrument(worker)
    ran: list[int] = []

    @worker.job
    def job(number: int) -> None:
        ran.append(number)

    with fake() as queue:
        job.enqueue(1)
        job.enqueue_bulk([(2,)])
        assert [name for job in queue.jobs for name in job.data if "trace" in name] == []
        queue.drain()
    assert ran == [1, 2]


def test_a_second_call_is_an_error(telemetry: Telemetry) -> None:
    with pytest.raises(PyworkersError, match="instrumented already"):
        instrument(telemetry.worker)


@pytest.mark.parametrize(
    ("request_", "outcome", "name"),
    [
        (JobTimeout("late"), "failed", "pyworkers.errors.JobTimeout"),
        (JobCancelled(), "cancelled", ""),
        (Interrupted(), "interrupted", ""),
        (None, "failed", "asyncio.exceptions.CancelledError"),
    ],
)
async def test_a_task_that_is_cancelled_ended_by_the_request(
    telemetry: Telemetry, request_: BaseException | None, outcome: str, name: str
) -> None:
    """As a worker delivers a request to end (worker/chain.py)."""
    started = asyncio.Event()

    async def call_next(message: Message) -> Outcome:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    [link] = telemetry.worker.links
    assert isinstance(link, DualLink)
    message: Message = Message("a", "q", "job", [], {}, b"{}")
    task = asyncio.ensure_future(link.async_link(message, call_next))
    await started.wait()
    task.cancel(request_)
    with pytest.raises(asyncio.CancelledError):
        await task
    [span] = telemetry.spans()
    found = attributes(span)
    assert (found["pyworkers.job.outcome"], found.get("error.type", "")) == (outcome, name)


class _Raising:
    """A span processor, an instrument … each of whose methods raises."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("of the observer")


@pytest.mark.parametrize("is_async", [False, True])
def test_what_an_observer_raises_changes_nothing(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(_Raising())  # type: ignore[arg-type]
    worker, ran = Worker(), list[int]()
    instrument(worker, tracer_provider=tracers)

    async def arun(number: int) -> None:
        ran.append(number)

    worker.job(name="run")(arun if is_async else ran.append)
    with fake() as queue:
        worker.enqueue("default", "run", [1])
        worker.enqueue_bulk("default", "run", [[2], [3]])
        queue.drain()
        assert [job.outcome and job.outcome.fate.name for job in queue.ran] == ["DONE"] * 3
    assert ran == [1, 2, 3]
    observers = [record.__dict__["observer"] for record in caplog.records if record.msg == "observer.failed"]
    assert sorted(observers) == ["opentelemetry.enqueue", "opentelemetry.process"]


def test_an_exception_without_a_text_keeps_its_fate(telemetry: Telemetry) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @telemetry.worker.job(discard_on=(Silent,))
    def dropped() -> None:
        raise Silent

    @telemetry.worker.job(retry_on=(Silent,))
    def again() -> None:
        raise Silent

    with fake() as queue:
        dropped.enqueue()
        again.enqueue()
        drain(queue)
        assert [job.outcome and job.outcome.fate.name for job in queue.ran] == ["DISCARD", "RETRY"]
    one, other = telemetry.spans(SpanKind.CONSUMER)
    assert (attributes(one)["pyworkers.job.outcome"], one.status.is_ok) == ("discard", True)
    assert (attributes(other)["pyworkers.job.outcome"], other.status.is_ok) == ("failed", False)
    [event] = other.events
    assert (event.attributes or {})["exception.message"] == "(its text cannot be shown: __str__ failed)"
