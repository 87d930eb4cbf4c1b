"""Reader: reads Redis once a second while there are viewers, however many, and not at all without any.

Runs in the event loop of the dashboard. Each event is made once for all viewers of the same page.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import simplejson
from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api import Problem, Stats
from pyworkers.api.causes import Cause, causes_in, read_muted, with_muted
from pyworkers.api.deploys import Deploy
from pyworkers.api.metrics import MetricsPart, read_last_hours
from pyworkers.api.problems import read_unsafe
from pyworkers.api.processes import request_numbers
from pyworkers.api.stats import read_stats
from pyworkers.api.target import Operation
from pyworkers.api.thresholds import problems_above, read_thresholds
from pyworkers.config.thresholds import Threshold, in_force
from pyworkers.errors import BadArgumentError, PyworkersError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.web.leaving import is_leaving
from pyworkers.web.live.counts import counts_of
from pyworkers.web.live.samples import Samples
from pyworkers.web.live.watched import Latest, WatchList
from pyworkers.web.roots import root_of
from pyworkers.web.several import ALL, sites_of
from pyworkers.web.showing import exact, shown
from pyworkers.web.site import Site

T = TypeVar("T")

_EVERY_S = 1.0
# How late a server that stops is noticed.
_LEAVING_S = 0.1
MINUTE_S = 60.0
"""Charts are read this often: servers note the gauges, and count, by minutes."""
# Servers write their numbers each second for ten after a request.
_ASK_S = 5.0
_UNSAFE_S = 60.0
# The counts in the navigation of a page that is loaded.
_RECENT_S = 10.0


class Reader:
    """What all viewers of one dashboard see, and when it was read."""

    def __init__(self, site: Site, feeds: Mapping[str, Feed], first: Site) -> None:
        """``feeds``: the live parts of the pages, by the names in their ``data-feed``.

        ``first``: of several Redis servers the one that has the thresholds for all.
        """
        self._site = site
        self._first = first
        self._feeds = feeds
        self._task: asyncio.Task[None] | None = None
        self._viewers = 0
        self._fresh = asyncio.Event()
        self._samples = Samples()
        self._stats: Stats | None = None
        self._stored: Sequence[Threshold] = ()
        # False until the first read for those who look now: what was read before is older than their pages.
        self._current = False
        self._unsafe: list[Problem] = []
        self._unsafe_at = -math.inf
        self._read_at = -math.inf
        # The last hour and the one before, with the counter of failures when they were read.
        self._hours: tuple[MetricsPart, MetricsPart, int] | None = None
        self._muted: dict[str, int] = {}
        self._asked_at = -math.inf
        self._trouble = ""
        self._deploys: Sequence[Deploy] = ()
        self._events: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self._watched = WatchList()

    @property
    def samples(self) -> Samples:
        """The rates of the last two minutes, as far as there were viewers."""
        return self._samples

    @property
    def last(self) -> Stats | None:
        """The last counts that were read."""
        return self._stats

    @property
    def deploys(self) -> Sequence[Deploy]:
        """The deployments that were read last for a chart of hours."""
        return self._deploys

    def note_deploys(self, found: Sequence[Deploy]) -> None:
        """Keep them for the live graph, which is drawn each second, and reads none."""
        self._deploys = found

    def watch(self, feed: str, read: Callable[[Keys], Operation[T]], every_s: float = 0.0) -> Latest[T]:
        """The data of a feed next to the counts: read as long as it is asked for; unknown at first.

        ``every_s``: it is read again when it is older; 0: each second.
        """
        return self._watched.ask(feed, read, every_s)

    async def read(self) -> Stats:
        """The counts now. Raises PyworkersError."""
        self._stats = await self._site.read(read_stats(self._site.keys))
        if self._first is self._site:
            self._stored = self._stats.thresholds
        else:
            # Another Redis has them: one command more. While it is away, the last known ones count.
            with suppress(PyworkersError):
                self._stored = await self._first.read(read_thresholds(self._first.keys))
        self._read_at = time.monotonic()
        self._samples.add(self._stats)
        return self._stats

    async def recent(self) -> Stats:
        """The counts of the last second; without any, the counts of now. Raises PyworkersError."""
        if self._stats is None or time.monotonic() - self._read_at > 2 * _EVERY_S:
            return await self.read()
        return self._stats

    async def causes(self, stats: Stats) -> list[Cause]:
        """The causes in these counts, and in Redis as of the last minute. Raises PyworkersError."""
        if time.monotonic() - self._unsafe_at > _UNSAFE_S:
            self._unsafe = await self._site.read(read_unsafe(self._site.keys))
            await self.read_muted(stats)
            self._hours = (*await self._site.read(read_last_hours(self._site.keys)), stats.failed)
            self._unsafe_at = time.monotonic()
        return self.known_causes(stats)

    async def read_muted(self, stats: Stats) -> None:
        """Read which causes are muted. Raises PyworkersError."""
        codes = list(dict.fromkeys(cause.code for cause in self._causes(stats)))
        self._muted = await self._site.read(read_muted(self._site.keys, codes))

    def known_causes(self, stats: Stats) -> list[Cause]:
        """The causes in these counts, and in Redis as it was read last."""
        return with_muted(self._causes(stats), self._muted)

    def _causes(self, stats: Stats) -> list[Cause]:
        return causes_in(stats, [*self._unsafe, *self.above(stats)])

    @property
    def thresholds(self) -> Sequence[Threshold]:
        """The thresholds in force, as of the last read."""
        return in_force(self._site.settings.thresholds, self._stored)

    def above(self, stats: Stats) -> list[Problem]:
        """What is above the thresholds of the dashboard."""
        hours = self.failed_in_hours(stats)
        return list(problems_above(self.thresholds, stats, hours and hours[0]))

    def failed_in_hours(self, stats: Stats) -> tuple[int, int] | None:
        """The failures of the last hour and of the one before; None if not read yet."""
        if self._hours is None:
            return None
        last, before, failed = self._hours
        return last.failed + max(0, stats.failed - failed), before.failed

    @staticmethod
    def counts_of_pages(readers: Iterable[Reader]) -> dict[str, Markup]:
        """The counts in the navigation, of the Redis servers that answer; none if one was not read lately."""
        there = [reader for reader in readers if reader._site.away_since is None]
        since = time.monotonic() - _RECENT_S
        recent = [(one, one._stats) for one in there if one._stats is not None and one._read_at >= since]
        if not recent or len(recent) < len(there):
            return {}
        return counts_of(*((stats, one.known_causes(stats)) for one, stats in recent))

    @contextmanager
    def viewing(self) -> Iterator[None]:
        """Read while the block runs."""
        if not self._viewers:
            self._current = False
            self._watched.clear()
        self._viewers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._viewers -= 1

    async def close(self) -> None:
        """End the read under way in this event loop: its next command would open another connection."""
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})

    async def next_event(self, request: Request, names: Sequence[str]) -> bytes:
        """The next event of these feeds, of a read that begins after this call; empty if the server stops."""
        if not is_leaving():
            await self._fresh.wait()
        if is_leaving():
            return b""
        key = (root_of(request.scope), tuple(names))
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = self._event(request, names)
        return event

    async def _run(self) -> None:
        due = time.monotonic()
        while self._viewers:
            # A viewer that comes during the read may have a newer page: it waits for the next one.
            fresh, self._fresh = self._fresh, asyncio.Event()
            if is_leaving():
                fresh.set()
                return
            await self._look()
            self._events = {}
            fresh.set()
            due = max(due + _EVERY_S, time.monotonic())
            while (left_s := due - time.monotonic()) > 0 and not is_leaving():
                await asyncio.sleep(min(left_s, _LEAVING_S))

    async def _look(self) -> None:
        try:
            if time.monotonic() - self._asked_at > _ASK_S:
                self._asked_at = time.monotonic()
                if not await self._site.read(request_numbers(self._site.keys)):
                    self._asked_at = math.inf
            await self.causes(await self.read())
            self._current = True
            for watched in self._watched.due():
                # A read that Redis refuses for one page is no trouble of the others.
                with suppress(StoreError, BadArgumentError):
                    watched.add(await self._site.read(watched.read(self._site.keys)))
            self._trouble = ""
        except PyworkersError as error:
            self._trouble = str(error)

    def _event(self, request: Request, names: Sequence[str]) -> bytes:
        stats, since = self._stats if self._current else None, self._site.away_since
        everyone = readers_of(request)
        counts = Reader.counts_of_pages(one for one in everyone.values() if one._current)
        parts = {f"nav:{page}": str(count) for page, count in counts.items()} | self._parts(request, names)
        away = {name: one._trouble for name, one in everyone.items() if one._trouble}
        said = banner_of(away) if sites_of(request).parts else banner(since, self._trouble)
        latest = self._samples.latest
        rates = {"done": latest.done, "failed": latest.failed, "enqueued": latest.enqueued or 0.0}
        content = {
            "at": time.time(),
            "counts": None if stats is None else stats.counts(),
            "rates": {name: round(rate, 1) for name, rate in rates.items()},
            "away": None if since is None else {"since": since},
            "parts": {"away": said, **parts},
        }
        # JSON has no line breaks, which would end the field.
        return f"data: {simplejson.dumps(content)}\n\n".encode()

    def _parts(self, request: Request, names: Sequence[str]) -> dict[str, str]:
        """The live parts of these feeds; an unknown one has none."""
        found: dict[str, str] = {}
        for name in names:
            kind, _, parameters = name.removeprefix(ALL).partition("?")
            feed = self._feeds.get(kind)
            if feed is None:
                continue
            if not name.startswith(ALL):
                found.update(feed(self, request, parameters) if self._current else {})
                continue
            for redis, reader in readers_of(request).items():
                cells = feed(reader, sites_of(request).at(request, redis), parameters)
                found.update({f"{redis}/{cell}": html for cell, html in cells.items() if reader._current})
        return found


Feed = Callable[[Reader, Request, str], Mapping[str, str]]
"""The live parts of a page, by the names in their ``data-live``, as HTML without buttons.

They are rendered once for all viewers of the page, of any role. The name of a feed may go on with its own
parameters, after a question mark.
"""


def reader_of(request: Request) -> Reader:
    """The reader of the Redis whose pages these are."""
    reader: Reader = request.app.state.reader
    return reader


def readers_of(request: Request) -> dict[str, Reader]:
    """The readers of the Redis servers that the pages show, by name: of one, or of all."""
    sites = sites_of(request)
    return {name: part.state.reader for name, part in sites.parts.items()} or {sites.own: reader_of(request)}


def news_of(request: Request, feed: str, read: Callable[[Keys], Operation[T]]) -> dict[str, T]:
    """What the Redis servers that a page shows have for a feed, by name.

    Empty without news, or while one has none.
    """
    sites = sites_of(request)
    there = {name: one for name, one in readers_of(request).items() if sites.by_name[name].away_since is None}
    watched = {name: one.watch(feed, read, MINUTE_S) for name, one in there.items()}
    found = {name: one.value for name, one in watched.items() if one.value is not None}
    return found if len(found) == len(watched) and any(one.is_news() for one in watched.values()) else {}


def banner_of(away: Mapping[str, str]) -> Markup:
    """The words of the banner about the Redis servers that are away, by name, of several."""
    form = Markup("Redis {} is unreachable: {}")
    return Markup(" ").join(form.format(name, shown(error, 500)) for name, error in away.items())


def banner(away_since: float | None, trouble: str) -> str:
    """The words of the banner; empty if all is well."""
    if away_since is not None:
        # Not how long ago: a reader of the screen says each change of the words.
        text = Markup("Redis has not answered since {}. The numbers are the last known ones.")
        return str(text.format(exact(away_since)))
    return str(Markup("{}").format(trouble))
