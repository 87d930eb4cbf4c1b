"""EndedSessions: the sessions that a logout has ended, as all processes of the dashboard know them.

Runs in the event loop. An end is written to Redis, and read there again every two seconds for each session in
use, not at each request. While Redis is away, or refuses, an end counts in the process that has executed it,
and the other processes keep what they have read.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict

from pyworkers import logs
from pyworkers.api.webshared import end_session, read_session_ended
from pyworkers.errors import PyworkersError
from pyworkers.web.security.sessions import Ticket
from pyworkers.web.site import Site

_READ_AGAIN_S = 2.0
_PATIENCE_S = 1.0
_MOST_KNOWN = 10_000

log = logs.get_logger()


class EndedSessions:
    """The ended sessions of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        # The sessions in use: when to read their state again; an ended one is never read again.
        self._due: OrderedDict[str, float] = OrderedDict()

    async def has(self, ticket: Ticket) -> bool:
        """True if the session has ended, here or, two seconds ago at most, elsewhere."""
        if time.monotonic() >= self._due.get(ticket.session, -math.inf):
            ended = await self._read(ticket)
            # A logout here, while the answer was on its way, stays.
            if not self._is_noted(ticket):
                self._note(ticket, math.inf if ended else time.monotonic() + _READ_AGAIN_S)
        return self._is_noted(ticket)

    async def add(self, ticket: Ticket) -> None:
        """End a session: this process refuses it from now on, the others within two seconds."""
        self._note(ticket, math.inf)
        remaining_s = math.ceil(ticket.expires - time.time())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._site.read(end_session(self._site.keys, ticket.session, remaining_s))
        except (PyworkersError, TimeoutError) as error:
            text = str(error) or "Redis does not answer"
            log.warning("web.logout_unshared", user=ticket.name, error=text)

    async def _read(self, ticket: Ticket) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._site.read(read_session_ended(self._site.keys, ticket.session))
        except (PyworkersError, TimeoutError):
            return False

    def _is_noted(self, ticket: Ticket) -> bool:
        return self._due.get(ticket.session) == math.inf

    def _note(self, ticket: Ticket, due: float) -> None:
        self._due[ticket.session] = due
        self._due.move_to_end(ticket.session)
        if len(self._due) > _MOST_KNOWN:
            self._due.popitem(last=False)
