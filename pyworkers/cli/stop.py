"""``pyworkers stop``: let servers stop. Run by people and by deployments."""

from __future__ import annotations

from pyworkers.api import Process
from pyworkers.cli.servers import steering_command

stop = steering_command(
    "stop",
    """Tell servers to stop.

    They finish what they run within their shutdown timeout, and put the rest back. IDENTITY is that of
    `pyworkers processes`, or a host, or host:pid. Asks first with --all.

    \b
    Example: pyworkers stop web-1:4711
    """,
    "Stop",
    Process.stop,
)
