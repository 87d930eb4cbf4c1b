"""``pyworkers scheduled``: the jobs for later. Run by people and scripts."""

from __future__ import annotations

from pyworkers.cli.jobsets import make_group
from pyworkers.cli.listing import SCHEDULED

scheduled = make_group(
    SCHEDULED,
    """Show the jobs for later, run them now, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers scheduled retry 1f4a…
    """,
)
