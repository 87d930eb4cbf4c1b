"""JobRecord: a stored job for display, written by any program.

Pure. No payload makes these properties raise: a field of a wrong type is shown as its JSON text, or omitted.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import simplejson

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.schemas import ANY, OBJECT, array
from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, sealing, timestamps
from pyworkers.protocol.message import ACTIVE_JOB_WRAPPERS, as_count
from pyworkers.protocol.status import JobStatus, Progress

_MOST_BACKTRACE_BYTES = 1 << 20
_ENCRYPTED = "[encrypted data]"  # Sidekiq Enterprise's
_SEALED = "(encrypted)"


class JobRecord:
    """One job as Redis holds it: ``raw`` are its bytes, ``data`` its envelope, {} if it is ``unreadable``."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @property
    def data(self) -> dict[str, Any]:
        """The fields of the envelope; {} if it is ``unreadable``."""
        return self._decoded[0]

    @property
    def unreadable(self) -> str:
        """Why the bytes are not a valid job; empty for a valid one."""
        return self._decoded[1]

    @cached_property
    def _decoded(self) -> tuple[dict[str, Any], str]:
        # At the first look: an action on many jobs passes over most of them by their bytes.
        try:
            return envelope.decode(self.raw), ""
        except BadMessageError as error:
            return {}, error.message

    def _store(self, raw: bytes) -> None:
        """Note the bytes of an edited job."""
        self.raw = raw
        self.__dict__.pop("_decoded", None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(jid={self.jid!r}, job_class={self.job_class!r})"

    @property
    def length(self) -> int:
        """The size of the stored job in bytes."""
        return len(self.raw)

    @property
    def cut(self) -> bool:
        """True if only a part of a large job was read: fields are missing (``CutRecord``)."""
        return False

    @property
    def jid(self) -> str:
        """The job's id; empty if it has none."""
        return self._text("jid")

    @property
    def job_class(self) -> str:
        """The class to show: for an ActiveJob, the class inside (Sidekiq's api.rb, display_class)."""
        name = self._text("display_class") or self._text("class")
        if name in ACTIVE_JOB_WRAPPERS:
            inner = self._active_job()
            return self._text("wrapped") or as_text(inner.get("job_class")) or name
        return name

    @property
    def args(self) -> list[Any]:
        """The arguments to show: for an ActiveJob, those inside; hidden if they are encrypted."""
        args = self.data.get("args")
        if self._text("class") in ACTIVE_JOB_WRAPPERS:
            args = self._active_job().get("arguments", args)
        return self._readable(args if isinstance(args, list) else [] if args is None else [args])

    @property
    def fields(self) -> dict[str, Any]:
        """The envelope to show: encrypted arguments are hidden."""
        args = self.data.get("args")
        return self.data | {"args": self._readable(args)} if isinstance(args, list) else self.data

    @property
    def queue(self) -> str:
        """The queue that the job names; empty if it names none."""
        return self._text("queue")

    @property
    def created_at(self) -> float | None:
        """When the job was created, in epoch seconds."""
        return timestamps.read(self.data.get("created_at"))

    @property
    def enqueued_at(self) -> float | None:
        """When the job entered its queue, in epoch seconds."""
        return timestamps.read(self.data.get("enqueued_at"))

    @property
    def failed_at(self) -> float | None:
        """When the job failed last, in epoch seconds."""
        retried_at = timestamps.read(self.data.get("retried_at"))
        return timestamps.read(self.data.get("failed_at")) if retried_at is None else retried_at

    @property
    def retry_count(self) -> int | None:
        """How many retries have failed; None before the first failure."""
        return as_count(self.data.get("retry_count"))

    @property
    def error_class(self) -> str:
        """The class of the last error."""
        return self._text("error_class")

    @property
    def error_message(self) -> str:
        """The text of the last error."""
        return self._text("error_message")

    @property
    def error(self) -> str:
        """The last error in one text; for invalid bytes, the reason."""
        if self.unreadable:
            return f"unreadable: {self.unreadable}"
        return ": ".join(filter(None, (self.error_class, self.error_message)))

    @property
    def error_backtrace(self) -> list[str]:
        """The lines of the last error's backtrace, from any format of any Sidekiq (protocol.md, Envelope)."""
        stored = self.data.get("error_backtrace")
        lines = _inflated(stored) if isinstance(stored, str) else stored
        return [as_text(line) for line in lines] if isinstance(lines, list) else []

    @property
    def tags(self) -> list[str]:
        """The tags."""
        tags = self.data.get("tags")
        return [as_text(tag) for tag in tags] if isinstance(tags, list) else []

    @property
    def batch(self) -> str:
        """The id of the batch of which it is a member; empty if there is none."""
        batch = self.fields.get("batch")
        return batch if isinstance(batch, str) else ""

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its envelope, or with its bytes and the reason if they are invalid."""
        return JOB.as_dict(self)

    def _readable(self, args: list[Any]) -> list[Any]:
        """The arguments, with a word instead of those that are encrypted."""
        if self.data.get(sealing.FIELD) is True:
            return [_SEALED]
        return [*args[:-1], _ENCRYPTED] if args and self.data.get("encrypt") is True else args

    def _text(self, name: str) -> str:
        return as_text(self.data.get(name))

    def _active_job(self) -> dict[str, Any]:
        args = self.data.get("args")
        inner = args[0] if isinstance(args, list) and args else None
        return inner if isinstance(inner, dict) else {}


def _arguments(job: JobRecord, _now: float) -> str:
    """The arguments in a line; why there are none, if the job is not valid."""
    return job.error if job.unreadable else json.dumps(job.args, ensure_ascii=False)[1:-1]


def _failures(job: JobRecord, _now: float) -> int | None:
    return None if job.retry_count is None else job.retry_count + 1


JOB: Table[JobRecord] = Table(
    "Job",
    Column("jid", title="JID", place="jobs", cut=6),
    Column("class", title="Class", value=lambda job, _now: job.job_class, cut=5),
    Column("queue", title="Queue", place="queues", cut=4),
    Column("args", Kind.PARTS, schema=array(ANY)),
    Column("error", title="Error", optional=True, cut=1),
    Column("unreadable", optional=True),
    Column("raw", value=lambda job, _now: job.raw.decode(errors="backslashreplace"),
           optional=lambda job: job.unreadable),
    Column("job", Kind.PARTS, value=lambda job, _now: job.fields, schema=OBJECT,
           optional=lambda job: not job.unreadable),
    Column("arguments", title="Arguments", value=_arguments, only_shown=True, cut=1),
    Column("created_at", Kind.MOMENT, "Created", only_shown=True),
    Column("enqueued_at", Kind.MOMENT, "Enqueued", only_shown=True),
    Column("failed_at", Kind.MOMENT, "Last failure", only_shown=True),
    Column("failures", Kind.COUNT, "Failures", value=_failures, only_shown=True),
    Column("length", Kind.COUNT, "Size", only_shown=True),
    Column("tags", title="Tags", only_shown=True),
    Column("batch", title="Batch", value=lambda job, _now: job.batch, place="batches", only_shown=True),
)  # fmt: skip
SCORED: Sequence[Column[Any]] = (
    Column("due", Kind.MOMENT, "Due", value=lambda job, _now: job.score, only_shown=True),
    Column("died", Kind.MOMENT, "Died", value=lambda job, _now: job.score, only_shown=True),
)
"""The columns of a job with a score."""


PROGRESS: Table[Progress] = Table(
    "Progress", Column("done", Kind.NUMBER), Column("total", Kind.NUMBER, nullable=True), Column("text")
)


def _progress(status: JobStatus, _now: float) -> str:
    if status.progress is None:
        return ""
    done, total, text = status.progress.done, status.progress.total, status.progress.text
    return f"{done:g}{'' if total is None else f' of {total:g}'}  {text}".rstrip()


STATUS: Table[JobStatus] = Table(
    "Status",
    Column("state", title="State"),
    Column("queue", title="Queue"),
    Column("attempt", Kind.COUNT),
    Column("failures", Kind.COUNT, "Failures", value=lambda status, _now: status.attempt or None,
           only_shown=True),
    Column("progress", Kind.PROGRESS, "Progress", table=PROGRESS, nullable=True),
    Column("done", title="Progress", value=_progress, only_shown=True),
    Column("started_at", Kind.MOMENT, "Started", nullable=True),
    Column("finished_at", Kind.MOMENT, "Finished", nullable=True),
    Column("error", title="Error", nullable=True),
)  # fmt: skip


def finite(score: float) -> float | str:
    """A score for JSON, which has no infinity."""
    return score if abs(score) != float("inf") else repr(score)


def as_text(value: object) -> str:
    """Any JSON value as text: a string unchanged, null as an empty string, all others as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return envelope.encode(value)
    except (ValueError, TypeError, RecursionError):
        return repr(type(value))


def _inflated(text: str) -> object:
    """The value of a deflated JSON text in base64, which may contain newlines; None if it is invalid."""
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
        inflated = zlib.decompressobj().decompress(packed, _MOST_BACKTRACE_BYTES)
        return simplejson.loads(inflated)
    except (ValueError, zlib.error, RecursionError):
        return None
