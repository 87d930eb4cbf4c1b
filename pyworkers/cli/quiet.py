"""``pyworkers quiet``: let servers take no more jobs. Run by people and by deployments."""

from __future__ import annotations

from pyworkers.api import Process
from pyworkers.cli.servers import steering_command

quiet = steering_command(
    "quiet",
    """Tell servers to take no more jobs.

    What they run goes on; only a restart ends the quiet. IDENTITY is that of `pyworkers processes`, or a
    host, or host:pid. Asks first with --all.

    \b
    Example: pyworkers quiet web-1:4711
    """,
    "Quiet",
    Process.quiet,
)
