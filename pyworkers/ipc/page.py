"""Page: the memory that the master and one worker process share.

Used by both sides. The worker writes into it which deliveries it has taken; the master writes into it which
of them are to end, and whether the worker is to leave. Reading and writing a word is one machine instruction,
so neither side waits for the other, and a job costs no system call for it.

    word 0          1 if the worker is to leave
    words 1, 2      how often the worker has answered a signal, and the delivery that hangs in its main thread
    word 3          how far Redis' clock is ahead of the clock of this machine, in µs
    word 4          1 if the server stops
    word 5          1 if many jobs of the group end in a second
    words 6, 7      when jobs that must not overlap are asked to end, and when their process ends, in µs of
                    the monotonic clock; 0 before the first lease
    word 8          1 if the worker has ended itself for that reason
    word 9          the delivery whose threads and tasks the worker is to describe; 0 if none
    words 10, 11    slot 0: the delivery that was taken last, and the delivery that is to end
    words 12, 13    slot 1: the same …

The stacks of the worker are behind the words, once they are asked for.
"""

from __future__ import annotations

import math
import mmap
import os
import signal
from collections.abc import Iterator

from pyworkers.ipc.jobsocket import memory_file

ATTENTION = signal.SIGURG
"""The signal by which the master asks a worker to look at its page. The default action is to ignore it."""
STACKS = signal.SIGWINCH
"""The signal that has a worker write its stacks behind the words of its page. The default action is to ignore
it: a job that removes the handler is not ended."""
_WORD = 8
_LEAVING, _ANSWERS, _RUNNING, _CLOCK, _STOPPING, _BUSY = range(6)
_ASK_AT, _END_AT, _FENCED, _DESCRIBE, _SLOTS = range(6, 11)
# A word has no sign.
_SIGN, _MASK = 1 << 63, (1 << 64) - 1
_INTERRUPT = 1
UNSURE = _MASK
"""In an answer: a job was found in the main thread, but too lately to say that it hangs."""
NO_JOB = UNSURE - 1
"""In an answer: what hangs in the main thread is code of no job that runs, e.g. a task that one has left."""


class Page:
    """The page of a worker with a number of ``slots``: the jobs that it runs at once."""

    def __init__(self, fd: int, slots: int) -> None:
        """Map the file ``fd``, which may be closed afterwards. Raises OSError."""
        self._memory = mmap.mmap(fd, page_size(slots))
        self._words = memoryview(self._memory).cast("Q")

    # For the worker

    def claim(self, slot: int, number: int) -> None:
        """Note that this delivery was taken; it counts as running until the master has its outcome."""
        self._words[_SLOTS + 2 * slot] = number

    @property
    def leaving(self) -> bool:
        """True if the worker is to take no more jobs."""
        return self._words[_LEAVING] != 0

    @property
    def clock_offset_s(self) -> float:
        """How far Redis' clock is ahead of the clock of this machine."""
        return ((self._words[_CLOCK] ^ _SIGN) - _SIGN) / 1e6

    @property
    def stopping(self) -> bool:
        """True if the server stops: a job with a checkpoint is to end at once."""
        return self._words[_STOPPING] != 0

    @property
    def busy(self) -> bool:
        """True while many jobs of the group end in a second."""
        return self._words[_BUSY] != 0

    def requests(self) -> Iterator[tuple[int, bool]]:
        """The deliveries that are to end; True for those that are given back, False for cancelled ones."""
        for word in self._words[_SLOTS + 1 :: 2].tolist():
            if word:
                yield word >> 1, bool(word & _INTERRUPT)

    def answer(self, running: int) -> None:
        """Answer a signal with the delivery that runs, or hangs, in the main thread; 0, UNSURE or NO_JOB."""
        self._words[_RUNNING] = running
        self._words[_ANSWERS] += 1

    @property
    def ask_at_s(self) -> float:
        """When jobs that must not overlap are asked to end, in monotonic seconds."""
        return self._words[_ASK_AT] / 1e6 or math.inf

    @property
    def end_at_s(self) -> float:
        """When a process ends that has such jobs, in monotonic seconds."""
        return self._words[_END_AT] / 1e6 or math.inf

    @property
    def to_describe(self) -> int:
        """The delivery whose threads and tasks are asked for; 0 if none."""
        return self._words[_DESCRIBE]

    def described(self) -> None:
        """Note that the description is behind the words."""
        self._words[_DESCRIBE] = 0

    def fence(self) -> None:
        """Note that the worker ends itself, before the lease of its server can end."""
        self._words[_FENCED] = 1

    # For the master

    def set_lease(self, ask_at_s: float, end_at_s: float) -> None:
        """Note when jobs that must not overlap are to end, in monotonic seconds."""
        self._words[_END_AT] = int(end_at_s * 1e6)
        self._words[_ASK_AT] = int(ask_at_s * 1e6)

    @property
    def fenced(self) -> bool:
        """True if the worker has ended itself, because the lease of its server was about to end."""
        return self._words[_FENCED] != 0

    @property
    def answers(self) -> int:
        """The number of signals that the worker has answered."""
        return self._words[_ANSWERS]

    @property
    def running(self) -> int:
        """The delivery of the last answer; 0 if none, UNSURE or NO_JOB."""
        return self._words[_RUNNING]

    def claims(self) -> list[int]:
        """The delivery that each slot took last; 0 if none."""
        return self._words[_SLOTS::2].tolist()

    def request(self, number: int, interrupt: bool) -> None:
        """Note that a delivery is to end, if the worker has it."""
        claims = self.claims()
        if number in claims:
            self._words[_SLOTS + 2 * claims.index(number) + 1] = number << 1 | interrupt

    def describe(self, number: int) -> None:
        """Ask for the threads and tasks of a delivery; ``to_describe`` is 0 again once they are there."""
        self._words[_DESCRIBE] = number

    def set_clock(self, offset_s: float) -> None:
        """Note how far Redis' clock is ahead of the clock of this machine."""
        self._words[_CLOCK] = round(offset_s * 1e6) & _MASK

    def leave(self) -> None:
        """Note that the worker is to take no more jobs."""
        self._words[_LEAVING] = 1

    def stop(self) -> None:
        """Note that the server stops."""
        self._words[_STOPPING] = 1

    def set_busy(self, busy: bool) -> None:
        """Note whether many jobs of the group end in a second."""
        self._words[_BUSY] = busy

    def close(self) -> None:
        """Unmap the memory."""
        self._words.release()
        self._memory.close()


def open_page(slots: int) -> tuple[Page, int]:
    """A new page, and a descriptor of it for the worker. Raises OSError."""
    fd = memory_file(page_size(slots))
    try:
        return Page(fd, slots), fd
    except OSError:
        os.close(fd)
        raise


def page_size(slots: int) -> int:
    """The bytes of the words; the stacks are behind them."""
    return (_SLOTS + 2 * slots) * _WORD
