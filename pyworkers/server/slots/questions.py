"""Questions: asks worker processes for the jobs of cron slots, which the master cannot make.

Runs in the master's event loop. It waits for no answer, and pushes no job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.flow.slots import Made, SlotAnswer, SlotRequest

# A worker limits itself to 8 s (worker/cron.py), and is killed 2 s later; this is for one that is suspended.
_ANSWER_S = 12.0
CLAIM_S = 15.0
"""How long a server has a slot for itself: longer than it waits, shorter than most intervals."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0

MakeSlots = Callable[[str, bytes], "asyncio.Future[bytes] | None"]
"""Has a worker make jobs: of a queue, by a packed SlotRequest; None if there are no workers."""


class NoAnswerError(Exception):
    """No worker has made the jobs: the slots are still due."""


def needs_worker(entry: CronEntry, client_middleware: bool) -> bool:
    """True if the jobs of an entry need what the application alone has: its links, keys and functions."""
    options = entry.options
    if client_middleware or (entry.args and options.get("encrypt")):
        return True
    # A declaration's ``unique_by`` may be a function, which the manifest leaves out.
    return entry.origin == "configuration" and "unique_for" in options and "unique_by" not in options


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a worker, and the slots that it is about. ``until`` is the loop's time."""

    slots: Sequence[int]
    answer: asyncio.Future[bytes]
    until: float

    def read(self) -> list[tuple[int, Made]] | None:
        """The jobs of each slot; None while there is no answer. Raises NoAnswerError."""
        if not self.answer.done():
            if asyncio.get_running_loop().time() < self.until:
                return None
            self.answer.cancel()
            raise NoAnswerError(f"no worker made its job within {_ANSWER_S:g} s")
        if self.answer.cancelled():
            raise NoAnswerError("the worker that made its job died")
        try:
            return list(zip(self.slots, SlotAnswer.unpack(self.answer.result()).made, strict=True))
        except ValueError as error:
            raise NoAnswerError(f"a worker sent an invalid answer: {error}") from error


def ask(make: MakeSlots, entry: CronEntry, slots: Sequence[int], answered: Callable[[], None]) -> Question:
    """Have a worker make the jobs of these slots; calls ``answered`` when it has. Raises NoAnswerError."""
    declared = entry.origin != "run time"
    request = SlotRequest(
        entry.queue, entry.job_class, entry.args, entry.retry, entry.options, len(slots), declared
    )
    answer = make(entry.queue, request.pack())
    if answer is None:
        raise NoAnswerError("there is no worker")
    answer.add_done_callback(lambda _: answered())
    return Question(slots, answer, asyncio.get_running_loop().time() + _ANSWER_S)


def pause_s(tries: int) -> float:
    """The seconds until a worker is asked again, after this many questions without an answer."""
    return min(_FIRST_PAUSE_S * 2.0 ** min(tries, 10), _LONGEST_PAUSE_S)
