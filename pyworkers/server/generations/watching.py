"""Watching: loads the application again when its files change, for ``pyworkers run --reload``.

Runs in the master's event loop; the library watchfiles waits for changes in its own thread. It reads no
file. A folder that the system refuses to watch is left out, with a warning: the server runs its jobs anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from pyworkers import logs
from pyworkers.errors import MissingExtraError

# Of many changed files, e.g. after a change of the branch, some are named.
_NAMED = 5
_CONFIGURATION = (".toml",)
# Between two attempts to watch folders that the system refuses to watch.
_RETRY_S = 30.0
_HINT = (
    "raise fs.inotify.max_user_watches and fs.inotify.max_user_instances, or start the server in the folder "
    "of the application; until then send HUP after a change"
)

log = logs.get_logger()


def check_installed() -> None:
    """Raise MissingExtraError if the package watchfiles is missing."""
    if find_spec("watchfiles") is None:
        raise MissingExtraError(
            "--reload needs the package watchfiles", hint="pip install 'pyworkers-server[watch]'"
        )


async def watch(folders: Sequence[Path], reload: Callable[[], None]) -> None:
    """Call ``reload`` for each change of code or of a configuration file, until cancelled."""
    # Its debug line for each change would be a change itself, of a log file in these folders.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    log.info("reload.watching", folders=[str(folder) for folder in folders])
    said = ""
    while True:
        try:
            async for changed in _changes(folders):
                said = ""
                log.info("reload.changed", files=changed[:_NAMED], count=len(changed))
                reload()
            return
        except (
            OSError,
            RuntimeError,
            MemoryError,
        ) as error:  # RuntimeError: no instance of inotify, no thread
            if said != (said := str(error)):
                names = [str(folder) for folder in folders]
                log.warning("reload.unwatched", folders=names, error=said, hint=_HINT)
        await asyncio.sleep(_RETRY_S)


async def _changes(folders: Sequence[Path]) -> AsyncIterator[list[str]]:
    # Imported here, because only a server with --reload needs it.
    from watchfiles import PythonFilter, awatch

    # It leaves out the folders of environments, of version control and of caches.
    wanted = PythonFilter(extra_extensions=_CONFIGURATION)
    async for changes in awatch(*folders, watch_filter=wanted, recursive=True):
        yield sorted({path for _, path in changes})
