"""``pyworkers top``: live view of queues, servers and running jobs. Run by people; reads only."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.tables import TableColumn
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import fit, printable
from pyworkers.config.checks import mask_url
from pyworkers.errors import PyworkersError
from pyworkers.protocol.flow.counted import INCIDENTS

R = TypeVar("R")
_PATIENCE_S = 0.3
# The longest time that a search stops the screen, twice a minute.
_SEARCH_S = 0.2
_QUEUES = QUEUE.shown("name", "size", "latency_s", "in_progress", "state")
_GROUPS = GROUP.shown("group", "mode", "servers", "processes", "busy", "concurrency", "spelled")
_PROCESSES = SERVER.shown("identity", "started_at", "busy", "concurrency", "rss_kb", "beat", "state", "takes")
_WORKS = WORK.shown("run_at", "jid", "queue", "class", "thread", "identity")
# Blank line, header, and one row of each section.
_LEAST_PER_SECTION = 3


@dataclass(frozen=True, slots=True)
class Sample:
    """The data of one frame, read at one time (epoch seconds)."""

    at: float
    stats: Stats
    works: Sequence[Work]


@dataclass(frozen=True, slots=True)
class View:
    """The first line of every frame, and the form of its times."""

    title: str
    times: Times


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

    --json prints the numbers once, as --once does.

    \b
    Example: pyworkers top --interval 1
    """
    admin = admin_of(source.redis())
    view = View(_title(admin), times)
    if once or as_json:
        sample = _sample(admin, ProcessSet(admin), Search(admin.keys))
        if as_json:
            works = [work.as_dict() for work in sample.works]
            print_json({"at": sample.at, **sample.stats.as_dict(), "workers": works})
            return
        for line in frame(sample, None, view, shutil.get_terminal_size().columns, None):
            click.echo(line.rstrip())
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _watch(admin, interval_s, view)
    else:
        raise click.UsageError("stdin or stdout is not a terminal: pass --once to print one frame.")


def _sample(admin: Admin, servers: ProcessSet, search: Search, timeout_s: float = 1.5) -> Sample:
    servers.refresh(timeout_s)
    stats = Stats.fetch(admin, search=search)
    return Sample(stats.now, stats, list(WorkSet(admin)))


def _title(admin: Admin) -> str:
    return printable(f"pyworkers top  {mask_url(admin.config.url)} {admin.config.namespace}".rstrip())


def _watch(admin: Admin, interval_s: float, view: View) -> None:
    from pyworkers.cli.terminal import Screen

    screen, servers = Screen(), ProcessSet(admin)
    before: Sample | None = None
    sample: Sample | None = None
    trouble = ""
    due = 0.0
    search = Search(admin.keys, _SEARCH_S)
    with screen.held():
        while True:
            if time.monotonic() >= due:
                try:
                    # The first frame waits for current numbers; a later one must not delay a key.
                    fresh = _sample(admin, servers, search, _PATIENCE_S if sample else 1.5)
                    before, sample, trouble = sample, fresh, ""
                except PyworkersError as error:
                    trouble = printable(f"Retrying: {error.message}")
                due = time.monotonic() + interval_s
            screen.draw(_lines(sample, before, view, trouble, *screen.size()))
            if screen.wait(due - time.monotonic()) in ("q", "Q"):
                return


def _lines(
    sample: Sample | None, before: Sample | None, view: View, trouble: str, columns: int, lines: int
) -> list[str]:
    """The lines of one frame; after an error, the error above the previous frame."""
    if sample is None:
        return [fit(view.title, columns), fit(trouble, columns)]
    clock = time.strftime("%H:%M:%S  q quits ", time.localtime(sample.at))
    headline = fit(view.title, max(0, columns - len(clock))) + clock
    titled = replace(view, title=headline)
    shown = frame(sample, before, titled, columns, max(1, lines - bool(trouble)))
    return [shown[0], fit(trouble, columns), *shown[1:]] if trouble else shown


def frame(sample: Sample, before: Sample | None, view: View, width: int, height: int | None) -> list[str]:
    """The lines of a frame, each as wide as the screen; ``height`` None: any number of lines."""
    stats = sample.stats
    # The unusual is shown once it happens.
    counted = stats.counts().items()
    counts = {name: f"{number:,}" for name, number in counted if number or name not in INCIDENTS}
    if before is not None and sample.at > before.at:
        for name in ("processed", "failed"):
            counts[name] += f" ({_rate(name, sample, before):,.0f}/s)"
    words = [f"{name} {text}" for name, text in counts.items()]
    head = [view.title, *_wrapped(words, width)]
    form = Form(sample.at, view.times, brief=True)
    sections = [
        _listed(_QUEUES, _fullest(stats.queues), form, width),
        _listed(_GROUPS, stats.groups, form, width),
        _listed(_PROCESSES, _busiest(stats), form, width),
        _listed(_WORKS, _longest(sample.works), form, width),
    ]
    lines = [*head, *_shared(sections, None if height is None else height - len(head))]
    return [fit(line, width) for line in lines[:height]]


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


def _fullest(queues: Sequence[QueueStats]) -> list[QueueStats]:
    return sorted(queues, key=lambda queue: (-queue.size, -queue.in_progress, queue.name))


def _busiest(stats: Stats) -> list[ProcessView]:
    return sorted(stats.servers, key=lambda server: (-server.busy, server.identity))


def _longest(works: Sequence[Work]) -> list[Work]:
    return sorted(works, key=lambda work: (work.run_at, work.jid))
