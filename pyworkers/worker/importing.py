"""Failed imports as text: the frames of the application's code, the directories searched, the nearest name.

Used by the fork server. It imports nothing of the application.
"""

from __future__ import annotations

import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path

from pyworkers.app import Worker
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
    if not _missing_part(error, load):
        return ""
    return f"; searched: {', '.join(dict.fromkeys(load.path))} and Python's own path"


def meant(error: BaseException, load: Load) -> str:
    """What a misspelt ``module:attribute`` may mean; empty for an error in the application's code."""
    module, _, attribute = load.app.partition(":")
    if missing := _missing_part(error, load):
        around, dot, name = missing.rpartition(".")
        folders = getattr(sys.modules.get(around), "__path__", ()) if dot else load.path
        known = (found.name for found in pkgutil.iter_modules(dict.fromkeys(folders)))
        near = get_close_matches(name, known, n=1)
        rest = load.app.removeprefix(missing)
        return f"; did you mean {around}{dot}{near[0]}{rest}?" if near else ""
    if isinstance(error, AttributeError) and error.obj is sys.modules.get(module, ...):
        return workers_meant(module, attribute) if error.name == attribute else ""
    return ""


def workers_meant(module: str, attribute: str) -> str:
    """The Worker of an imported module that the name may mean, or all its Workers; empty if it has none."""
    # By type(): isinstance() would also ask a lazy object for its class, which may fail.
    values = vars(sys.modules[module])
    names = [name for name, value in values.items() if issubclass(type(value), Worker)]
    near = names if len(names) == 1 else get_close_matches(attribute, names, n=1)
    if near:
        return f"; did you mean {module}:{near[0]}?"
    return f"; its Workers are {', '.join(f'{module}:{name}' for name in names)}" if names else ""


def _missing_part(error: BaseException, load: Load) -> str:
    """The application's module, or the package around it, that was not found; else empty."""
    module = load.app.partition(":")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    return error.name if f"{module}.".startswith(f"{error.name}.") else ""


def _is_machinery(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen importlib")) or filename.endswith("importlib/__init__.py")
