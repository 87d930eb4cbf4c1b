"""Rehearsal: loads an application as the server would, in a process of its own, and lets it go again.

Run by ``pyworkers check``. No worker is forked, no hook runs, and nothing is asked of Redis.
"""

from __future__ import annotations

from pyworkers.errors import AppImportError, ConfigError
from pyworkers.ipc.control import Loaded
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.generations.spawner import Spawner


async def rehearse(spawner: Spawner) -> Loaded:
    """What the application declares. Raises AppImportError and ConfigError."""
    spawner.start()
    try:
        spawner.attach(Reaper(), lambda _: None)
        word = await spawner.loaded()
    finally:
        spawner.kill()
        spawner.process.wait()
    if isinstance(word, Loaded):
        return word
    if word.kind == "config":
        raise ConfigError(word.message)
    raise AppImportError(word.message, traceback=word.traceback)
