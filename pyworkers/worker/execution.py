"""Execution: the facts of one run of one job, in one record.

Made in the worker process when a job starts, passed from step to step of the chain, dropped when the job
ends. No fact about a job is kept outside its record, because several jobs may share a process. Application
code gets the ``Message``, never this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, cast

from pyworkers.errors import Interrupted
from pyworkers.protocol import effects
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.checkpoint import FIELD as CHECKPOINT
from pyworkers.protocol.flow.rules import FIELDS
from pyworkers.protocol.flow.track import FIELD as TRACK
from pyworkers.protocol.flow.track import fits, is_tracked
from pyworkers.protocol.message import Checkpointing, Message, current_run
from pyworkers.protocol.status import Progress
from pyworkers.worker.progress import CheckpointNotes, ProgressNotes

if TYPE_CHECKING:
    from pyworkers.plugins.batches import Batch
    from pyworkers.protocol.outcome import Outcome
    from pyworkers.worker.joblog import LogNotes

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
Deliver = Callable[[BaseException], object]
"""Makes a request to end known to the code of a job that runs, e.g. raises it."""
Note = Callable[[int, Sequence[Effect]], None]
"""Sends effects that are applied while the job of a delivery runs."""


CONTINUES = "the job continues elsewhere"
STEP_FIELDS = FIELDS | {"encrypt", "encrypted", "expiry", "timeout"}
"""The fields of an envelope on which steps of the chain act; other jobs do not pass these steps."""


class Channel(NamedTuple):
    """The way from the runs of a process to its master; one for all of them."""

    note: Note
    returns: Callable[[], bool] = lambda: False
    """True if jobs with a checkpoint are to be given back."""
    started: Callable[[int], None] = lambda _: None
    """Called with a delivery that a rate has granted, when its job starts."""


MAX_NOTE_BYTES = 1024 * 1024
"""The limit for the effects of one note: the server keeps the last one of each running job in memory."""


class Timer(Protocol):
    """A time limit of one job. It is started once, and may be stopped more than once."""

    def start(self) -> None:
        """Begin to count."""
        ...

    def stop(self) -> None:
        """Forget the limit."""
        ...


class _State(Enum):
    """WAITING → RUNNING → ENDED; or RUNNING → ASKED → DELIVERED, for good, if the job is asked to end."""

    WAITING = 0
    RUNNING = 1
    ASKED = 2
    DELIVERED = 3
    ENDED = 4


# Module constants, because reading an attribute of an enum takes three times as long.
_WAITING, _RUNNING, _ASKED, _DELIVERED, _ENDED = _State


def raise_here(request: BaseException) -> NoReturn:
    """Deliver a request to code that runs in this thread, from a signal handler."""
    raise request


def current_execution() -> Execution:
    """The run in this context. Raises LookupError outside a job."""
    return cast(Execution, current_run())


def caused(error: BaseException, by: BaseException) -> BaseException:
    """``error`` with another one as its cause, and with the traceback of that one."""
    try:
        raise error.with_traceback(by.__traceback__) from by
    except BaseException as raised:
        return raised
    finally:
        # The traceback refers to this frame: a cycle that would keep the job's data in memory.
        del error, by


class Execution:
    """One run. Times are in seconds of a monotonic clock."""

    fence: int | None = None
    """The fencing token of a job of an ordered queue; see FencedExecution."""
    __slots__ = (
        "_channel",
        "_checkpoint",
        "_deliver",
        "_log",
        "_observed",
        "_progress",
        "_request",
        "_state",
        "_timer",
        "delivery",
        "elapsed_s",
        "exc_info",
        "granted",
        "has_run",
        "has_started",
        "message",
        "outcome",
        "plain",
        "started_s",
    )  # fmt: skip

    def __init__(
        self,
        message: Message,
        delivery: int = 0,
        channel: Channel | None = None,
        deliver: Deliver | None = raise_here,
    ) -> None:
        self.message = message
        self.delivery = delivery
        """The number of the frame that brought the job."""
        self.started_s = 0.0
        self.elapsed_s = 0.0
        self.exc_info: ExcInfo | None = None
        """The error of a failed job; its traceback starts at the first frame outside of pyworkers."""
        self.has_run = False
        """True once the links of the application have called the job; not noted without such links."""
        self.has_started = False
        """True once the start of the run is noted, if the envelope has a field that asks for it."""
        self._state = _WAITING
        self._request: BaseException | None = None
        self._deliver = deliver
        self._timer: Timer | None = None
        self._channel = channel
        self.granted = False
        """True for a job that limits allow to start."""
        self.plain = STEP_FIELDS.isdisjoint(message.data)
        """True for a job that only passes the steps which each job passes."""
        # Unset until the end of the run.
        self.outcome: Outcome
        # Unset for most runs.
        self._observed: Any
        self._log: LogNotes
        self._progress: ProgressNotes | None = None
        self._checkpoint: CheckpointNotes | None = None

    @property
    def error(self) -> BaseException | None:
        """The error of a failed job."""
        return None if self.exc_info is None else self.exc_info[1]

    @property
    def stopping(self) -> bool:
        """True once the job was asked to end."""
        return self._request is not None

    def batch(self) -> Batch | None:
        """The batch of which the job is a member, or None."""
        # Imported at the first use.
        from pyworkers.plugins.batches import batch_of

        return batch_of(self.message)

    def grant(self) -> None:
        """Note that limits allow the job to start."""
        self.granted = True

    def called(self) -> None:
        """Note that the links of the application have called the job."""
        self.has_run = True

    def starts(self) -> None:
        """Note that the start of the run is noted."""
        self.has_started = True

    def replace_message(self, message: Message) -> None:
        """Run the job with another message, as ``current_message`` returns it from now on."""
        self.message = message

    def begin(self, now_s: float) -> None:
        """Mark the job as running: until ``end``, requests are delivered to it. Raises an earlier one."""
        self.started_s = now_s
        self._state = _RUNNING
        if self._request is not None:
            self._state = _DELIVERED
            raise self._request

    def limit(self, timer: Timer) -> None:
        """Start the timer, which ``end`` stops."""
        self._timer = timer
        timer.start()

    def end(self, now_s: float) -> bool:
        """Mark the job as ended: no request is delivered from now on. True if one was made.

        May be called again, and for a job that has not begun.
        """
        state = self._state
        if state is _WAITING:
            self.started_s = now_s
        self.elapsed_s = now_s - self.started_s
        asked = state is _ASKED or state is _DELIVERED
        if not asked:
            self._state = _ENDED
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()
        return asked

    def ask(self, request: BaseException) -> None:
        """Deliver the request to the job: now if it runs, at its start if it waits. At most once."""
        if self._state is _RUNNING:
            self._state = _ASKED
            self._request = request
            self._pass_on()
        elif self._state is _WAITING:
            self._request = request

    def deliver_by(self, deliver: Deliver | None) -> Deliver | None:
        """Deliver a request in this way from now on, also one that was not delivered; returns the way before.

        None is for code that cannot be interrupted, which may look at ``stopping``.
        """
        before, self._deliver = self._deliver, deliver
        if self._state is _ASKED:
            self._pass_on()
        return before

    def take_request(self) -> BaseException | None:
        """Return the request and drop it: its traceback would keep the job's data in memory."""
        request, self._request = self._request, None
        return request

    def note(self, *noted: Effect) -> None:
        """Have effects applied while the job runs, soon, and only if it is still in its in-progress list.

        From any thread of the job. Nothing answers; what is noted after the end of the job is dropped. An
        effect may be applied twice. Raises ValueError for one that would change more then, and for too much.
        """
        if not all(effect.repeatable for effect in noted):
            raise ValueError("a note may be applied twice: its effects must be repeatable")
        if (size := effects.size_of(noted)) > MAX_NOTE_BYTES:
            raise ValueError(f"a note of {size} bytes; the limit is {MAX_NOTE_BYTES}")
        if self._channel is not None:
            self._channel.note(self.delivery, noted)

    def progress(self, progress: Progress) -> None:
        """Note how far the job is, if it is tracked."""
        if self._progress is None:
            message = self.message
            if not is_tracked(message.data, message.jid):
                return
            self._progress = ProgressNotes(message.jid, self.note, time.monotonic)
        self._progress.report(progress)

    def log(self, text: str, fields: Mapping[str, Any]) -> None:
        """Add a line to the log of the job."""
        self._log_line("info", text, fields)

    def hear(self, level: str, event: Mapping[str, Any]) -> None:
        """Add a log event to the log of the job, if it is tracked and runs."""
        runs = self._state not in (_WAITING, _ENDED) and self.exc_info is None
        if runs and is_tracked(self.message.data, self.message.jid):
            from pyworkers.worker.joblog import parts_of

            self._log_line(level, *parts_of(event))

    def listen(self) -> None:
        """Have the log lines of the job be added to its log."""
        from pyworkers.worker.joblog import listen

        listen()

    def _log_line(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        if not self.has_log:
            message = self.message
            if not fits(message.jid):
                return
            # Imported at the first line.
            from pyworkers.worker.joblog import LogNotes, alive_s

            self.plain = False
            self._log = LogNotes(message.jid, alive_s(message.data, message.jid), self.note)
        self._log.add(level, text, fields)

    @property
    def has_log(self) -> bool:
        """True if the job has written a line to its log."""
        return hasattr(self, "_log")

    def checkpoint(self) -> Checkpointing:
        """The checkpoint of the run, which its end writes or deletes."""
        if self._checkpoint is None:
            self.plain = False
            self._checkpoint = CheckpointNotes(self.message.jid, self.note, time.monotonic)
        return _Guarded(self, self._checkpoint)

    @property
    def has_notes(self) -> bool:
        """True if the job has shown progress, has asked for its checkpoint, or has a log."""
        return self._progress is not None or self._checkpoint is not None or self.has_log

    @property
    def has_checkpoint(self) -> bool:
        """True if the job has asked for its checkpoint."""
        return self._checkpoint is not None

    def raise_due(self) -> None:
        """Raise a request that could not be delivered, or Interrupted if the job is to continue elsewhere."""
        if self._state is _ASKED and self._request is not None:
            self._state = _DELIVERED
            raise self._request
        if self._channel is not None and self._channel.returns():
            raise Interrupted(CONTINUES)

    def rest(self, final: bool) -> Sequence[tuple[str, Effect]]:
        """What was to be noted and is not, each with the field that asked for it.

        It belongs to the outcome, which is the last if ``final``.
        """
        found: list[tuple[str, Effect]] = []
        if self._progress is not None:
            found += ((TRACK, effect) for effect in self._progress.rest())
        if self._checkpoint is not None:
            found += ((CHECKPOINT, effect) for effect in self._checkpoint.rest(final))
        if self.has_log:
            found += (("log", effect) for effect in self._log.rest())
        return found

    def settle(self, outcome: Outcome) -> None:
        """Keep the outcome of the run, with which it is over."""
        self.outcome = outcome

    def fail(self, error: BaseException, trace: TracebackType | None) -> None:
        """Keep the error that the job raised."""
        self.exc_info = (type(error), error, trace)

    def keep(self, observed: Any) -> None:
        """Keep what an observer has seen of the run, until ``take`` or the end of the job."""
        self._observed = observed

    def take(self) -> Any:
        """What an observer has kept, once; None if there is nothing."""
        observed = getattr(self, "_observed", None)
        self._observed = None
        return observed

    def forget(self) -> None:
        """Drop the error: its frames refer to this record, a cycle that keeps the job's data in memory."""
        self.exc_info = None

    def _pass_on(self) -> None:
        if self._deliver is not None and self._request is not None:
            self._state = _DELIVERED
            self._deliver(self._request)


class FencedExecution(Execution):
    """One run of a job of an ordered queue. Its own class: other jobs pay nothing for the token."""

    __slots__ = ("fence",)

    def __init__(self, fence: int, message: Message, delivery: int, channel: Channel | None) -> None:
        super().__init__(message, delivery, channel)
        self.fence = fence


class _Guarded:
    """A checkpoint that also ends the run where it is due."""

    def __init__(self, run: Execution, notes: CheckpointNotes) -> None:
        self._run = run
        self._notes = notes

    def open(self, read: Callable[[], Mapping[str, bytes]], default: Any) -> Any:
        value = self._notes.open(read, default)
        self._run.raise_due()
        return value

    def save(self, value: Any) -> None:
        self._notes.save(value)
        self._run.raise_due()
