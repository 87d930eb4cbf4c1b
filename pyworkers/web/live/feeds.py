"""Feeds: the live parts of each page, by the name in their ``data-live``, as HTML without buttons.

A page names its feed in ``data-feed``. Rendered once a second for all viewers of it, of any role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.web.live import batches, cron, limits, overview, queues, running, servers
from pyworkers.web.showing import utc

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

DEFAULT = "overview"
"""The feed of a viewer that names none."""
MOST = 4
"""The feeds of one viewer."""

Feed = Callable[["Reader", Request, str], Mapping[str, str]]
# The name of a feed may go on with its own parameters, after a question mark.
_FEEDS: Mapping[str, Feed] = {
    "overview": overview.parts,
    "queues": queues.parts,
    "servers": servers.parts,
    "server": servers.parts_of_one,
    "running": running.parts,
    "batches": batches.parts,
    "batch": batches.parts_of_one,
    "members": batches.parts_of_members,
    "limits": limits.parts,
    "limit": limits.parts_of_one,
    "cron": cron.parts,
    "entry": cron.parts_of_one,
}


def parts(reader: Reader, request: Request, names: Sequence[str]) -> dict[str, str]:
    """The live parts of these feeds; an unknown one has none."""
    found: dict[str, str] = {}
    for name in names:
        kind, _, parameters = name.partition("?")
        feed = _FEEDS.get(kind)
        if feed is not None and reader.last is not None:
            found.update(feed(reader, request, parameters))
    return found


def banner(away_since: float | None, trouble: str) -> str:
    """The words of the banner; empty if all is well."""
    if away_since is not None:
        # Not how long ago: a reader of the screen says each change of the words.
        exact = utc(away_since)
        at = Markup('<time datetime="{0}" title="{0}">{1} UTC</time>').format(exact, exact[11:19])
        text = Markup("Redis has not answered since {}. The numbers are the last known ones.")
        return str(text.format(at))
    return str(Markup("{}").format(trouble))
