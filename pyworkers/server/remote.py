"""Remote: applies the paused queues and the cancelled jobs that are set in Redis for all servers.

Runs in the master's event loop. ``Changes`` reads both; while Redis is unreachable, the last reply is valid.
The notes of cancelled jobs are read when their number or the latest of them has changed. ``Stacks`` answers
people who ask where a running job is; such a request comes with the signals of the server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.protocol.envelope import PLAIN_ID
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.stacks import JobStack
from pyworkers.server import proc
from pyworkers.server.changes import Follow
from pyworkers.server.health import Health, shortages_translated
from pyworkers.server.parts import Part
from pyworkers.server.queues import Queues
from pyworkers.server.running import Running
from pyworkers.server.waiting import StartTask
from pyworkers.store import notes
from pyworkers.store.notes import texts
from pyworkers.store.processes import stacks
from pyworkers.store.store import Store

# The notes of ended jobs are removed this often. A server without notes to remove, and without jobs that run
# for seconds, sends nothing.
_INTERVAL_S = 1.0
# Sidekiq's interval for the same check: STATE_FLUSH_INTERVAL in its job/iterable.rb.
LOOK_S = 5.0
# The ids that producers write. One with other characters may be escaped in the JSON text.
_JID = re.compile(rf'"jid"\s*:\s*"({PLAIN_ID}{{1,128}})"'.encode())
# Bytes searched at each end of a job: producers put the id before the arguments, or after them.
_EDGE = 2048

log = logs.get_logger()


class Remote(Part):
    """Pauses and resumes the ``queues`` at each look, and has them end the jobs that new notes cancel."""

    name = "remote"
    eager = True

    def __init__(self, store: Store, health: Health, queues: Queues) -> None:
        super().__init__(health)
        self._store = store
        self._queues = queues
        self._cancellations = queues.cancellations
        self._iterations = Iterations(store, queues.running)
        self._errors: dict[str, PyworkersError] = {}
        self._noticed: Any = [0, []]
        """The number of the notes and the latest one, as ``look.lua`` reads them."""
        self._known: Any = [0, []]
        """The value of ``_noticed`` for which the notes were last read."""
        self.paused: frozenset[str] = frozenset()

    def follows(self, keys: Keys, _identity: str) -> dict[str, Follow]:
        """The keys to read, each with the function that takes its reply."""
        return {
            keys.paused: Follow("members", self.see_paused),
            keys.cancelled: Follow("notes", self.see_notes),
        }

    def see_paused(self, reply: Any) -> None:
        """Take the names of the paused queues."""
        if self._readable("paused", reply):
            self.paused = texts(reply)
        self.nudge()

    def see_notes(self, reply: Any) -> None:
        """Take the number and the latest of the cancelled jobs."""
        if self._readable("notes", reply):
            self._noticed = reply
        self.nudge()

    def _readable(self, what: str, reply: Any) -> bool:
        self._errors.pop(what, None)
        if isinstance(reply, PyworkersError):
            self._errors[what] = reply
            return False
        return True

    async def look(self) -> float:
        """Pass on the paused queues and the cancelled jobs, and read Sidekiq's cancellations."""
        await self.pass_on()
        await self._iterations.look(time.monotonic())
        return _INTERVAL_S

    def failed(self, backoff_s: float) -> float:
        """Wait at least as long as after a success."""
        return max(_INTERVAL_S, backoff_s)

    async def pass_on(self) -> None:
        """Pass on the paused queues and the cancelled jobs, if they are readable.

        Raises PyworkersError afterwards if one of them is not.
        """
        try:
            cancelled = await self._notes()
        finally:
            await self._queues.set_paused(self.paused)
        if cancelled is not None:
            self._cancellations.use(cancelled)
            if self._cancellations.noted:
                self._queues.cancel_noted()
        for error in self._errors.values():
            raise error
        await self.forget()

    async def _notes(self) -> frozenset[str] | None:
        """The ids of the cancelled jobs; None if they are the same as before."""
        noticed = self._noticed
        if noticed == self._known:
            return None
        found = await self._store.arun(notes.notes(self._store.keys))
        self._known = noticed
        return found

    async def forget(self) -> None:
        """Remove the notes of the jobs that have ended. Raises PyworkersError."""
        if settled := self._cancellations.take_settled():
            await self._store.arun(notes.forget(self._store.keys, settled))
            self._cancellations.removed(settled)


class Iterations:
    """Reads Sidekiq's cancellations of running jobs, except for jobs that began after the previous read."""

    def __init__(self, store: Store, running: Callable[[], Iterable[Running]]) -> None:
        self._store = store
        self._running = running
        self._seen: dict[tuple[str, int], list[str]] = {}
        self._looked_at = 0.0

    async def look(self, now: float) -> None:
        """Read them if ``LOOK_S`` have passed. ``now`` is monotonic seconds. Raises PyworkersError."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        before, self._seen = self._seen, {}
        jids: list[str] = []
        for job in self._running():
            key = (job.queue, job.number)
            self._seen[key] = before.get(key) or ids_in(job.raw)
            if key in before:
                jids += before[key]
        if jids:
            await self._store.arun(notes.note_cancelled(self._store.keys, jids))


def ids_in(raw: bytes) -> list[str]:
    """The texts that may be the id of a job. Ids of other jobs, in its arguments, only cost a read each."""
    edges = raw if len(raw) <= 2 * _EDGE else raw[:_EDGE] + raw[-_EDGE:]
    return list({match[1].decode() for match in _JID.finditer(edges)})


# Requests that are answered at the same time; further ones are dropped.
_MOST = 16
_GONE = "The job did not run any more when its server was asked."


class Stacks:
    """Answers requests for the stacks and the memory of the worker process that runs a job.

    ``start`` starts a task of the server.
    """

    def __init__(self, store: Store, queues: Queues, identity: Callable[[], str], start: StartTask) -> None:
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
