"""Failed imports as text: the frames of the application's code, and the directories that were searched.

Pure; used by the fork server.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from pyworkers.ipc.control import Load

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def users_traceback(error: BaseException) -> str:
    """The traceback without the frames of pyworkers and of Python's import system."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        users = [frame for frame in link.stack if not _is_machinery(frame.filename)]
        link.stack = traceback.StackSummary.from_list(users)
        link = link.__cause__ or link.__context__
    return "".join(shown.format())


def searched(error: BaseException, load: Load) -> str:
    """The directories that were searched for the application's module; empty for any other error."""
    module = load.app.partition(":")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    if error.name != module and not module.startswith(f"{error.name}."):
        return ""
    return f"; searched: {', '.join(dict.fromkeys(load.path))} and Python's own path"


def _is_machinery(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen importlib")) or filename.endswith("importlib/__init__.py")
