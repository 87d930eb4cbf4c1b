"""Folder: the working directory of a server, which is entered anew by its name before each later start.

Used in the master. A link in the name may lead to another release by then. Where the name is not known, a
link that led to the directory and leads elsewhere now is logged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pyworkers import logs

# Of each directory above this many entries are read, to find a link; a directory of releases has few.
_MOST_ENTRIES = 500
_HINT = "start the server by the name of the link: ExecStart=/srv/app/current/.venv/bin/pyworkers, or set PWD"

log = logs.get_logger()


class Folder:
    """The working directory. ``name`` is what it is called; ``known`` false: where no one said how."""

    def __init__(self, name: Path) -> None:
        self.name = name
        named = str(name) == os.environ.get("PWD") or str(name) != os.path.realpath(name)
        self._links = {} if named else {link: os.path.realpath(link) for link in _links_to(name)}
        self._said: set[str] = set()

    def enter(self) -> None:
        """Make it the working directory, which it may be no more; log if that is impossible."""
        try:
            os.chdir(self.name)
        except OSError as error:
            self._warn("folder.missing", folder=str(self.name), error=str(error))
        for link, before in self._links.items():
            now = os.path.realpath(link)
            if now != before:
                self._warn(
                    "folder.elsewhere", link=str(link), leads_to=now, folder=str(self.name), hint=_HINT
                )

    def _warn(self, event: str, **fields: str) -> None:
        """Log each fact once: after the loss of a fork server, starts are attempted again and again."""
        if (fact := repr(fields)) not in self._said:
            self._said.add(fact)
            log.warning(event, **fields)


def _links_to(folder: Path) -> Iterator[Path]:
    """The links near a directory that lead to it, or to the one around it."""
    targets = {str(folder), str(folder.parent)}
    for around in list(folder.parents)[:3]:
        with suppress(OSError), os.scandir(around) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if entry.is_symlink() and os.path.realpath(entry.path) in targets:
                    yield Path(entry.path)
