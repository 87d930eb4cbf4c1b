"""Inspection: reads from a server what ``preflight`` judges. Run by the master and by ``pyworkers check``."""

from __future__ import annotations

from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from pyworkers.store.preflight import Finding, judge
from pyworkers.store.transport.address import redis_cli
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.replies import integer


async def inspect(redis: Redis, clock: Callable[[], float]) -> list[Finding]:
    """What is unsafe about this server. ``clock`` gives epoch seconds. Raises PyworkersError."""
    with errors_translated():
        info = {key: str(value) for key, value in (await redis.info("everything")).items()}
        before = clock()
        seconds, microseconds = await redis.time()
        offset_s = (before + clock()) / 2 - (seconds + microseconds / 1e6)
        address = await redis_cli(redis)
        return judge(info, await _save(redis), offset_s, address, scripts=await _may_run_scripts(redis))


async def _may_run_scripts(redis: Redis) -> bool:
    try:
        await redis.execute_command("EVAL", "return 1", 0, read=integer)
    except ResponseError as error:
        return code_of(error) not in ("NOPERM", "UNKNOWN")
    return True


async def _save(redis: Redis) -> str | None:
    try:
        found = await redis.config_get("save")
    except ResponseError:
        # Managed servers refuse CONFIG, and so does a minimal ACL.
        return None
    return next(iter(found.values()), None)
