"""The secret with which one dashboard signs, as all its processes know it.

Runs in the event loop. It is read from Redis now and then; while Redis is away, or refuses, this process has
its own secret, whose forms and sessions end when the shared one is there again.
"""

from __future__ import annotations

import asyncio
import secrets
import time

from pyworkers import logs
from pyworkers.api.webshared import read_web_secret
from pyworkers.errors import PyworkersError
from pyworkers.web.site import Site

_READ_AGAIN_S = 60.0
_TRY_AGAIN_S = 2.0
_PATIENCE_S = 1.0

log = logs.get_logger()


class Secret:
    """The secret of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._value = secrets.token_bytes()
        self._is_shared = False
        self._is_away = False
        self._tried = float("-inf")

    async def current(self) -> bytes:
        """The secret, a minute old at most while Redis answers."""
        return await self._not_older_than(_TRY_AGAIN_S if self._is_away else _READ_AGAIN_S)

    async def latest(self) -> bytes:
        """As ``current``, a moment old at most: another process may have made a new one."""
        return await self._not_older_than(_TRY_AGAIN_S)

    async def _not_older_than(self, age_s: float) -> bytes:
        if time.monotonic() - self._tried >= age_s:
            await self._read()
            self._tried = time.monotonic()
        return self._value

    async def _read(self) -> None:
        # What was never shared may have signed forms already. What has been, and is gone, has expired.
        offered = secrets.token_bytes() if self._is_shared else self._value
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._value = await self._site.read(read_web_secret(self._site.keys, offered))
            self._is_shared, self._is_away = True, False
        except (PyworkersError, TimeoutError) as error:
            if not self._is_away:
                log.warning("web.secret_unshared", error=str(error) or "Redis does not answer")
            self._is_away = True
