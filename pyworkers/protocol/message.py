"""Message: one job, as its handler gets it.

Pure; made in the worker process (and in tests) from the bytes that Redis holds. It is never encoded again: a
payload that is written back is spliced from ``raw`` (see envelope.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol

from pyworkers.errors import BadArgumentError, BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.status import Progress

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    A = TypeVar("A", default=list[Any])
else:
    from typing import TypeVar

    A = TypeVar("A")

# Rails' names for the envelope around an ActiveJob: up to Sidekiq 7, and from 8.0 (protocol.md, Envelope).
ACTIVE_JOB_WRAPPERS = frozenset(
    {"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"}
)
# A count beyond this comes from a broken producer; its fourth power would not be a usable delay.
_MAX_COUNT = 100_000


class Checkpointing(Protocol):
    """Writes the checkpoint of a run."""

    def open(self, read: Callable[[], Mapping[str, bytes]], default: Any) -> Any:
        """The last saved value, or else the default; ``read`` returns the stored state, once in a run."""
        ...

    def save(self, value: Any) -> None:
        """Write the value, soon. Raises what ends the run here."""
        ...


class Run(Protocol):
    """A run of a job, as far as the job may know it."""

    @property
    def message(self) -> Message:
        """The message of the job."""
        ...

    @property
    def stopping(self) -> bool:
        """True once the job was asked to end."""
        ...

    def batch(self) -> Any:
        """The batch of which the job is a member, or None."""
        ...

    def progress(self, progress: Progress) -> None:
        """Note how far the job is."""
        ...

    def log(self, text: str, fields: Mapping[str, Any]) -> None:
        """Add a line to the log of the job."""
        ...

    def hear(self, level: str, event: Mapping[str, Any]) -> None:
        """Add a log event of the process to the log of the job, if it is tracked."""
        ...

    @property
    def fence(self) -> int | None:
        """The fencing token of an ordered queue; None for another queue."""
        ...

    def checkpoint(self) -> Checkpointing:
        """The checkpoint of the run."""
        ...


# The run of the job that runs in this context.
_current: ContextVar[Run] = ContextVar("pyworkers_run")
current_run: Callable[[], Run] = _current.get
"""The run of the job in this context. Raises LookupError outside a job."""
set_run: Callable[[Run], object] = _current.set
"""Set the run whose message ``current_message`` returns in this context, and that log lines name."""


class Keywords(dict[str, Any]):
    """The keyword arguments of an ActiveJob, last in its ``args``; a ``job`` gets them by name."""


@dataclass(frozen=True, slots=True, init=False)
class Message(Generic[A]):
    """A job that is about to run.

    ``data`` is the whole envelope as plain Python values, ``raw`` its bytes, ``queue`` the queue it was
    fetched from, ``args`` always a list. Arguments of an ActiveJob are converted (see active_job.py).
    In a handler with the annotation ``Message[…]``, ``args`` are of that type (extra ``types``).
    """

    jid: str
    queue: str
    job_class: str
    args: A
    data: dict[str, Any] = field(repr=False)
    raw: bytes = field(repr=False)

    def __init__(
        self, jid: str, queue: str, job_class: str, args: A, data: dict[str, Any], raw: bytes
    ) -> None:
        # Half the time of the __init__ that a frozen dataclass gets.
        _set_jid(self, jid)
        _set_queue(self, queue)
        _set_job_class(self, job_class)
        _set_args(self, args)
        _set_data(self, data)
        _set_raw(self, raw)

    @staticmethod
    def parse(raw: bytes, queue: str, make_jid: Callable[[], str]) -> Message:
        """Read stored bytes. ``make_jid`` is called for a job without an id.

        Raises BadMessageError for an invalid job.
        """
        data = envelope.decode(raw)
        job_class, jid, args = data.get("class"), data.get("jid"), data.get("args")
        if job_class.__class__ is not str:
            job_class = _text(data, "class")
        if job_class in ACTIVE_JOB_WRAPPERS:
            job_class, args = _unwrapped(data)
        if jid.__class__ is not str or not jid:
            jid = _text(data, "jid") or make_jid()
        return Message(jid, queue, job_class, args if args.__class__ is list else _as_list(args), data, raw)

    @property
    def attempt(self) -> int:
        """The number of earlier failures: 0 at first."""
        count = self.retry_count
        return 0 if count is None else count + 1

    @property
    def retry_count(self) -> int | None:
        """The field ``retry_count``: absent before the first failure, 0 after it (Sidekiq's job_retry.rb)."""
        return as_count(self.data.get("retry_count"))

    @property
    def crash_count(self) -> int:
        """The number of worker processes that died while they ran this job."""
        return as_count(self.data.get("crash_count")) or 0

    @property
    def misfits(self) -> int:
        """How often a server took this job and did not fit it; not attempts, see ``retry.misfit``."""
        return as_count(self.data.get("misfits")) or 0

    @property
    def enqueued_at(self) -> float | None:
        """The time when the job entered its queue, in epoch seconds; None if it is missing or invalid."""
        return timestamps.read(self.data.get("enqueued_at"))

    @property
    def stopping(self) -> bool:
        """True if the job that runs in this context was asked to end: cancelled, overdue, or interrupted."""
        run = _current.get(None)
        return run is not None and run.stopping

    @property
    def batch(self) -> Any:
        """The batch of which the running job is a member, or None.

        The job may add members: ``with current_message().batch: …``. Raises LookupError outside a job.
        """
        return _current.get().batch()

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Show how far the job that runs in this context is (``Client.status``), if it is tracked.

        Cheap: at most four a second are written, and the last one when the job ends. Raises
        BadArgumentError for a value that is neither a number nor a text.
        """
        run = _current.get(None)
        if run is not None:
            run.progress(Progress(done, total, text))

    def log(self, text: str, /, **fields: Any) -> None:
        """Add a line to the log of the job that runs in this context (``Client.logs``, ``pyworkers logs``).

        ``fields`` are JSON values; of another object, its text. At most 64 KB of a job are kept, the latest
        lines; of a line that is too long, both ends. Raises BadArgumentError if ``text`` is not a string.
        """
        if not isinstance(text, str):
            raise BadArgumentError(f"text must be a string, not of type {type(text).__name__}")
        run = _current.get(None)
        if run is not None:
            run.log(text, fields)

    @property
    def fence(self) -> int | None:
        """The fencing token of the job that runs in this context, if its queue is ordered; else None.

        It grows with every change of the active server: a resource that stores the largest one so far can
        refuse a server that is not active any more.
        """
        run = _current.get(None)
        return None if run is None else run.fence

    def replace(self, **changes: Any) -> Message[Any]:
        """A copy with other ``args``, ``job_class`` …, for middleware. A retry writes the stored job."""
        copy: Message[Any] = replace(self, **changes)
        return copy


# The setters of the slots, in the order of the fields.
_set_jid, _set_queue, _set_job_class, _set_args, _set_data, _set_raw = (
    getattr(Message, one.name).__set__ for one in fields(Message)
)


def current_message() -> Message:
    """The message of the job that is running here. Raises LookupError outside a job."""
    try:
        return _current.get().message
    except LookupError:
        raise LookupError("current_message() is for code that a job runs, and no job runs here") from None


def job_fields() -> dict[str, object]:
    """The log fields of the running job; empty outside a job."""
    run = _current.get(None)
    if run is None:
        return {}
    message = run.message
    return {
        "jid": message.jid,
        "job_class": message.job_class,
        "queue": message.queue,
        "attempt": message.attempt,
    }


def hear(level: str, event: Mapping[str, Any]) -> None:
    """Add a log event of this context to the log of its job, if that is tracked."""
    run = _current.get(None)
    if run is not None:
        run.hear(level, event)


def as_count(value: object) -> int | None:
    """A stored count as an int of at most 100,000; None if it is absent, negative, or not an integer."""
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        value = int(value[:10])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return min(value, _MAX_COUNT)


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadMessageError(f"{key!r} is not a string but {type(value).__name__}")
    return value


def _as_list(args: object) -> list[Any]:
    """The arguments as a list: null is no argument, another value is one (protocol.md, Envelope)."""
    if isinstance(args, list):
        return args
    return [] if args is None else [args]


def _unwrapped(data: dict[str, Any]) -> tuple[str, list[Any]]:
    """Class and arguments of an ActiveJob."""
    # Imported at the first ActiveJob: other workers never load the module.
    from pyworkers.protocol import active_job

    args = data.get("args")
    inner = args[0] if isinstance(args, list) and args else None
    if not isinstance(inner, dict):
        raise BadMessageError("an ActiveJob wrapper without its job")
    job_class = _text(data, "wrapped") or _text(inner, "job_class")
    try:
        return job_class, active_job.arguments(_as_list(inner.get("arguments")))
    except RecursionError as error:
        raise BadMessageError("nested too deep") from error
