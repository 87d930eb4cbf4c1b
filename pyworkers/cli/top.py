"""``pyworkers top``: live view of queues, servers and running jobs. Run by people; reads only."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from pyworkers.api import ProcessSet, ProcessView, QueueStats, Search, Stats, Work, WorkSet
from pyworkers.api.columns import Column
from pyworkers.api.groups import GROUP
from pyworkers.api.processes import SERVER
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.running import WORK
from pyworkers.api.target import Admin, admin_of
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output import tables
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.tables import TableColumn
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import Located, Target, Targets, located
from pyworkers.cli.text import fit, printable
from pyworkers.config.checks import mask_url
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.flow.counted import INCIDENTS

R = TypeVar("R")
Order = Callable[[R], Any] | None
_PATIENCE_S, _LONGEST_S = 0.3, 1.5
# The longest time that a search stops the screen, twice a minute.
_SEARCH_S = 0.2
_QUEUES = QUEUE.shown("name", "size", "latency_s", "in_progress", "state")
_GROUPS = GROUP.shown("group", "mode", "servers", "processes", "busy", "concurrency", "spelled")
_PROCESSES = SERVER.shown(
    "identity", "started_at", "busy", "concurrency", "rss_kb", "beat", "state", "queues"
)
_WORKS = WORK.shown("run_at", "jid", "queue", "class", "thread", "identity")
# Blank line, header, and one row of each section.
_LEAST_PER_SECTION = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """The data of one frame of one Redis, read at one time (epoch seconds)."""

    at: float
    stats: Stats
    works: Sequence[Work]


@dataclass(frozen=True, slots=True)
class View:
    """The first line of every frame, and the form of its times."""

    title: str
    times: Times


class Watched:
    """One Redis on the screen: its last two samples, and why there is none of now."""

    def __init__(self, target: Target) -> None:
        self._admin = admin_of(target.config)
        self._servers, self._search = ProcessSet(self._admin), Search(self._admin.keys, _SEARCH_S)
        self.redis = target.label
        self.before: Sample | None = None
        self.sample: Sample | None = None
        self.trouble = ""

    def look(self) -> None:
        """Take a sample; after an error, keep the one before."""
        # The first frame waits for current numbers; a later one must not delay a key.
        patience_s = _PATIENCE_S if self.sample else _LONGEST_S
        try:
            fresh = _sample(self._admin, self._servers, self._search, patience_s)
            self.before, self.sample, self.trouble = self.sample, fresh, ""
        except PyworkersError as error:
            self.trouble = printable(f"Retrying{f' {self.redis}' if self.redis else ''}: {error.message}")


@click.command()
@click.option("--once", is_flag=True, help="Print one frame and exit.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@json_option
@utc_option
@redis_options
def top(source: ConfigOptions, once: bool, interval_s: float, as_json: bool, times: Times) -> None:
    """Watch queues, servers and running jobs; q quits.

    --json prints the numbers once, as --once does. Of several Redis servers, all are shown, or the one of
    --redis.

    \b
    Example: pyworkers top --interval 1
    """
    targets = source.targets()
    if once or as_json:
        _print_once(targets, times, as_json)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _watch(list(targets), interval_s, times)
    else:
        raise click.UsageError("stdin or stdout is not a terminal: pass --once to print one frame.")


def _print_once(targets: Targets, times: Times, as_json: bool) -> None:
    read = targets.gather(_sample_once)
    if as_json:
        targets.print_json(read, _as_dict)
    elif read:
        shown = read if targets.several else [Located("", one.item) for one in read]
        width = shutil.get_terminal_size().columns
        for line in frame(shown, {}, View(_title(targets), times), width, None):
            click.echo(line.rstrip())


def _sample_once(redis: RedisConfig) -> Sample:
    admin = admin_of(redis)
    return _sample(admin, ProcessSet(admin), Search(admin.keys), _LONGEST_S)


def _sample(admin: Admin, servers: ProcessSet, search: Search, timeout_s: float) -> Sample:
    servers.refresh(timeout_s)
    stats = Stats.fetch(admin, search=search)
    return Sample(stats.now, stats, list(WorkSet(admin)))


def _as_dict(sample: Sample) -> dict[str, Any]:
    works = [work.as_dict() for work in sample.works]
    return {"at": sample.at, **sample.stats.as_dict(), "workers": works}


def _title(targets: Iterable[Target]) -> str:
    addresses = ((one.label, mask_url(one.config.url), one.config.namespace) for one in targets)
    words = (printable(" ".join(filter(None, parts))) for parts in addresses)
    return "  ".join(["pyworkers top", *words])


def _watch(targets: Sequence[Target], interval_s: float, times: Times) -> None:
    from pyworkers.cli.terminal import Screen

    screen, view = Screen(), View(_title(targets), times)
    watched = [Watched(target) for target in targets]
    due = 0.0
    with screen.held():
        while True:
            if time.monotonic() >= due:
                for one in watched:
                    one.look()
                due = time.monotonic() + interval_s
            screen.draw(_lines(watched, view, *screen.size()))
            if screen.wait(due - time.monotonic()) in ("q", "Q"):
                return


def _lines(watched: Sequence[Watched], view: View, columns: int, lines: int) -> list[str]:
    """The lines of one frame; after an error, the error above the previous frame."""
    samples = [Located(one.redis, one.sample) for one in watched if one.sample is not None]
    troubles = [fit(one.trouble, columns) for one in watched if one.trouble]
    if not samples:
        return [fit(view.title, columns), *troubles]
    clock = time.strftime("%H:%M:%S  q quits ", time.localtime(samples[-1].item.at))
    headline = fit(view.title, max(0, columns - len(clock))) + clock
    titled = replace(view, title=headline)
    before = {one.redis: one.before for one in watched if one.before is not None}
    shown = frame(samples, before, titled, columns, max(1, lines - len(troubles)))
    return [shown[0], *troubles, *shown[1:]]


def frame(
    samples: Sequence[Located[Sample]],
    before: Mapping[str, Sample],
    view: View,
    width: int,
    height: int | None,
) -> list[str]:
    """The lines of a frame of one or several Redis servers, each as wide as the screen.

    ``before``: the samples before, by the names of the servers. ``height`` None: any number of lines.
    """
    head = [view.title]
    for one in samples:
        head += _wrapped(_counts(one, before.get(one.redis)), width)
    form = Form(samples[0].item.at, view.times, brief=True)

    def listed(shown: Sequence[Column[R]], of: Callable[[Sample], Iterable[R]], order: Order[R]) -> list[str]:
        found = [Located(one.redis, record) for one in samples for record in of(one.item)]
        if order is not None:
            found.sort(key=lambda one: order(one.item))
        if any(one.redis for one in samples):
            return _listed(located(shown), found, form, width)
        return _listed(shown, [one.item for one in found], form, width)

    sections = [
        listed(_QUEUES, lambda sample: sample.stats.queues, _fullest),
        listed(_GROUPS, lambda sample: sample.stats.groups, None),
        listed(_PROCESSES, lambda sample: sample.stats.servers, _busiest),
        listed(_WORKS, lambda sample: sample.works, _longest),
    ]
    lines = [*head, *_shared(sections, None if height is None else height - len(head))]
    return [fit(line, width) for line in lines[:height]]


def _counts(one: Located[Sample], before: Sample | None) -> list[str]:
    """The counts of one Redis in words, after its name if there are several."""
    sample = one.item
    # The unusual is shown once it happens.
    counted = sample.stats.counts().items()
    counts = {name: f"{number:,}" for name, number in counted if number or name not in INCIDENTS}
    if before is not None and sample.at > before.at:
        for name in ("processed", "failed"):
            counts[name] += f" ({_rate(name, sample, before):,.0f}/s)"
    named = [f"{one.redis}:"] if one.redis else []
    return [*named, *(f"{name} {text}" for name, text in counts.items())]


def _rate(name: str, sample: Sample, before: Sample) -> float:
    now, then = sample.stats.counts()[name], before.stats.counts()[name]
    return max(0, now - then) / (sample.at - before.at)


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    """The words in as few lines as possible, two blanks apart."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}  {word}" if lines[-1] else word
        if len(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _section(columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    titled = [replace(column, title=column.title.upper()) for column in columns]
    return ["", *tables.lines(titled, rows, width)] if rows else []


def _listed(shown: Sequence[Column[R]], records: Sequence[R], form: Form, width: int) -> list[str]:
    return _section(form.heads(shown), [form.row(shown, record) for record in records], width)


def _shared(sections: Sequence[list[str]], height: int | None) -> list[str]:
    """The lines of all sections, cut to fit: the longest section is cut first."""
    if height is None:
        return [line for section in sections for line in section]
    sizes = [len(section) for section in sections]
    while sum(sizes) > height and max(sizes) > _LEAST_PER_SECTION:
        sizes[sizes.index(max(sizes))] -= 1
    return [line for section, size in zip(sections, sizes, strict=True) for line in _cut(section, size)]


def _cut(section: Sequence[str], size: int) -> list[str]:
    if len(section) <= size:
        return list(section)
    return [*section[: size - 1], f"… {len(section) - size + 1} more"]


def _fullest(queue: QueueStats) -> tuple[int, int, str]:
    return -queue.size, -queue.in_progress, queue.name


def _busiest(server: ProcessView) -> tuple[int, str]:
    return -server.busy, server.identity


def _longest(work: Work) -> tuple[float, str]:
    return work.run_at, work.jid
