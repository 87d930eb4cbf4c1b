"""Interpreter: how this process was started, so that the interpreters that it starts are the same.

Used by the master for each later fork server and server, and by programs that start a server. One function
finds the working directory, the import path and the flags for all of them. A directory is kept by its name: a
link in it may lead to another release later.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

# Those with which an interpreter ends at once, reads its standard input, or leaves out a line of its program.
_LEFT_OUT = frozenset("ixhV?")
# The standard library, and what this package needs. What of it is imported before the application differs by
# the way in which a process was started.
_OURS = {"click", "croniter", "dateutil", "hiredis", "redis", "simplejson", "structlog"}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter of a process, and where that process finds modules."""

    executable: str
    flags: tuple[str, ...]
    """The options of the interpreter, as ``-O`` and ``-X utf8``."""
    folder: Path
    """The working directory, by its name."""
    path: tuple[str, ...]
    """The entries of the import path that are not the interpreter's own, by their names."""
    home: str
    """The entry of the import path that has this package, by its name."""
    modules: tuple[str, ...]
    """The names of the imported modules that no module of an application can hide."""

    @classmethod
    def of_this_process(cls) -> Interpreter:
        """The one that runs this code. Raises OSError if the working directory is gone."""
        here = folder()
        home = str(_named(Path(__file__).parents[2], here))
        path, modules = tuple(_path(here)), tuple(_modules())
        return cls(_executable(here), interpreter_flags(), here, path, home, modules)

    def command(self, code: str, *arguments: object) -> list[str]:
        """The command line that runs this code; it imports this package from where this process has it.

        The working directory is not in its import path: a module there, such as ``email.py``, would hide one
        of the standard library from this package.
        """
        front = [self.home] if self.home in self.path else []
        # The first entry is the working directory, unless -P has left it out.
        start = f"import sys; sys.path[:1 - sys.flags.safe_path] = {front!r}\n"
        return [self.executable, *self.flags, "-c", start + code, *map(str, arguments)]


def interpreter_flags() -> tuple[str, ...]:
    """The options with which the interpreter of this process was started, without those for one program."""
    return tuple(_flags(sys.orig_argv))


def folder() -> Path:
    """The working directory by its name: the shell's, or the one in a path that this process was given.

    Raises OSError if it is gone.
    """
    here = Path.cwd()
    for name in _names():
        with suppress(OSError):
            if name.is_absolute() and name.samefile(here):
                return name
    return here


def prepare(modules: Sequence[str], path: Sequence[str]) -> None:
    """Import these modules as they are without the path, then put it in front, each entry once.

    So the application finds the same modules in each interpreter: its own files cannot hide them.
    """
    for name in modules:
        # One may be missing by now, if another Python is installed.
        with suppress(ImportError):
            import_module(name)
    wanted = set(map(real_path, path))
    scripts = real_path(Path(sys.executable).parent)
    rest = [entry for entry in sys.path if entry and real_path(entry) not in {*wanted, scripts}]
    sys.path[:] = [*path, *rest]


def real_path(entry: str | Path) -> str:
    """The entry with all links followed; as it is, if it is relative and the working directory is gone."""
    with suppress(OSError):
        return os.path.realpath(entry)
    return str(entry)


def is_of_python(entry: Path) -> bool:
    """True for a part of the standard library, and of the packages that are installed with it."""
    return any(entry.is_relative_to(root) for root in _roots())


@cache
def _roots() -> frozenset[Path]:
    library = Path(os.__file__).parent
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    libraries = [Path(prefix) / part / library.name for prefix in prefixes for part in ("lib", "lib64")]
    zipped = library.parent / f"python{sys.version_info.major}{sys.version_info.minor}.zip"
    packages = map(Path, (*site.getsitepackages(), site.getusersitepackages()))
    return frozenset({library, zipped, *libraries, *packages})


def _names() -> Iterator[Path]:
    """Paths that may name the working directory by a link."""
    yield Path(os.environ.get("PWD", ""))
    given = (sys.argv[0], sys.executable, os.environ.get("VIRTUAL_ENV", ""), *sys.argv[1:])
    for word in given:
        # An option may have the path of a file behind "=".
        path = Path(word.rpartition("=")[2])
        if path.is_absolute() and len(path.parts) > 1:
            yield from path.parents


def _named(path: Path, here: Path) -> Path:
    """A path by the name of the working directory, if it is in there."""
    path = here / path
    for real in (Path.cwd(), Path(real_path(here))):
        if path.is_relative_to(real):
            return here / path.relative_to(real)
    return path


def _executable(here: Path) -> str:
    """The interpreter; in an environment in the working directory, by its name there."""
    if sys.prefix == sys.base_prefix:
        return sys.executable
    return str(_named(Path(sys.executable), here))


def _flags(words: Sequence[str]) -> Iterator[str]:
    """The options of the interpreter in a command line, each in its own word."""
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            yield from (word, next(rest, "default"))
        elif not word.startswith("-") or word.startswith("--") or word == "-":
            return
        for place, letter in enumerate("" if word.startswith("--") else word[1:], start=2):
            if letter in "mc":  # The program follows.
                return
            if letter in "WX":
                yield from (f"-{letter}", word[place:] or next(rest, ""))
                break
            if letter not in _LEFT_OUT:
                yield f"-{letter}"


def _path(here: Path) -> Iterator[str]:
    scripts = real_path(Path(sys.executable).parent)
    # Python puts the working directory in front of all for -m and -c.
    added = sys.path[:1] if not sys.flags.safe_path and _is_here(sys.path[0]) else []
    entries = map(_of_script, sys.path[len(added) :])
    # The folder of the program `pyworkers` in an environment has programs, and no modules.
    own = (
        Path(entry)
        for entry in entries
        if entry and real_path(entry) != scripts and not is_of_python(Path(entry))
    )
    yield from dict.fromkeys(str(_named(entry, here)) for entry in own)


def _is_here(entry: str) -> bool:
    return real_path(entry) == real_path(".")


def _of_script(entry: str) -> str:
    """The directory of the program by the name that was given; Python resolves the links in it."""
    given = os.path.dirname(sys.argv[0])  # noqa: PTH120 - Path("x").parent is "."
    return given if given and entry == real_path(given) else entry


def _modules() -> Iterator[str]:
    known = sys.stdlib_module_names | _OURS
    for name in tuple(sys.modules):
        if name.partition(".")[0] in known and name != "__main__":
            yield name
