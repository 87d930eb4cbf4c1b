"""Owner: the program that has started this server with ``pyworkers.serve``, at the other end of a socket.

Used in the master; ``serving`` is the other side. The owner sends the configuration, and then nothing more.
The kernel closes the socket when the owner exits or is killed: the server then stops as at SIGTERM.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress

import simplejson

from pyworkers.config.fields import Config
from pyworkers.errors import AppImportError, PyworkersError


class Owner:
    """The socket to the owner."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def config(self) -> Config:
        """The configuration, which the owner sends first. Raises EOFError if it has ended."""
        with self._channel.makefile("rb") as file:
            config: Config = pickle.load(file)
        return config

    def watch(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` when the owner ends; to be called in the event loop."""
        loop = asyncio.get_running_loop()

        def gone() -> None:
            loop.remove_reader(self._channel)
            stop()

        loop.add_reader(self._channel, gone)

    def ready(self) -> None:
        """Tell it that the server runs."""
        self._send({})

    def failed(self, error: PyworkersError) -> None:
        """Tell it why the server does not run."""
        traceback = error.traceback if isinstance(error, AppImportError) else ""
        facts = {"message": error.message, "hint": error.hint, "location": error.location}
        self._send({**facts, "error": type(error).__name__, "traceback": traceback})

    def _send(self, message: dict[str, str]) -> None:
        with suppress(OSError):
            self._channel.sendall(simplejson.dumps(message).encode() + b"\n")
