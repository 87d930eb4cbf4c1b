"""What a fork server is told at its start. Pure, and light: needed before the master imports the rest."""

from __future__ import annotations

from dataclasses import asdict

from pyworkers.config.fields import Config
from pyworkers.ipc.control import Load, Settings


def load_word(config: Config, path: list[str], identity: str) -> Load:
    """The ``Load`` for a configuration; ``path`` goes in front of ``sys.path``."""
    settings = Settings(
        max_retries=config.retry.max,
        max_jobs_per_worker=config.server.max_jobs_per_worker,
        max_memory_mb=config.server.max_memory_mb,
        timeouts={name: q.timeout for name, q in config.queues.items() if q.timeout is not None},
    )
    assert config.app is not None
    log, redis = config.log, asdict(config.redis)
    return Load(config.app, path, log.level, log.format, identity, asdict(settings), redis=redis)
