"""Sentinel: polls the sentinels for the address of the primary.

Runs in the master's event loop, if the URL names sentinels. A primary that is killed or demoted closes its
connections. A primary whose whole machine hangs does not, and without these polls the failover would be
noticed only after the timeout of a command.
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

    Unreachable sentinels are logged by the parts that need a connection, not here.
    """
    known: object = None
    async with connect_async(config) as redis:
        pool: Any = redis.connection_pool
        while True:
            try:
                with errors_translated(), reading("SENTINEL GET-MASTER-ADDR-BY-NAME"):
                    found = await pool.get_master_address()
            except PyworkersError:
                found = known
            if known is not None and found != known:
                on_change()
            known = found
            await asyncio.sleep(_LOOK_S)
