"""The jobs' own counts: a file for each thread or process, mapped into memory here as in the jobs.

Reading them is cheap, so that a harness that waits for 500 threads takes no CPU from them.
"""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

_BYTES = 8


class Counts:
    """The files ``count-*`` of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._views: dict[str, memoryview] = {}

    def clear(self) -> None:
        """An empty folder."""
        self._views.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def total(self) -> int:
        """How many jobs have been executed."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith("count-") and entry.name not in self._views:
                    self._map(entry)
        return sum(view[0] for view in self._views.values())

    def _map(self, entry: os.DirEntry[str]) -> None:
        # A file that was just created is still empty.
        if entry.stat().st_size >= _BYTES:
            with Path(entry.path).open("rb") as file:
                raw = mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)
            self._views[entry.name] = memoryview(raw).cast("q")
