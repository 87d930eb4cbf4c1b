"""Asking: stands before the chain of a handler with limits, and asks whether each job may start.

Runs in the worker process. It waits for no answer: the master hands out the job again once it may start, and
then its chain runs. A handler without limits has none of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyworkers.protocol import envelope
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.limits import Limit, ask_for
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.chain import Chain
from pyworkers.worker.execution import Execution


class Asking:
    """Has the methods of a Chain. ``granted`` is the chain of the jobs that may start."""

    def __init__(self, granted: Chain, limits: Sequence[Limit], rng: Rng) -> None:
        self.granted = granted
        self.name = granted.name
        self._limits = limits
        self._rng = rng

    def run(self, execution: Execution) -> Outcome:
        """The ask of a job; it fails if a function of its limits does."""
        try:
            ask = ask_for(execution.message, self._limits, envelope.new_jid(self._rng))
        except BaseException as error:
            return self.granted.refuse(execution, error)
        return Outcome(Fate.ASK, payload=ask.pack())

    async def run_async(self, execution: Execution) -> Outcome:
        """``run``, which takes no time."""
        return self.run(execution)
