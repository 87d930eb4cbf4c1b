"""Incarnations: one identity each, with its lease and its store; a lost lease ends one and begins the next.

Runs in the master. Light, because the first identity is needed before the fork server starts.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyworkers import logs
from pyworkers.config.fields import LogConfig

if TYPE_CHECKING:
    from pyworkers.store.store import Store

# Blocked from early in the process until their handlers stand: an early HUP must not end the server.
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGHUP})

log = logs.get_logger()


def make_identity() -> str:
    """``hostname:pid:nonce``, Sidekiq's form; two containers with equal names and pids stay apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


def set_up_logs(config: LogConfig, identity: str) -> None:
    """Log as configured, with the identity in every line."""
    logs.configure(config.level, config.format, identity=identity)


class Incarnation:
    """What a server is under one identity. ``store`` acts in its name."""

    def __init__(self, identity: str, store: Store) -> None:
        self.identity = identity
        self.store = store
        self._renewed_at = -math.inf

    def renewed(self, at: float) -> None:
        """Redis has renewed the lease; ``at`` is when it was asked, in monotonic seconds."""
        self._renewed_at = at

    def holds_lease(self, lease_s: float) -> bool:
        """True if peers still count this server as alive."""
        return time.monotonic() - self._renewed_at < lease_s


class Incarnations:
    """The incarnations of one server. ``on_lost`` is called with the one that was lost, after the change."""

    def __init__(
        self,
        identity: str,
        bind: Callable[[str], Store],
        log_config: LogConfig,
        on_lost: Callable[[Incarnation], None],
    ) -> None:
        self._bind = bind
        self._log_config = log_config
        self._on_lost = on_lost
        self.current = Incarnation(identity, bind(identity))

    def identity(self) -> str:
        """The present identity."""
        return self.current.identity

    def lost(self, identity: str) -> None:
        """A peer has recovered the lists of this identity, and runs its jobs: continue under a new one."""
        earlier = self.current
        if identity != earlier.identity:
            # Said again, by a call that was under way.
            return
        log.error("lease.lost")
        new = make_identity()
        set_up_logs(self._log_config, new)
        self.current = Incarnation(new, self._bind(new))
        self._on_lost(earlier)
