"""The limits step: asks whether a job of a handler with limits may start.

Runs in the worker process. It waits for no answer: the master hands out the job again once it may start, and
then this step lets it pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers.encryption import Encryption
from pyworkers.protocol import envelope
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.limits import Limit, ask_for
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.sealing import FIELD
from pyworkers.worker.execution import Execution


class LimitsStep:
    """Asks for the limits of a handler. ``check`` raises for a job that does not fit this server.

    Such a job asks for nothing: it uses up no start of a rate. ``stopwatch`` is in seconds.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        encryption: Encryption,
        rng: Rng,
        stopwatch: Callable[[], float],
        check: Callable[[Message], None] | None,
    ) -> None:
        self._limits = limits
        self._encryption = encryption
        self._reads_args = any(limit.by is not None for limit in limits)
        self._rng = rng
        self._stopwatch = stopwatch
        self._check = check

    def ask(self, execution: Execution) -> Outcome | None:
        """The ask of a job; it fails if a function of its limits does, or if it does not fit this server."""
        if execution.granted:
            return None
        try:
            return self._ask(execution)
        except BaseException:
            # It fails as any job does that has started.
            execution.begin(self._stopwatch())
            raise

    def _ask(self, execution: Execution) -> Outcome:
        sealed = execution.message.data.get(FIELD) is True
        if self._reads_args and sealed:
            execution.replace_message(self._encryption.opened(execution.message))
        if self._check is not None and (self._reads_args or not sealed):
            self._check(execution.message)
        return Outcome(
            Fate.ASK, payload=ask_for(execution.message, self._limits, envelope.new_jid(self._rng)).pack()
        )


ASKS = LimitsStep.ask.__code__
"""The code that asks: a traceback shows that a job failed before its links were called."""
