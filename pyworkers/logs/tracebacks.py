"""Tracebacks: the text of an exception, plain or, on a terminal with the package rich, with colours.

Used by ``logs`` in every process of a server; it writes nothing.
"""

from __future__ import annotations

import io
import re
import shutil
from importlib.util import find_spec
from typing import Any

from pyworkers.observing.readable import pieces_of
from pyworkers.observing.requests import is_request
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE
from pyworkers.text import printable, shorten

# Characters of a traceback; a longer one is plain, and loses its middle.
_MOST_COLORED = 2 * MAX_ERROR_MESSAGE
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
# Left of it is the indentation.
_NARROWER = 4


class Colored(str):
    """A text without control characters but for colours."""

    __slots__ = ()


def plain(exc_info: Any) -> str:
    """Python's own text of an exception and its causes, without the middle of a message that is too long."""
    return "".join(shorten(piece, MAX_ERROR_MESSAGE) for piece in pieces_of(exc_info)).rstrip("\n")


def colored(exc_info: Any) -> str:
    """The text as rich writes it, with the code around each line; plain if that is not possible."""
    if find_spec("rich") is None or sum(map(len, pieces_of(exc_info))) > _MOST_COLORED:
        return plain(exc_info)
    try:
        return Colored("\n".join(map(_safe, _rendered(exc_info).splitlines())))
    except BaseException as error:  # a broken __repr__, or another release of rich
        if is_request(error):
            raise
        return plain(exc_info)


def _rendered(exc_info: Any) -> str:
    # Imported at the first exception on a terminal.
    from rich.console import Console
    from rich.traceback import Traceback

    shown, width = io.StringIO(), shutil.get_terminal_size().columns - _NARROWER
    console = Console(file=shown, force_terminal=True, color_system="standard", width=max(width, 40))
    console.print(Traceback.from_exception(*exc_info, width=None, word_wrap=True, max_frames=20))
    return shown.getvalue()


def _safe(line: str) -> str:
    parts = _COLOR.split(line)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts)).rstrip()
