"""Messages to systemd: the state of a server, for services with ``Type=notify``, and pings of its watchdog.

Used in the master. Without ``NOTIFY_SOCKET`` in the environment nothing is sent. No message waits.
https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping

from pyworkers import logs

log = logs.get_logger()


def notify(message: str) -> None:
    """Send lines like ``READY=1``. An error is logged."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    # "@" means the NUL of an abstract socket.
    address = path.replace("@", "\0", 1) if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), address)
    except OSError as error:
        log.warning("systemd.unreachable", message=message, error=str(error))


async def keep_alive(*, is_successor: bool) -> None:
    """Ping the watchdog (``WatchdogSec=``) while the event loop turns; return at once if it is off.

    systemd kills a service without pings. ``is_successor``: the server replaces the one that systemd started.
    """
    interval_s = ping_interval_s(os.environ, os.getpid(), is_successor=is_successor)
    while interval_s is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


def ping_interval_s(environment: Mapping[str, str], pid: int, *, is_successor: bool) -> float | None:
    """Half of the watchdog's time, as sd_watchdog_enabled(3) asks for; None if the watchdog is off.

    ``WATCHDOG_PID`` names the process that pings: the first server, whose successor takes over.
    """
    try:
        time_us = int(environment.get("WATCHDOG_USEC", ""))
        named = int(environment.get("WATCHDOG_PID", pid))
    except ValueError:
        return None
    if time_us <= 0 or not environment.get("NOTIFY_SOCKET"):
        return None
    return time_us / 2e6 if is_successor or named == pid else None
