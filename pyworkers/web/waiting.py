"""Waiting: programs that wait for the ends of jobs, all of them by one read of the dashboard, or for room.

Runs in the event loop of the dashboard. A wait takes no thread and no connection to Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from starlette.requests import Request

from pyworkers.api.results import ended_jobs, note_waits
from pyworkers.errors import PyworkersError
from pyworkers.web.leaving import is_leaving
from pyworkers.web.site import Site

MOST = 500
"""Those who wait at a time: fewer than the connections of the server, so that people are answered."""
MOST_FOR_ROOM = 20
"""Those who wait at a time for room in a queue: each has up to a megabyte of jobs in memory."""
# A job that a program begins to wait for meanwhile is looked at so late.
_BLOCK_MS = 100
_PAUSE_S = 0.5
# Most waits end before they are noted for the sweep.
_UNNOTED_S = 5.0


class ProgramWaits:
    """The waits of programs at one dashboard."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._for_room = 0
        self._ends: dict[str, set[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        """True if no more programs may wait for jobs."""
        return sum(map(len, self._ends.values())) >= MOST

    async def wait(self, request: Request, jid: str, seconds: float) -> None:
        """Return when the job has ended, when the time is over, or when the client or the server leaves."""
        with _leaving(request) as leaving, self._waiting(jid) as ended:
            first = min(seconds, _UNNOTED_S)
            done, _ = await asyncio.wait({ended, leaving}, timeout=first, return_when="FIRST_COMPLETED")
            if not done and seconds > first:
                with suppress(PyworkersError):
                    await self._site.read(note_waits(self._site.keys, [jid]))
                rest = {ended, leaving}
                await asyncio.wait(rest, timeout=seconds - first, return_when="FIRST_COMPLETED")

    @contextmanager
    def for_room(self, request: Request, error: PyworkersError) -> Iterator[asyncio.Task[None]]:
        """The request waits for room in the block. The task is done when the client or the server leaves.

        Raises the error if no more requests may wait.
        """
        if self._for_room >= MOST_FOR_ROOM:
            raise error
        self._for_room += 1
        try:
            with _leaving(request) as leaving:
                yield leaving
        finally:
            self._for_room -= 1

    async def close(self) -> None:
        """End the read under way in this event loop: its next command would open another connection."""
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})

    @contextmanager
    def _waiting(self, jid: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when the job has ended; it is watched while the block runs."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ends.setdefault(jid, set()).add(end)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield end
        finally:
            end.cancel()
            others = self._ends.pop(jid, set()) - {end}
            if others:
                self._ends[jid] = others

    async def _run(self) -> None:
        while self._ends:
            jids: Sequence[str] = list(self._ends)
            try:
                if not is_leaving():
                    jids = await self._site.read(ended_jobs(self._site.keys, jids, _BLOCK_MS))
            except PyworkersError:
                # Those who wait read the state at the end of their time, and say what is wrong.
                await asyncio.sleep(_PAUSE_S)
                continue
            for jid in jids:
                for end in self._ends.pop(jid, ()):
                    if not end.done():
                        end.set_result(None)


@contextmanager
def _leaving(request: Request) -> Iterator[asyncio.Task[None]]:
    leaving = asyncio.create_task(_left(request))
    try:
        yield leaving
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def waits_of(request: Request) -> ProgramWaits:
    """The waits at the dashboard that answers this request."""
    waits: ProgramWaits = request.app.state.waits
    return waits
