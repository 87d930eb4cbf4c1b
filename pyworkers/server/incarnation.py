"""Incarnations: one identity each, with its lease; a lost lease ends one and begins the next.

Runs in the master. It imports little, because the first identity is needed before the fork server starts.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable

from pyworkers import logs
from pyworkers.config.fields import LogConfig

# Blocked early in the process, until their handlers are installed: an early SIGHUP must not end the server.
SIGNALS = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGHUP, signal.SIGUSR2}
)

log = logs.get_logger()


def make_identity() -> str:
    """``hostname:pid:nonce``, Sidekiq's form; the nonce distinguishes containers of equal name and pid."""
    return f"{host_name()}:{os.getpid()}:{secrets.token_hex(6)}"


def host_name() -> str:
    """The name of this machine; bytes of it that are not UTF-8 as escapes, because it is written to Redis."""
    return socket.gethostname().encode(errors="surrogateescape").decode(errors="backslashreplace")


def set_up_logs(config: LogConfig, identity: str) -> None:
    """Log as configured, with the identity in every line."""
    logs.configure(config.level, config.format, identity=identity)


class Incarnation:
    """One identity, the state of its lease, and the queues that Redis has registered for it."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._renewed_at = -math.inf
        self._registered: tuple[str, ...] | None = None

    def renewed(self, at: float, queues: tuple[str, ...]) -> None:
        """Note that Redis has renewed the lease and registered these queues.

        ``at`` is when the renewal was sent, in monotonic seconds.
        """
        self._renewed_at = at
        self._registered = queues

    @property
    def may_fetch(self) -> bool:
        """True once Redis has registered this identity: before, it refuses to hand out jobs."""
        return self._renewed_at > -math.inf

    def is_registered(self, queues: tuple[str, ...]) -> bool:
        """True if exactly these queues were registered at the last renewal."""
        return self._registered == queues

    def unregistered(self) -> None:
        """Note that Redis has lost the registration: the next renewal sends it again."""
        self._registered = None

    def holds_lease(self, lease_s: float) -> bool:
        """True if peers still count this server as alive."""
        return time.monotonic() - self._renewed_at < lease_s


class Incarnations:
    """The incarnations of one server. ``on_lost`` is called with the lost one, after the change.

    The log lines of the server have its identity at the default Redis: elsewhere, ``log_config`` is None.
    """

    def __init__(
        self,
        identity: str,
        log_config: LogConfig | None,
        on_lost: Callable[[Incarnation], None],
    ) -> None:
        self._log_config = log_config
        self._on_lost = on_lost
        self.current = Incarnation(identity)

    def identity(self) -> str:
        """The current identity."""
        return self.current.identity

    def may_fetch(self, identity: str) -> bool:
        """True if this is the current identity, and Redis has registered it."""
        return identity == self.current.identity and self.current.may_fetch

    def log_as(self, config: LogConfig) -> None:
        """Log by this configuration, from now on."""
        if self._log_config is not None:
            self._log_config = config
            set_up_logs(config, self.identity())

    def lost(self, identity: str) -> None:
        """Continue under a new identity: a peer has recovered the lists of this one, and runs its jobs.

        A second report of the same loss, by a call that was under way, changes nothing.
        """
        earlier = self.current
        if identity != earlier.identity:
            return
        log.error("lease.lost")
        new = make_identity()
        if self._log_config is not None:
            set_up_logs(self._log_config, new)
        self.current = Incarnation(new)
        self._on_lost(earlier)
