"""Failed imports as text: the frames of the application's code, the directories searched, the nearest name.

Used by the fork server. It imports nothing of the application.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType

from pyworkers.app import Worker
from pyworkers.ipc.control import Load
from pyworkers.programs.interpreter import is_of_python, real_path

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
    """The directories that were searched for a module that is missing; empty for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    if _missing_part(error, load):
        rest = "Python's own path"
    elif "." not in error.name:
        rest = f"the packages of {sys.executable}"
    else:
        return ""
    return f"; searched: {', '.join(_own_folders(load))} and {rest}"


def meant(error: BaseException, load: Load) -> str:
    """What a wrong ``module:attribute`` may mean; empty for an error in the application's code."""
    module, _, attribute = load.app.partition(":")
    if missing := _missing_part(error, load):
        return _module_meant(missing, load)
    if isinstance(error, AttributeError) and error.obj is sys.modules.get(module, ...):
        return workers_meant(module, attribute) or _file_of(module) if error.name == attribute else ""
    return ""


def _file_of(module: str) -> str:
    """Where an imported module is: another one may have the name, of the standard library for example."""
    file = getattr(sys.modules[module], "__file__", None)
    return f"; {module} is {file}" if file else ""


def workers_meant(module: str, attribute: str) -> str:
    """The Worker of an imported module that the name may mean, or all its Workers; empty if it has none.

    Without one: the Worker of its submodule of this name.
    """
    # By type(): isinstance() would also ask a lazy object for its class, which may fail.
    values = vars(sys.modules[module])
    names = [name for name, value in values.items() if issubclass(type(value), Worker)]
    near = names if len(names) == 1 else get_close_matches(attribute, names, n=1)
    if near:
        return f"; did you mean {module}:{near[0]}?"
    if names:
        return f"; its Workers are {', '.join(f'{module}:{name}' for name in names)}"
    return f"; did you mean {module}.{attribute}:worker?" if attribute in _modules(_folders(module)) else ""


def kind_of(found: object) -> str:
    """An object that is no Worker, in an error: ``a function``."""
    if isinstance(found, type):
        return "a class"
    return f"a {type(found).__name__}"


def advice(found: object, module: str, attribute: str) -> str:
    """How to name a Worker instead of this object of a module; empty if nothing is known."""
    if near := workers_meant(module, attribute):
        return near
    if found is Worker:
        return "; the module needs an instance: worker = Worker()"
    if isinstance(found, FunctionType):
        return f"; if it makes one, call it in the module: worker = {attribute}()"
    return ""


def _module_meant(missing: str, load: Load) -> str:
    """What may be meant by the name of a module that was not found."""
    module, _, attribute = load.app.partition(":")
    if module.endswith(".py"):
        return f"; did you mean {module.removesuffix('.py')}:{attribute}?"
    around, dot, name = missing.rpartition(".")
    folders = _folders(around) if dot else list(map(Path, _own_folders(load)))
    if near := get_close_matches(name, _modules(folders), n=1):
        return f"; did you mean {around}{dot}{near[0]}{load.app.removeprefix(missing)}?"
    # The first one is the working directory; the folders of the installed packages may be others.
    return "" if dot else _folder_meant(module, folders[:1])


def _folder_meant(module: str, folders: list[Path]) -> str:
    """The folder from which a module would be found: that above one of these, or one inside of it."""
    top, *rest = module.split(".")
    for folder in folders:
        if folder.name == top and _has(folder, rest[0] if rest else "__init__"):
            return f"; {folder} is {top} itself: run the command in {folder.parent}"
        for inner in sorted(_inner(folder)):
            if _has(inner, top):
                return f"; it is in {inner}: set PYTHONPATH={inner}"
    return ""


def _own_folders(load: Load) -> list[str]:
    """The entries of the import path, without the ones of Python, of PYTHONPATH and of installed packages."""
    given = {real_path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    own = (entry for entry in dict.fromkeys(load.path) if not is_of_python(Path(entry)))
    # The first one is the working directory.
    return [entry for entry in own if entry == load.path[0] or real_path(entry) not in given]


def _has(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or any((folder / module).glob("*.py"))


def _folders(package: str) -> list[Path]:
    """The folders of an imported package; none for a module."""
    return [Path(entry) for entry in getattr(sys.modules.get(package), "__path__", ())]


def _modules(folders: list[Path]) -> list[str]:
    """The names of the modules and packages in these folders, also of packages without ``__init__.py``."""
    known = [found.name for found in pkgutil.iter_modules(map(str, folders))]
    inner = (inner for folder in folders for inner in _inner(folder) if inner.name.isidentifier())
    return known + [folder.name for folder in inner if any(folder.glob("*.py"))]


def _inner(folder: Path) -> list[Path]:
    """The folders in a folder, without hidden ones; none if it cannot be read."""
    try:
        return [inner for inner in folder.iterdir() if not inner.name.startswith(".") and inner.is_dir()]
    except OSError:
        return []


def _missing_part(error: BaseException, load: Load) -> str:
    """The application's module, or the package around it, that was not found; else empty."""
    module = load.app.partition(":")[0]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    return error.name if f"{module}.".startswith(f"{error.name}.") else ""


def _is_machinery(filename: str) -> bool:
    return filename.startswith((_PACKAGE, "<frozen importlib")) or filename.endswith("importlib/__init__.py")
