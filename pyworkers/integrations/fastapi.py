"""FastAPI and Starlette: closes the connections of ``await job.aenqueue(…)`` when the web application stops.

Used in the web process. Enqueueing itself needs nothing of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pyworkers import Worker


def lifespan(worker: Worker) -> Callable[[object], AbstractAsyncContextManager[None]]:
    """A lifespan with the client of an application: ``FastAPI(lifespan=lifespan(worker))``.

    An invalid configuration is an error at the start (ConfigError). Redis need not be there: the client
    connects when the first job is enqueued. Inside a lifespan of one's own:
    ``async with lifespan(worker)(app): yield``.
    """

    @asynccontextmanager
    async def opened(_app: object) -> AsyncIterator[None]:
        async with worker.async_client:
            yield

    return opened
