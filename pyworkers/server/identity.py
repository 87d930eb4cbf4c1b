"""What a server is from its first moment: its identity, its log, and the signals that it will obey."""

from __future__ import annotations

import os
import secrets
import signal
import socket

from pyworkers import logs
from pyworkers.config.fields import LogConfig

# Blocked from early in the process until their handlers stand: an early HUP must not end the server.
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGHUP})


def make_identity() -> str:
    """``hostname:pid:nonce``, Sidekiq's form; two containers with equal names and pids stay apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


def set_up_logs(config: LogConfig, identity: str) -> None:
    """Log as configured, with the identity in every line."""
    logs.configure(config.level, config.format, identity=identity)
