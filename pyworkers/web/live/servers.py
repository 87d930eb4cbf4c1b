"""The live parts of the pages of servers: the cells that change, and the word that a server is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api import ProcessView, ServerView
from pyworkers.api.processes import state_of
from pyworkers.web import names
from pyworkers.web.paging import ROWS, rank_in
from pyworkers.web.showing import duration, moment, number, shown, size

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

# By state: the class of the word, the word, and its meaning.
_STATES = {
    "running": ("good", "running", ""),
    "quiet": (
        "warn",
        "quiet",
        "It takes no more jobs. Servers of other programs are quiet while they stop, too.",
    ),
    "stopping": ("warn", "stopping", "It takes no more jobs, and ends after those that run."),
    "failing": ("bad", "failing", "A group has no worker and cannot start one: no job of it runs."),
    "older": ("warn", "running, older version", "It knows fewer effects of jobs than this version."),
    "lost": ("bad", "lease lost", "Its lease has expired: it has crashed, or it cannot reach Redis."),
    "silent": ("bad", "silent", "It has written no heartbeat for a minute."),
    "gone": ("bad", "gone", "It has stopped or crashed."),
}
_NOTICES = {
    "gone": "This server is gone: it has stopped or crashed.",
    "lost": "The lease of this server has expired: it has crashed, or it cannot reach Redis. "
    "Its jobs run again on the others.",
}
_MOST_GROUPS = 6
_UNKNOWN = Markup("\N{EN DASH}")


def parts(reader: Reader, _request: Request, parameters: str) -> dict[str, str]:
    """The cells of the servers of one page of the list."""
    stats = reader.last
    if stats is None:
        return {}
    first = rank_in(parse_qs(parameters).get("first", [""])[-1])
    rows = sorted(stats.servers, key=lambda server: server.identity)[first : first + ROWS]
    return {
        f"{names.encode(about.identity)}:{cell}": str(html)
        for about in rows
        for cell, html in cells(_view(about, stats.lost), stats.now).items()
    }


def parts_of_one(reader: Reader, _request: Request, parameters: str) -> dict[str, str]:
    """The cells of one server; ``parameters`` is its name, as it stands in the address."""
    stats, identity = reader.last, names.decode(parameters)
    if stats is None:
        return {}
    found = next((about for about in stats.servers if about.identity == identity), None)
    if found is None:
        gone = {"state": state_word("gone"), "notice": notice("gone", Markup(""))}
        return {f"{parameters}:{cell}": str(html) for cell, html in gone.items()}
    view = _view(found, stats.lost)
    known = cells(view, stats.now)
    known["notice"] = notice(state_of(view, stats.now), known["seen"])
    return {f"{parameters}:{cell}": str(html) for cell, html in known.items()}


def cells(view: ServerView, now: float) -> dict[str, Markup]:
    """The cells of a server that change, by name."""
    about = view.about
    restarts = sum(group.restarts for group in about.groups)
    return {
        "state": state_cell(about, state_of(view, now), now),
        "jobs": escape(f"{number(about.busy)} of {number(about.concurrency)}"),
        "workers": _workers(about),
        "memory": escape(size(about.rss_kb * 1024)) if about.rss_kb else _UNKNOWN,
        "restarts": escape(number(restarts)) if about.groups else _UNKNOWN,
        "seen": moment(about.beat or None, now),
    }


def state_word(state: str) -> Markup:
    """The state of a server as a word with its meaning."""
    kind, word, meaning = _STATES[state]
    return Markup('<span class="{}" title="{}">{}</span>').format(kind, meaning or word, word)


def state_cell(about: ProcessView, state: str, now: float) -> Markup:
    """The state of a server as a word; of a stop also the time that is left."""
    if state == "failing":
        return Markup("{} {}").format(state_word(state), shown(about.failing, 120))
    if about.stops_at is None or state != "stopping":
        return state_word(state)
    return Markup("{}, {} left").format(state_word(state), duration(max(0, about.stops_at - now)))


def notice(state: str, seen: Markup) -> Markup:
    """The words about a server that does not run, with the time of its last sign; else empty."""
    if state not in _NOTICES:
        return Markup("")
    last = Markup(" It was last seen {}.").format(seen) if seen else ""
    return Markup('<p class="flash failed" role="status">{}{}</p>').format(_NOTICES[state], last)


def by_state(counts: Mapping[str, int]) -> Markup:
    """Worker processes by state: ``3 busy, 1 idle``."""
    texts = (Markup("{} {}").format(number(count), shown(state)) for state, count in sorted(counts.items()))
    return Markup(", ").join(texts)


def _workers(about: ProcessView) -> Markup:
    several = len(about.groups) > 1
    lines = (
        Markup("{}: {}").format(shown(group.name, 40), by_state(group.workers))
        if several
        else by_state(group.workers)
        for group in about.groups[:_MOST_GROUPS]
    )
    return Markup("<br>").join(lines)


def _view(about: ProcessView, lost: Sequence[str]) -> ServerView:
    return ServerView(about, registered=True, leased=False if about.identity in lost else None)
