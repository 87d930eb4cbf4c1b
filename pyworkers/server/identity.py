"""The identity of a server: made anew at each start, never configured."""

from __future__ import annotations

import os
import secrets
import socket

from pyworkers import logs
from pyworkers.config import LogConfig


def make_identity() -> str:
    """``hostname:pid:nonce``, Sidekiq's form; two containers with equal names and pids stay apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(6)}"


def set_up_logs(config: LogConfig, identity: str) -> None:
    """Log as configured, with identity and pid in every line."""
    logs.configure(config.level, config.format, identity=identity, pid=os.getpid())
