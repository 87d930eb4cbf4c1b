"""Sentry: errors of jobs as events, and cron entries as monitors.

Used while the application is imported, and in worker processes. Each job has an isolation scope of its own.
The client of a worker process is made after the fork: threads and unsent events of another process are not
its own.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.scope import use_isolation_scope

from pyworkers import CallNext, Discard, DualLink, Message, Outcome, PyworkersError, Retry, Worker, WorkerLost
from pyworkers.middleware import AsyncCallNext, ClientCallNext
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.cronlines import line_of, period_s
from pyworkers.protocol.draft import JobDraft
from pyworkers.protocol.outcome import Fate

TRACE_FIELD = "trace_propagation_headers"
"""The field of the envelope with the headers of a trace; that of Sentry's package for Sidekiq."""
FLUSH_S = 3.0
"""Seconds in which a worker process that ends sends what is left; the master waits for 5."""
# On an exception: the isolation scope of the job that raised it. The outcome is known only after the links.
_SCOPE = "__pyworkers_sentry_scope__"
_NAMESPACE = uuid.UUID("9c1f3d6e-0d1f-4f0a-8a5b-5b7d3c2e1a90")
# The lines that Sentry reads: five fields, of numbers, signs and names such as mon.
_MONITORED_LINE = re.compile(r"((?:[0-9*/,-]|\b[a-z]{3}\b)+ ){4}(?:[0-9*/,-]|\b[a-z]{3}\b)+")
_LONGEST_SLUG = 50
_LONGEST_TAG = 200
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))


def sentry_integration(
    worker: Worker,
    *,
    arguments: bool = False,
    retries: bool = False,
    monitors: bool = True,
    traces: bool = False,
    **options: Any,
) -> None:
    """Report the failed jobs of an application to Sentry. Call it before other middleware is declared.

    ``options`` are those of ``sentry_sdk.init``, which the server calls with them before it starts workers;
    without any, those of an earlier ``sentry_sdk.init`` count. A job that is dead or dropped is one event,
    with the tags ``pyworkers.jid``, ``.queue``, ``.class``, ``.attempt``; ``Discard`` and ``Retry`` are none.

    ``arguments``: show the job's arguments, unless they are encrypted. ``retries``: an event for each failed
    run that is retried, too. ``monitors``: cron entries of the application are monitors. ``traces``: a
    job continues the trace of the program that enqueued it. Raises PyworkersError if called again.
    """
    if any(isinstance(link, _JobLink) for link in worker.links):
        raise PyworkersError("the worker reports to Sentry already", hint="call sentry_integration once")
    checking = _CheckIns(worker) if monitors else None
    reporting = _Reporting(worker, arguments, retries, checking)
    worker.middleware(_JobLink(_Running(checking, traces)))
    worker.on_error(reporting.report)
    if traces:
        worker.client_middleware(_with_trace)

    if options:
        # Before the fork, because what it imports takes seconds; it starts no thread.
        worker.before_start(lambda: sentry_sdk.init(**options))
    worker.on_startup(_renew_client)

    @worker.on_shutdown
    def flush_sentry() -> None:
        sentry_sdk.flush(FLUSH_S)


def _renew_client() -> None:
    """Make the client of this process: with the options of the inherited one, and a transport of its own."""
    inherited = sentry_sdk.get_client()
    if inherited.is_active():
        sentry_sdk.get_global_scope().set_client(copy.copy(inherited))


def _with_trace(draft: JobDraft, call_next: ClientCallNext) -> str:
    """Client middleware: the headers of the trace of this context travel with the job."""
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    given = {name: value for name, value in headers.items() if value}
    return call_next(draft.with_extra(**{TRACE_FIELD: given}) if given else draft)


class _JobLink(DualLink):
    """The middleware, in both forms."""

    def __init__(self, running: _Running) -> None:
        super().__init__(running.link, running.async_link)


class _Running:
    """The middleware: the scope of a run, and the check-ins of a cron job that begins or is done."""

    def __init__(self, checking: _CheckIns | None, traces: bool) -> None:
        self._checking = checking
        self._traces = traces

    def link(self, message: Message, call_next: CallNext) -> Outcome:
        with self._run(message):
            outcome = call_next(message)
            self._done(message, outcome)
            return outcome

    async def async_link(self, message: Message, call_next: AsyncCallNext) -> Outcome:
        with self._run(message):
            outcome = await call_next(message)
            self._done(message, outcome)
            return outcome

    @contextmanager
    def _run(self, message: Message) -> Iterator[None]:
        with sentry_sdk.isolation_scope() as scope, self._trace(message):
            scope.clear_breadcrumbs()
            _tag(scope, message)
            if self._checking is not None and not message.attempt:
                self._checking.check_in(message, "in_progress")
            try:
                yield
            except BaseException as error:
                # An exception with slots takes no attribute; its event is without breadcrumbs.
                with suppress(AttributeError, TypeError):
                    setattr(error, _SCOPE, scope)
                raise

    @contextmanager
    def _trace(self, message: Message) -> Iterator[None]:
        if not self._traces:
            yield
            return
        headers = _headers(message.data.get(TRACE_FIELD))
        transaction = sentry_sdk.continue_trace(
            headers, op="queue.process", name=message.job_class, source="task"
        )
        with sentry_sdk.start_transaction(transaction):
            yield

    def _done(self, message: Message, outcome: Outcome) -> None:
        if self._checking is not None and outcome.fate is Fate.DONE:
            self._checking.check_in(message, "ok")


class _Reporting:
    """The error handler: an event for a failed run that is to be reported."""

    def __init__(self, worker: Worker, arguments: bool, retries: bool, checking: _CheckIns | None) -> None:
        self._worker = worker
        self._arguments = arguments
        self._retries = retries
        self._checking = checking

    def report(self, message: Message, error: BaseException | None, outcome: Outcome) -> None:
        """Capture the error in the scope of its job."""
        if self._checking is not None and outcome.final:
            self._checking.check_in(message, "error")
        if not self._wanted(message, error, outcome):
            return
        scope = _scope_of(error) or sentry_sdk.get_isolation_scope().fork()
        with use_isolation_scope(scope):
            _tag(scope, message)
            scope.set_context("pyworkers", self._about(message, outcome))
            if error is None:
                sentry_sdk.capture_message(outcome.error_message or "the job failed", level="error")
                return
            scope.add_event_processor(_without_own_variables)
            sentry_sdk.capture_exception(error, **_grouping(error, message))

    def _wanted(self, message: Message, error: BaseException | None, outcome: Outcome) -> bool:
        if outcome.fate is Fate.RETRY:
            return self._retries and not isinstance(error, Retry)
        return not (isinstance(error, Discard) or self._discards(message, error))

    def _discards(self, message: Message, error: BaseException | None) -> bool:
        """True if the handler drops jobs that raise this."""
        if error is None or isinstance(error, WorkerLost):
            return False
        with suppress(PyworkersError):
            handler = self._worker.lookup(message.queue, message.job_class)
            return handler.fates.of(type(error)) is Fate.DISCARD
        return False

    def _about(self, message: Message, outcome: Outcome) -> dict[str, Any]:
        about = {"outcome": outcome.fate.name.lower(), "crashes": message.crash_count}
        if self._arguments and message.data.get("encrypted") is not True:
            return {**about, "arguments": message.args}
        return about


class _CheckIns:
    """The check-ins of the cron entries that the application declares; those of one job have one id."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._configs: dict[str, Mapping[str, Any] | None] = {}

    def check_in(self, message: Message, status: str) -> None:
        """Send a check-in if the job is that of a slot of a monitored entry."""
        about = message.data.get("cron")
        name = about.get("name") if isinstance(about, dict) and not about.get("triggered") else None
        if not isinstance(name, str) or (config := self._config(name)) is None:
            return
        # A TypedDict of the SDK, which may not be installed where types are checked.
        about_monitor: Any = dict(config)
        capture_checkin(
            monitor_slug=slug_of(name),
            check_in_id=uuid.uuid5(_NAMESPACE, message.jid).hex,
            status=status,
            monitor_config=about_monitor,
        )

    def _config(self, name: str) -> Mapping[str, Any] | None:
        if name not in self._configs:
            entry = next((entry for entry in self._worker.cron_entries if entry.name == name), None)
            if entry is None:
                return None
            self._configs[name] = monitor_of(entry)
        return self._configs[name]


def slug_of(name: str) -> str:
    """The slug of the monitor of an entry."""
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:_LONGEST_SLUG] or "cron"


def monitor_of(entry: CronEntry) -> Mapping[str, Any] | None:
    """The configuration of an entry's monitor; None for a schedule that Sentry does not know.

    Sentry's are lines of five fields, and whole minutes, hours or days.
    """
    period = period_s(entry.schedule)
    if period is None:
        line = " ".join(line_of(entry.schedule).lower().split())
        if not _MONITORED_LINE.fullmatch(line):
            return None
        return {"schedule": {"type": "crontab", "value": line}, "timezone": entry.timezone}
    for unit, unit_s in _UNITS:
        if period % unit_s == 0:
            return {"schedule": {"type": "interval", "value": period // unit_s, "unit": unit}}
    return None


def _tag(scope: Any, message: Message) -> None:
    scope.set_transaction_name(message.job_class, source="task")
    scope.set_tag("pyworkers.jid", message.jid[:_LONGEST_TAG])
    scope.set_tag("pyworkers.queue", message.queue[:_LONGEST_TAG])
    scope.set_tag("pyworkers.class", message.job_class[:_LONGEST_TAG])
    scope.set_tag("pyworkers.attempt", str(message.attempt))


def _scope_of(error: BaseException | None) -> Any:
    """The scope of the job that raised the error, or the cause of the error (a request to end)."""
    cause = getattr(error, "__cause__", None)
    return getattr(error, _SCOPE, None) or getattr(cause, _SCOPE, None)


def _grouping(error: BaseException, message: Message) -> dict[str, Any]:
    """The fingerprint of a crash or a kill, whose texts differ: they have the memory and the time."""
    if error.__traceback__ is not None:
        return {}
    return {"fingerprint": ["pyworkers", type(error).__name__, message.job_class]}


def _headers(found: object) -> dict[str, str]:
    """The trace headers in an envelope of any program, without values that are not text."""
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _without_own_variables(event: Any, _hint: Any) -> Any:
    """The event without the variables of pyworkers' own frames: one of them is the job with its arguments."""
    for value in event.get("exception", {}).get("values", ()):
        for frame in (value.get("stacktrace") or {}).get("frames", ()):
            if str(frame.get("module", "")).split(".")[0] == "pyworkers":
                frame.pop("vars", None)
                frame["in_app"] = False
    return event
