"""Sentry: errors of jobs as events, and cron entries as monitors.

Used while the application is imported, and in worker processes. Each job has its own isolation scope.
The client of a worker process is made after the fork: threads and unsent events of another process are not
its own.
"""

from __future__ import annotations

import copy
import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import sentry_sdk
from sentry_sdk.crons import capture_checkin
from sentry_sdk.scope import use_isolation_scope

from pyworkers import (
    CallNext,
    Discard,
    DualLink,
    Interrupted,
    JobCancelled,
    JobTimeout,
    Message,
    Outcome,
    PyworkersError,
    Retry,
    Snooze,
    Worker,
)
from pyworkers.integrations.outcomes import is_discarded, keep, meaning_of, take
from pyworkers.middleware import AsyncCallNext, ClientCallNext
from pyworkers.observing.guard import ObservedRun, Observer
from pyworkers.observing.readable import readable
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.cronlines import line_of, period_s
from pyworkers.protocol.draft import JobDraft
from pyworkers.protocol.outcome import Fate

TRACE_FIELD = "trace_propagation_headers"
"""The field of the envelope with the headers of a trace, as in Sentry's package for Sidekiq."""
FLUSH_S = 3.0
"""Seconds in which a worker process that ends sends what is left; the master waits for 5."""
# The statuses of the exceptions by which a job chooses, or is asked to end.
_STATUSES: Mapping[type[BaseException], str] = {
    Snooze: "ok",
    Discard: "ok",
    JobCancelled: "cancelled",
    Interrupted: "aborted",
    JobTimeout: "deadline_exceeded",
}
_NAMESPACE = uuid.UUID("9c1f3d6e-0d1f-4f0a-8a5b-5b7d3c2e1a90")
# The lines that Sentry reads: five fields, of numbers, signs and names such as mon.
_MONITORED_LINE = re.compile(r"((?:[0-9*/,-]|\b[a-z]{3}\b)+ ){4}(?:[0-9*/,-]|\b[a-z]{3}\b)+")
_LONGEST_SLUG = 50
_DIGEST = 8
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

    ``options`` are the options of ``sentry_sdk.init``, which the server calls before it starts workers;
    without any, the options of an earlier ``sentry_sdk.init`` count. A job that is dead or dropped is one
    event, with the tags ``pyworkers.jid``, ``.queue``, ``.class``, ``.attempt``; ``Discard`` and ``Retry``
    are none.

    ``arguments``: show the job's arguments, unless they are encrypted. ``retries``: an event for each failed
    run that is retried, too. ``monitors``: cron entries of the application are monitors. ``traces``: a
    job continues the trace of the program that enqueued it. Raises PyworkersError if called again.
    """
    if any(isinstance(link, _JobLink) for link in worker.links):
        raise PyworkersError("the worker reports to Sentry already", hint="call sentry_integration once")
    checking = _CheckIns(worker) if monitors else None
    reporting = _Reporting(worker, arguments, retries, checking)
    worker.middleware(_JobLink(_Running(worker, checking, traces)))
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
    """Make the client of this process: with the options of the inherited one, and its own transport."""
    inherited = sentry_sdk.get_client()
    if inherited.is_active():
        sentry_sdk.get_global_scope().set_client(copy.copy(inherited))


def _with_trace(draft: JobDraft, call_next: ClientCallNext) -> str:
    """Client middleware: the headers of the trace of this context travel with the job."""
    given = _enqueueing.see(_trace_of_context)
    return call_next(draft.with_extra(**{TRACE_FIELD: given}) if given else draft)


_enqueueing = Observer("sentry.enqueue")


def _trace_of_context() -> dict[str, str]:
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    return {name: value for name, value in headers.items() if value}


class _JobLink(DualLink):
    """The middleware, in both forms."""

    def __init__(self, running: _Running) -> None:
        super().__init__(running.link, running.async_link)


class _Running:
    """The middleware: the scope of a run, and the check-ins of a cron job that begins or is done."""

    def __init__(self, worker: Worker, checking: _CheckIns | None, traces: bool) -> None:
        self._worker = worker
        self._checking = checking
        self._traces = traces
        self.see = Observer("sentry").see

    def link(self, message: Message, call_next: CallNext) -> Outcome:
        with _ReportedRun(self, message) as run:
            return run.returned(call_next(message))

    async def async_link(self, message: Message, call_next: AsyncCallNext) -> Outcome:
        with _ReportedRun(self, message) as run:
            return run.returned(await call_next(message))

    def begin(self, message: Message, opened: ExitStack) -> Any:
        """The scope of a run that begins, which ``opened`` closes."""
        scope = opened.enter_context(sentry_sdk.isolation_scope())
        scope.clear_breadcrumbs()
        _tag(scope, message)
        return scope

    def trace(self, message: Message, opened: ExitStack) -> Any:
        """The transaction of a run that begins; None without traces."""
        if not self._traces:
            return None
        headers = _headers(message.data.get(TRACE_FIELD))
        transaction = sentry_sdk.continue_trace(
            headers, op="queue.process", name=message.job_class, source="task"
        )
        return opened.enter_context(sentry_sdk.start_transaction(transaction))

    def check_in(self, message: Message) -> None:
        """Say that the job of a cron entry runs."""
        if self._checking is not None and not message.attempt:
            self._checking.check_in(message, "in_progress")

    def done(self, message: Message, outcome: Outcome) -> None:
        """Say that the job of a cron entry is done."""
        if self._checking is not None and outcome.fate is Fate.DONE:
            self._checking.check_in(message, "ok")

    def keep(self, scope: Any, error: BaseException) -> None:
        """Keep what a run has raised."""
        # What ends a run without a failure is never reported, and would be kept with all its frames.
        if scope is not None and not isinstance(error, Snooze | JobCancelled | Interrupted):
            keep(scope, error, _LINKS)

    def status_of(self, message: Message, error: BaseException) -> str:
        """The status of the transaction of a run that raised: a choice of the job is no error."""
        meaning = meaning_of(error)
        for kind, status in _STATUSES.items():
            if isinstance(meaning, kind):
                return status
        return "ok" if is_discarded(self._worker, message, error) else "internal_error"


_LINKS = (_Running.link.__code__, _Running.async_link.__code__)


class _ReportedRun(ObservedRun):
    """The scope and the transaction of one run."""

    def __init__(self, running: _Running, message: Message) -> None:
        self._running = running
        self._message = message
        # Closed without the exception of the job, with which a transaction would be an error in each case.
        self._opened = ExitStack()
        self._scope = running.see(running.begin, message, self._opened)
        self._transaction = running.see(running.trace, message, self._opened)
        running.see(running.check_in, message)

    def returned(self, outcome: Outcome) -> Outcome:
        self._running.see(self._running.done, self._message, outcome)
        return outcome

    def raised(self, raised: BaseException) -> None:
        see, error = self._running.see, readable(raised)
        see(self._running.keep, self._scope, error)
        if self._transaction is not None:
            status = see(self._running.status_of, self._message, error)
            see(self._transaction.set_status, status or "internal_error")

    def end(self) -> None:
        self._running.see(self._opened.close)


class _Reporting:
    """The error handler: an event for a failed run that is to be reported."""

    def __init__(self, worker: Worker, arguments: bool, retries: bool, checking: _CheckIns | None) -> None:
        self._worker = worker
        self._arguments = arguments
        self._retries = retries
        self._checking = checking
        self._observer = Observer("sentry.errors")

    def report(self, message: Message, error: BaseException | None, outcome: Outcome) -> None:
        """Capture the error in the scope of its job."""
        self._observer.see(self._report, message, error, outcome)

    def _report(self, message: Message, error: BaseException | None, outcome: Outcome) -> None:
        kept = take()
        if self._checking is not None and outcome.final:
            self._checking.check_in(message, "error")
        if not self._wanted(message, error, outcome):
            return
        scope = kept.scope if kept else sentry_sdk.get_isolation_scope().fork()
        with use_isolation_scope(scope):
            _tag(scope, message)
            scope.set_context("pyworkers", self._about(message, outcome))
            if error is None:
                sentry_sdk.capture_message(outcome.error_message or "the job failed", level="error")
                return
            scope.add_event_processor(_without_own_variables)
            trace = kept.trace if kept and kept.error is error else error.__traceback__
            sentry_sdk.capture_exception((type(error), error, trace), **_grouping(error, message))

    def _wanted(self, message: Message, error: BaseException | None, outcome: Outcome) -> bool:
        if outcome.fate is Fate.RETRY:
            return self._retries and not isinstance(error, Retry)
        return not (isinstance(error, Discard) or is_discarded(self._worker, message, error))

    def _about(self, message: Message, outcome: Outcome) -> dict[str, Any]:
        about = {"outcome": outcome.fate.name.lower(), "crashes": message.crash_count}
        if self._arguments and message.data.get("encrypted") is not True:
            return {**about, "arguments": message.args}
        return about


class _CheckIns:
    """The check-ins of the cron entries that the application declares; the check-ins of a job share an id."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._configs: dict[str, Mapping[str, Any] | None] = {}

    def check_in(self, message: Message, status: str) -> None:
        """Send a check-in if the job belongs to a slot of a monitored entry."""
        about = message.data.get("cron")
        name = about.get("name") if isinstance(about, dict) and not about.get("triggered") else None
        if not isinstance(name, str) or (config := self._config(name)) is None:
            return
        # A TypedDict of the SDK, which may not be installed where types are checked.
        about_monitor: Any = dict(config)
        capture_checkin(
            monitor_slug=slug_of(name, [entry.name for entry in self._worker.cron_entries]),
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


def slug_of(name: str, names: Sequence[str] = ()) -> str:
    """The slug of the monitor of an entry. ``names``, the entries of the application, have distinct slugs.

    Among them, it has a digest of the name if another one has the same slug, or if most letters are outside
    ASCII, which a slug cannot have.
    """
    slug = _plain_slug(name)
    lost = sum(char.isalnum() and not char.isascii() for char in name)
    if not names or (lost <= len(slug) and [_plain_slug(other) for other in names].count(slug) < 2):
        return slug or "cron"
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST]
    return f"{slug[: _LONGEST_SLUG - _DIGEST - 1].strip('-') or 'cron'}-{digest}"


def _plain_slug(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:_LONGEST_SLUG]


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
