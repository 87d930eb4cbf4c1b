"""``pyworkers dead``: the jobs that are not tried again. Run by people and scripts."""

from __future__ import annotations

from pyworkers.cli.jobsets import make_group
from pyworkers.cli.listing import DEAD

dead = make_group(
    DEAD,
    """Show the dead jobs, retry or delete them.

    Without a command, list them.

    \b
    Example: pyworkers dead retry --class SendMail --newer-than 2h
    """,
)
