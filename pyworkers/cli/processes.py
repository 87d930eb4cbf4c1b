"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from pyworkers.api import ProcessSet, ServerView, Work, WorkSet
from pyworkers.api.processes import PROCESS
from pyworkers.api.running import WORK
from pyworkers.cli.output.listing import Records
from pyworkers.config.fields import RedisConfig


def _servers(redis: RedisConfig) -> list[ServerView]:
    servers = ProcessSet(redis)
    servers.refresh()
    return [process.view for process in sorted(servers, key=attrgetter("identity"))]


def _works(redis: RedisConfig) -> Sequence[Work]:
    ProcessSet(redis).refresh()
    return WorkSet(redis).page().works


processes = Records(
    PROCESS.shown(
        "identity", "started_at", "busy", "concurrency", "rss_kb", "beat", "state", "queues",
        "restarted", "lease",
    ),
    "No servers: none has written a heartbeat in the last minute.",
    PROCESS.as_dict,
).command(
    "processes",
    _servers,
    """Show all servers: their queues and running jobs.

    beat is the time of these numbers: pyworkers servers write them on request, Sidekiq every 5 or 10 seconds.

    \b
    Example: pyworkers processes --json
    """,
)  # fmt: skip
workers = Records(
    WORK.shown("run_at", "jid", "queue", "class", "thread", "identity", "done", "rss_kb"),
    "No running jobs, or they end too soon to be seen.",
).command(
    "workers",
    _works,
    """Show running jobs, the longest first.

    pyworkers servers report their jobs on request; Sidekiq reports them every 5 or 10 seconds.

    \b
    Example: pyworkers workers --json
    """,
    order=attrgetter("run_at"),
)
