"""Dangers: says at the start what about this Redis can cost jobs, and what mends it.

Runs in the master's event loop.
"""

from __future__ import annotations

import time

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.store.inspection import inspect
from pyworkers.store.store import Store

log = logs.get_logger()


async def warn_of_dangers(store: Store) -> None:
    """Look, and log what was found; not being allowed to look is no reason not to start."""
    try:
        findings = await inspect(store.redis, time.time)
    except PyworkersError as error:
        log.debug("redis.not_inspected", error=error.message)
        return
    for finding in findings:
        log.warning("redis.unsafe", finding=finding.code, message=finding.message, fix=finding.fix)
