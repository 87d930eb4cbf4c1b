"""``pyworkers jobs QUEUE``: the jobs that wait in a queue. Run by people and scripts."""

from __future__ import annotations

from pyworkers.cli.jobsets import make_group
from pyworkers.cli.listing import QUEUE

jobs = make_group(
    QUEUE,
    """Show the jobs that wait in QUEUE, and kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers jobs mail delete --class SendMail --older-than 1d
    """,
)
