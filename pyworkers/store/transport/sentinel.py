"""Primary: which server the sentinels call the primary, asked again and again.

Runs in the master's event loop, where the URL names sentinels. A primary that is killed or demoted closes its
connections; one that hangs, with its whole machine, does not, and a failover would be noticed only after the
time-out of a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.store.transport.connections import connect_async, errors_translated
from pyworkers.store.transport.replies import reading

_LOOK_S = 1.0


async def watch_primary(config: RedisConfig, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` after each failover, until cancelled.

    Sentinels that are away are for the others to complain of.
    """
    known: object = None
    async with connect_async(config) as redis:
        pool: Any = redis.connection_pool
        while True:
            try:
                with errors_translated(), reading("the question for the primary"):
                    found = await pool.get_master_address()
            except PyworkersError:
                found = known
            if known is not None and found != known:
                on_change()
            known = found
            await asyncio.sleep(_LOOK_S)
