"""The application of arq."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import func

from contrib.bench.programs import work

SETTINGS = RedisSettings(port=work.PORT)

_HANDLER = (
    {"class": "logging.FileHandler", "filename": work.LINE_LOG}
    if work.LINE_LOG
    else {"class": "logging.StreamHandler"}
)
LOG = {
    "version": 1,
    "handlers": {"all": _HANDLER},
    "loggers": {"arq": {"handlers": ["all"], "level": "INFO" if work.LINE_LOG else "WARNING"}},
}

_pool: ArqRedis | None = None


async def bench(_context: dict[str, Any], kind: str, value: work.Value) -> None:
    await work.run_async(kind, value)


class WorkerSettings:
    """What arq reads by these names."""

    functions = (func(bench, name="bench", keep_result=0),)
    redis_settings = SETTINGS
    max_jobs = work.WORKERS
    # By default it looks for jobs twice a second; this is for its throughput and latency.
    poll_delay = 0.001


async def pool() -> ArqRedis:
    global _pool
    if _pool is None:
        _pool = await create_pool(SETTINGS)
    return _pool


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    redis = await pool()
    for value in values:
        await redis.enqueue_job("bench", kind, value)


async def later(kind: str, value: work.Value, at: float) -> None:
    await (await pool()).enqueue_job("bench", kind, value, _defer_until=datetime.fromtimestamp(at, UTC))
