"""Watching: loads the application again when its files change, for ``pyworkers run --reload``.

Runs in the master's event loop; the library watchfiles waits for changes in a thread of its own. It reads no
file.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from pyworkers import logs
from pyworkers.errors import MissingExtraError, PyworkersError

# Of many changed files, e.g. after a change of the branch, some are named.
_NAMED = 5
_CONFIGURATION = (".toml",)

log = logs.get_logger()


def check_installed() -> None:
    """Raise MissingExtraError if the package watchfiles is missing."""
    if find_spec("watchfiles") is None:
        raise MissingExtraError(
            "--reload needs the package watchfiles", hint="pip install 'pyworkers-server[watch]'"
        )


async def watch(folders: Sequence[Path], reload: Callable[[], None]) -> None:
    """Call ``reload`` for each change of code or of a configuration file, until cancelled.

    Raises PyworkersError if the system refuses to watch the folders.
    """
    # Its debug line for each change would be a change itself, of a log file in these folders.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    log.info("reload.watching", folders=[str(folder) for folder in folders])
    async for changed in _changes(folders):
        log.info("reload.changed", files=changed[:_NAMED], count=len(changed))
        reload()


async def _changes(folders: Sequence[Path]) -> AsyncIterator[list[str]]:
    # Imported here, because only a server with --reload needs it.
    from watchfiles import PythonFilter, awatch

    # It leaves out the folders of environments, of version control and of caches.
    wanted = PythonFilter(extra_extensions=_CONFIGURATION)
    try:
        async for changes in awatch(*folders, watch_filter=wanted, recursive=True):
            yield sorted({path for _, path in changes})
    except OSError as error:
        raise PyworkersError(
            f"the files cannot be watched: {error}", hint="start the server in the folder of the application"
        ) from error
