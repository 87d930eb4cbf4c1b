"""Naming: the import path of an application that this process has, for a child that imports it.

Used in the program that serves. It imports nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pyworkers.app import Worker
from pyworkers.errors import ConfigError, place_of
from pyworkers.programs.interpreter import is_of_python


def app_of(worker: Worker | str, configured: str | None) -> str:
    """``module:attribute`` of the worker: what is ``configured`` if it is that, or else where it was found.

    Raises ConfigError if no module but ``__main__`` has it, which a child cannot import.
    """
    if isinstance(worker, str):
        return worker
    if configured is not None and _object_at(configured) is worker:
        return configured
    places = list(_places(worker))
    if not places:
        raise ConfigError(
            "the application is not in a module that another process can import"
            if worker not in vars(sys.modules["__main__"]).values()
            else "the application is in __main__, which another process cannot import",
            hint="put the Worker and its jobs into a module, tasks.py, and write: from tasks import worker "
            "(a notebook makes the file with %%writefile tasks.py)",
        )
    # Modules that have imported it have it, too. Most of its jobs are where it is made.
    files = [handler.place.rpartition(":")[0] for handler in worker.handlers()]
    return max(places, key=lambda place: files.count(_file_of(sys.modules[place.partition(":")[0]])))


def import_path() -> list[str]:
    """The directories in which this process finds modules, without the directories of every interpreter.

    In front of its own library they would hide its modules. The working directory is the last one if
    it is not among them: a server would put it in front of all if it were missing.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in sys.path if entry in given or not is_of_python(Path(entry))]
    return list(dict.fromkeys(str(Path(entry).absolute()) for entry in (*kept, "")))


def _places(worker: Worker) -> Iterator[str]:
    # By the module and not by its name: multiprocessing gives it a second one.
    main = sys.modules["__main__"]
    for module_name, module in list(sys.modules.items()):
        if module is not main and isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                if value is worker:
                    yield f"{module_name}:{name}"


def _object_at(app: str) -> object:
    module_name, _, attribute = app.partition(":")
    found: object = sys.modules.get(module_name)
    for name in attribute.split("."):
        found = getattr(found, name, None)
    return found


def _file_of(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return place_of(file, 1).rpartition(":")[0] if file else ""
