"""Predecessor: the server that this one replaces.

Used in a new master, before and while it starts; ``successor.py`` is the other side. It imports little,
because the fork server starts after it. It never ends the other server, which stops when this one is ready.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from types import TracebackType
from typing import Self

from pyworkers.errors import AppImportError, ConfigError, PyworkersError

VARIABLE = "PYWORKERS_UPGRADE"
"""``STDERR LISTENER BIND``: two descriptors, the second -1 for none, and the address of the HTTP endpoint."""
READY = b"\0"
"""Written to the pipe by a server that fetches. Everything else in the pipe is text for the log."""


class Predecessor:
    """The pipe to the earlier server, which is this process' stderr until now, and its listening socket."""

    def __init__(self, stderr: int, listener: int, bind: str) -> None:
        """Use ``stderr`` as stderr. Raises OSError."""
        self._listener = listener
        self._bind = bind
        # No child may hold these.
        self._pipe = os.dup(2)
        os.dup2(stderr, 2)
        os.close(stderr)
        if listener >= 0:
            os.set_inheritable(listener, False)

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Predecessor | None:
        """The predecessor that the environment names, once; None for a server that replaces none.

        Raises ConfigError if the variable was not set by a server.
        """
        # Programs that jobs start must not have it.
        text = environment.pop(VARIABLE, None)
        if text is None:
            return None
        try:
            stderr, listener, bind = text.split(" ", 2)
            return cls(int(stderr), int(listener), bind)
        except (ValueError, OSError) as error:
            hint = "only a server sets it, for the one that replaces it"
            raise ConfigError(f"invalid value {text!r}", hint=hint, location=VARIABLE) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Report the error that ends this server, unless it was ready."""
        if error is not None:
            self._write(_text(error).encode(errors="backslashreplace"))
        self._close()

    def listener(self, bind: str) -> int | None:
        """The descriptor of its listening socket if that has this address; the caller owns it."""
        if self._listener < 0 or bind != self._bind:
            return None
        listener, self._listener = self._listener, -1
        return listener

    def ready(self) -> None:
        """Have it stop. Nothing happens if it has ended."""
        self._write(READY)
        self._close()

    def _write(self, data: bytes) -> None:
        with suppress(OSError):
            os.write(self._pipe, data)

    def _close(self) -> None:
        for fd in (self._pipe, self._listener):
            if fd >= 0:
                os.close(fd)
        self._pipe = self._listener = -1


def _text(error: BaseException) -> str:
    if isinstance(error, PyworkersError):
        text = error.traceback.rstrip() if isinstance(error, AppImportError) else ""
        return "\n".join(filter(None, (text, f"Error: {error}")))
    return "".join(traceback.format_exception(error))
