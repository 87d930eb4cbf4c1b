"""Asking: stands before the chain of a handler with limits, and asks whether each job may start.

Runs in the worker process. It waits for no answer: the master hands out the job again once it may start, and
then its chain runs, behind Starting if a rate has granted it. A handler without limits has none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers.encryption import Encryption
from pyworkers.protocol import envelope
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.limits import Limit, ask_for
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.sealing import FIELD
from pyworkers.worker.chain import Chain
from pyworkers.worker.execution import Execution
from pyworkers.worker.steps.misfits import Fitting


class Asking:
    """Has the methods of a Chain. ``granted`` is the chain of the jobs that may start.

    With ``fitting``, a job that does not fit this server asks for nothing: it uses up no start of a rate.
    """

    def __init__(
        self,
        granted: Chain,
        limits: Sequence[Limit],
        encryption: Encryption,
        rng: Rng,
        fitting: Fitting | None = None,
    ) -> None:
        self.granted = granted
        self.name = granted.name
        self._limits = limits
        self._encryption = encryption
        self._reads_args = any(limit.by is not None for limit in limits)
        self._rng = rng
        self._fitting = fitting

    def run(self, execution: Execution) -> Outcome:
        """The ask of a job; it fails if a function of its limits does, or if it does not fit this server."""
        try:
            return self._ask(execution)
        except BaseException as error:
            return self.granted.refuse(execution, error)

    async def run_async(self, execution: Execution) -> Outcome:
        """``run``, which takes no time unless the job fails."""
        try:
            return self._ask(execution)
        except BaseException as error:
            return await self.granted.refuse_async(execution, error)

    def _ask(self, execution: Execution) -> Outcome:
        sealed = execution.message.data.get(FIELD) is True
        if self._reads_args and sealed:
            execution.replace_message(self._encryption.opened(execution.message))
        if self._fitting is not None and (self._reads_args or not sealed):
            self._fitting.check(execution.message)
        return Outcome(
            Fate.ASK, payload=ask_for(execution.message, self._limits, envelope.new_jid(self._rng)).pack()
        )


class Starting:
    """Has the methods of a Chain. ``chain`` is that of the job; ``started`` is called just before it runs."""

    def __init__(self, chain: Chain, started: Callable[[int], None]) -> None:
        self.name = chain.name
        self._chain = chain
        self._started = started

    def run(self, execution: Execution) -> Outcome:
        """The outcome of the job."""
        self._started(execution.delivery)
        return self._chain.run(execution)

    async def run_async(self, execution: Execution) -> Outcome:
        """The outcome of the job."""
        self._started(execution.delivery)
        return await self._chain.run_async(execution)
