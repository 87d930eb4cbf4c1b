"""Stacks: answers people who ask where a running job is: the stacks and the memory of its worker process.

Runs in the master's event loop, only when a request comes with the signals of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.protocol.stacks import JobStack
from pyworkers.server import proc
from pyworkers.server.health import shortages_translated
from pyworkers.server.queues import Queues
from pyworkers.store.processes import stacks
from pyworkers.store.store import Store

# Requests that are answered at the same time; further ones are dropped.
_MOST = 16
_GONE = "The job did not run any more when its server was asked."

log = logs.get_logger()


class Stacks:
    """The requests that are being answered. ``start`` starts a task of the server."""

    def __init__(
        self,
        store: Store,
        queues: Queues,
        identity: Callable[[], str],
        start: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._store = store
        self._queues = queues
        self._identity = identity
        self._start = start
        self._asked: set[str] = set()

    def ask(self, jid: str) -> None:
        """Answer a request about this job, soon."""
        if jid and jid not in self._asked and len(self._asked) < _MOST:
            self._asked.add(jid)
            self._start(self._answer(jid), "stack")

    async def _answer(self, jid: str) -> None:
        try:
            with shortages_translated():
                found = await self._found(jid)
            await self._store.arun(stacks.answer(self._store.keys, found))
        except PyworkersError as error:
            log.warning("stack.unanswered", jid=jid, error=error.message)
        finally:
            self._asked.discard(jid)

    async def _found(self, jid: str) -> JobStack:
        running, server = self._queues.running_as(jid), self._identity()
        if running is None:
            return JobStack(jid, server, problem=_GONE)
        worker, number = running
        pid, status = worker.pid, proc.status_of(worker.pid)
        text, problem = await worker.stacks(number)
        if not (text or problem):
            return JobStack(jid, server, problem=_GONE)
        return JobStack(jid, server, pid=pid, **status._asdict(), text=text, problem=problem)
