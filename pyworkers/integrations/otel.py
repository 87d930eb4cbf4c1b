"""OpenTelemetry (extra ``otel``): a span for each enqueue call and each run of a job, and metrics.

Used in programs that enqueue and in worker processes. It makes no provider and no exporter: without an SDK,
it does nothing. Span names, attributes and metrics follow the semantic conventions for messaging.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pyworkers import (
    Discard,
    DualLink,
    Interrupted,
    JobCancelled,
    Kill,
    Message,
    Outcome,
    PyworkersError,
    Retry,
    Snooze,
    Worker,
    __version__,
)
from pyworkers.integrations.outcomes import is_discarded, meaning_of
from pyworkers.middleware import AsyncCallNext, CallNext, ClientCallNext, ClientMiddleware
from pyworkers.observing.guard import ObservedRun, Observer
from pyworkers.observing.readable import pieces_of, readable, text_of
from pyworkers.protocol.draft import Bulk, JobDraft

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The version of the semantic conventions."""

# The master kills a worker 5 s after the last job of a stop.
_FLUSH_S = 3.0
_SYSTEM = {"messaging.system": "pyworkers"}
_ENQUEUE = {**_SYSTEM, "messaging.operation.name": "enqueue", "messaging.operation.type": "create"}
_PROCESS = {**_SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
# The boundaries that the conventions name.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
# W3C's: other formats, and baggage, are not written into jobs.
_W3C = TraceContextTextMapPropagator()
_TRACE_FIELDS = ("traceparent", "tracestate")
_LINKED = "tracelink"
# W3C: 32 members of at most 512 characters.
_LONGEST_FIELD = 32 * 513
# Exceptions that choose what happens to the job; only a failure counts as an error.
_CHOICES: Mapping[type[BaseException], tuple[str, bool]] = {
    Retry: ("retry", True),
    Kill: ("dead", True),
    Discard: ("discard", False),
    Snooze: ("snooze", False),
    JobCancelled: ("cancelled", False),
    Interrupted: ("interrupted", False),
}

_log = logging.getLogger(__name__)


def instrument(
    worker: Worker,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure the enqueue calls and the jobs of an application. Call it before other middleware.

    Without providers, the providers of the process count, also if they are set later: set them in
    ``on_startup`` of the worker, because threads of an exporter do not survive a fork. A worker process that
    ends exports its spans and metrics first, within 3 seconds. Raises PyworkersError if the worker has this
    already.
    """
    if any(isinstance(link, _ConsumerLink) for link in worker.links):
        raise PyworkersError("the worker is instrumented already", hint="call instrument once")
    tracer, meter = _tracer(tracer_provider), _meter(meter_provider)
    worker.client_middleware(OtelProducer(tracer, meter).link)
    worker.middleware(_ConsumerLink(OtelConsumer(tracer, meter, worker)))

    @worker.on_shutdown
    def flush_telemetry() -> None:
        _flush(tracer_provider or trace.get_tracer_provider(), meter_provider or metrics.get_meter_provider())


def client_link(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> ClientMiddleware:
    """The part of ``instrument`` for a separate client: ``Client(middleware=[client_link()])``."""
    return OtelProducer(_tracer(tracer_provider), _meter(meter_provider)).link


class OtelProducer:
    """The client middleware: a producer span, whose context travels in the envelope."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Number of jobs in enqueue calls."
        )
        self._observer = Observer("opentelemetry.enqueue")
        # The bulk enqueue of this context, and the fields of its jobs.
        self._bulk: ContextVar[tuple[Bulk, dict[str, Any]] | None] = ContextVar("otel_bulk", default=None)

    def link(self, draft: JobDraft, call_next: ClientCallNext) -> str:
        """Enqueue a job with the fields of its span, and count it."""
        jid = self._single(draft, call_next) if draft.bulk is None else self._member(draft, call_next)
        if jid:
            about = {**_metric(_ENQUEUE), "messaging.destination.name": draft.queue}
            self._observer.see(self._sent.add, 1, about)
        return jid

    def _single(self, draft: JobDraft, call_next: ClientCallNext) -> str:
        span = _Current(self._observer, self._started(draft))
        fields = self._observer.see(_fields) or {}
        try:
            jid = call_next(_with(draft, fields))
        except BaseException as error:
            self._observer.see(_note_refusal, span.span, error)
            raise
        else:
            if jid:
                self._observer.see(span.span.set_attribute, "messaging.message.id", jid)
            return jid
        finally:
            span.end()

    def _member(self, draft: JobDraft, call_next: ClientCallNext) -> str:
        return call_next(_with(draft, self._observer.see(self._fields_of, draft) or {}))

    def _fields_of(self, draft: JobDraft) -> dict[str, Any]:
        """The fields of the jobs of a bulk enqueue, which have one span."""
        if (known := self._bulk.get()) is not None and known[0] is draft.bulk:
            return known[1]
        span = _Current(self._observer, self._started(draft))
        found = self._observer.see(_fields)
        span.end()
        fields = {**found, _LINKED: True} if found else {}
        if draft.bulk is not None:
            self._bulk.set((draft.bulk, fields))
        return fields

    def _started(self, draft: JobDraft) -> Span | None:
        about: dict[str, Any] = {
            **_ENQUEUE,
            "messaging.destination.name": draft.queue,
            "pyworkers.job.class": draft.job_class,
        }
        if draft.bulk is not None:
            about["messaging.batch.message_count"] = draft.bulk.size
        name = f"enqueue {draft.queue}"
        return self._observer.see(self._tracer.start_span, name, kind=SpanKind.PRODUCER, attributes=about)


class _Current:
    """A span that is the current one until its end; one that does nothing if it could not be started."""

    def __init__(self, observer: Observer, span: Span | None) -> None:
        self._observer = observer
        self.span = trace.INVALID_SPAN if span is None else span
        self._token = None if span is None else observer.see(attach, trace.set_span_in_context(span))

    def end(self) -> None:
        """Make the span before it the current one."""
        if self._token is not None:
            self._observer.see(detach, self._token)
        self._observer.see(self.span.end)


class _ConsumerLink(DualLink):
    """The middleware, in both forms."""

    def __init__(self, consuming: OtelConsumer) -> None:
        super().__init__(consuming.link, consuming.async_link)


class OtelConsumer:
    """The middleware: a consumer span, and the metrics of a run."""

    def __init__(self, tracer: Tracer, meter: Meter, worker: Worker | None = None) -> None:
        """``worker`` knows which exceptions drop a job (``discard_on``)."""
        self._tracer = tracer
        self._worker = worker
        self.observer = Observer("opentelemetry.process")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Number of runs of jobs that began."
        )
        self._duration = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of the runs of jobs.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def link(self, message: Message, call_next: CallNext) -> Outcome:
        """Run a ``def`` job in its span."""
        with self._begin(message) as run:
            return run.returned(call_next(message))

    async def async_link(self, message: Message, call_next: AsyncCallNext) -> Outcome:
        """Run an ``async def`` job in its span."""
        with self._begin(message) as run:
            return run.returned(await call_next(message))

    def _begin(self, message: Message) -> _TracedRun:
        queue = {"messaging.destination.name": message.queue}
        measured: dict[str, Any] = {**_metric(_PROCESS), **queue}
        self.observer.see(self._consumed.add, 1, measured)
        span = _Current(self.observer, self.observer.see(self._started, message, queue))
        return _TracedRun(self, message, span, measured)

    def _started(self, message: Message, queue: Mapping[str, str]) -> Span:
        parent, links = _origin(message.data)
        return self._tracer.start_span(
            f"process {message.queue}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes={**_PROCESS, **queue, **_about(message)},
            links=links,
        )

    def note_error(self, span: Span, message: Message, raised: BaseException) -> str:
        """Note how the job ended; returns the name of the error, empty if it did not fail."""
        error = meaning_of(raised)
        chosen = (_CHOICES[kind] for kind in type(error).__mro__ if kind in _CHOICES)
        outcome, is_failure = next(chosen, ("failed", True))
        if is_failure and is_discarded(self._worker, message, error):
            outcome, is_failure = "discard", False
        span.set_attribute("pyworkers.job.outcome", outcome)
        if not is_failure:
            return ""
        name = _name(error)
        span.set_status(Status(StatusCode.ERROR, name))
        span.set_attribute("error.type", name)
        _record(span, error)
        return name

    def measure(self, seconds: float, measured: Mapping[str, Any]) -> None:
        """Count the duration of a run."""
        self.observer.see(self._duration.record, seconds, measured)


class _TracedRun(ObservedRun):
    """The span and the measurement of one run."""

    def __init__(
        self, consuming: OtelConsumer, message: Message, current: _Current, measured: dict[str, Any]
    ) -> None:
        self._consuming = consuming
        self._see = consuming.observer.see
        self._message = message
        self._current = current
        self._measured = measured
        self._started_s = time.perf_counter()

    def returned(self, outcome: Outcome) -> Outcome:
        self._see(_note_outcome, self._current.span, outcome)
        return outcome

    def raised(self, raised: BaseException) -> None:
        error = readable(raised)
        name = self._see(self._consuming.note_error, self._current.span, self._message, error)
        if name:
            self._measured["error.type"] = name

    def end(self) -> None:
        self._consuming.measure(time.perf_counter() - self._started_s, self._measured)
        self._current.end()


def _about(message: Message) -> dict[str, Any]:
    return {
        "messaging.message.id": message.jid,
        "messaging.message.envelope.size": len(message.raw),
        "pyworkers.job.class": message.job_class,
        "pyworkers.job.attempt": message.attempt,
    }


def _metric(operation: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in operation.items() if name != "messaging.operation.type"}


def _with(draft: JobDraft, fields: Mapping[str, Any]) -> JobDraft:
    """The draft with these fields; itself without any, because a changed one is made anew."""
    return draft.with_extra(**fields) if fields else draft


def _fields() -> dict[str, str]:
    """The fields of the envelope that name the span of this context; empty if there is none."""
    fields: dict[str, str] = {}
    _W3C.inject(fields)
    return fields


def _origin(data: Mapping[str, Any]) -> tuple[Context, Sequence[Link]]:
    """The parent of a consumer span, and its links. An invalid field counts as missing."""
    fields = {name: data[name] for name in _TRACE_FIELDS if name in data}
    if not all(isinstance(value, str) and len(value) <= _LONGEST_FIELD for value in fields.values()):
        fields = {}
    # Never the span of this thread: the envelope decides.
    parent = _W3C.extract(fields, Context())
    if data.get(_LINKED) is not True:
        return parent, ()
    producer = trace.get_current_span(parent).get_span_context()
    return Context(), (Link(producer),) if producer.is_valid else ()


def _note_outcome(span: Span, outcome: Outcome) -> None:
    span.set_attribute("pyworkers.job.outcome", outcome.fate.name.lower())
    if outcome.failed:
        span.set_status(Status(StatusCode.ERROR, outcome.error_class or None))
        span.set_attribute("error.type", outcome.error_class or "_OTHER")


def _note_refusal(span: Span, raised: BaseException) -> None:
    """Note why a job could not be enqueued."""
    error = readable(raised)
    if isinstance(error, Exception):
        name = _name(error)
        span.set_attribute("error.type", name)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {text_of(error)}"))
        _record(span, error)


def _record(span: Span, error: BaseException) -> None:
    """As the SDK's ``record_exception``, which raises what ``__str__`` raises."""
    about = {
        "exception.type": _name(error),
        "exception.message": text_of(error),
        "exception.stacktrace": "".join(pieces_of((type(error), error, error.__traceback__))),
        "exception.escaped": "False",
    }
    span.add_event("exception", about)


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("pyworkers", __version__, provider, SCHEMA_URL)


def _meter(provider: MeterProvider | None) -> Meter:
    return metrics.get_meter("pyworkers", __version__, provider, SCHEMA_URL)


def _flush(*providers: object) -> None:
    """Export what is left. An unreachable collector does not keep the process: exporters wait for longer."""

    def flush() -> None:
        for provider in providers:
            if (force := getattr(provider, "force_flush", None)) is not None:
                force()

    thread = threading.Thread(target=flush, name="flush telemetry", daemon=True)
    thread.start()
    thread.join(_FLUSH_S)
    if thread.is_alive():
        _log.warning("spans and metrics were not exported within %g s", _FLUSH_S)
