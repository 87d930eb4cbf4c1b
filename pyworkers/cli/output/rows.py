"""Rows: the tables of servers and groups. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.cli.output.tables import Column
from pyworkers.cli.output.times import Times
from pyworkers.cli.text import printable
from pyworkers.config.groups import spell_queues

if TYPE_CHECKING:
    from pyworkers.api import GroupStats, ProcessView

PROCESSES = (
    Column("identity"),
    Column("started"),
    Column("busy", right=True),
    Column("of", right=True),
    Column("memory", cut=2, right=True),
    Column("beat"),
    Column("state"),
    Column("queues", cut=1),
)
GROUPS = (
    Column("group", cut=2),
    Column("mode"),
    Column("servers", right=True),
    Column("processes", right=True),
    Column("busy", right=True),
    Column("of", right=True),
    Column("queues", cut=1),
)


def process_row(about: ProcessView, now: float, times: Times) -> tuple[str, ...]:
    """The columns of one server."""
    return (
        printable(about.identity),
        times.cell(about.started_at or None, now),
        str(about.busy),
        str(about.concurrency),
        f"{about.rss_kb / 1024:.0f} MB" if about.rss_kb else "",
        times.cell(about.beat or None, now),
        _process_state(about, now),
        printable(", ".join(about.queues)),
    )


def _process_state(about: ProcessView, now: float) -> str:
    """The state unless it is ``running``; of a stop also the seconds that are left."""
    state = about.state(now)
    if about.stops_at is not None and state == "stopping":
        return f"stopping {max(0, about.stops_at - now):.0f}s"
    if state == "failing":
        return f"failing: {printable(about.failing)}"
    return "" if state == "running" else state


def group_row(group: GroupStats) -> tuple[str, ...]:
    """The columns of one group of queues."""
    queues = spell_queues(tuple(group.queues) if group.strict else group.queues)
    sizes = map(str, (group.servers, group.processes, group.busy, group.concurrency))
    name = f"{group.name} (failing: {group.failing})" if group.failing else group.name
    return printable(name), printable(group.mode), *sizes, printable(queues)
