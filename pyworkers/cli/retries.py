"""``pyworkers retries``: the failed jobs that wait for their next attempt. Run by people and scripts."""

from __future__ import annotations

from pyworkers.cli.jobsets import make_group
from pyworkers.cli.listing import RETRIES

retries = make_group(
    RETRIES,
    """Show the failed jobs that wait, retry, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers retries retry --error ConnectionRefused
    """,
)
