"""``pyworkers top``: a live screen. Run by people; reads only."""

from __future__ import annotations

import shutil
import sys
import time

import click

from pyworkers.api import ProcessSet, Stats, WorkSet
from pyworkers.api.target import admin_of
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.screen import Sample, frame
from pyworkers.cli.text import fit, printable
from pyworkers.config.fields import mask_url
from pyworkers.errors import PyworkersError
from pyworkers.store.admin import Admin
from pyworkers.store.search import Search

_PATIENCE_S = 0.3
# What the screen may stand still for, twice a minute.
_SEARCH_S = 0.2


@click.command()
@click.option("--once", is_flag=True, help="Print one frame, and end.")
@click.option(
    "--interval",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=2.0,
    show_default=True,
    help="Time between two looks.",
)
@config_options
def top(source: Source, once: bool, interval_s: float) -> None:
    """Watch queues, servers and running jobs; q quits.

    \b
    Example: pyworkers top --interval 1
    """
    admin = admin_of(source.redis())
    if once:
        columns = shutil.get_terminal_size().columns
        for line in frame(
            _sample(admin, ProcessSet(admin), Search(admin)), None, _title(admin), columns, None
        ):
            click.echo(line.rstrip())
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _watch(admin, interval_s)
    else:
        raise click.UsageError("Here is no terminal: --once prints one frame.")


def _sample(admin: Admin, servers: ProcessSet, search: Search, timeout_s: float = 1.5) -> Sample:
    servers.refresh(timeout_s)
    return Sample(time.time(), Stats.fetch(admin, search=search), list(WorkSet(admin)))


def _title(admin: Admin) -> str:
    return printable(f"pyworkers top  {mask_url(admin.config.url)} {admin.config.namespace}".rstrip())


def _watch(admin: Admin, interval_s: float) -> None:
    from pyworkers.cli.terminal import Screen

    screen, servers = Screen(), ProcessSet(admin)
    before: Sample | None = None
    sample: Sample | None = None
    trouble = ""
    due = 0.0
    search = Search(admin, _SEARCH_S)
    with screen.held():
        while True:
            if time.monotonic() >= due:
                try:
                    # The first frame must be right; the others must not make a key wait.
                    fresh = _sample(admin, servers, search, _PATIENCE_S if sample else 1.5)
                    before, sample, trouble = sample, fresh, ""
                except PyworkersError as error:
                    trouble = printable(f"Trying again: {error.message}")
                due = time.monotonic() + interval_s
            screen.draw(_lines(sample, before, _title(admin), trouble, *screen.size()))
            if screen.wait(due - time.monotonic()) in ("q", "Q"):
                return


def _lines(
    sample: Sample | None, before: Sample | None, title: str, trouble: str, columns: int, lines: int
) -> list[str]:
    """One frame; in trouble, what was seen last, under a line that says so."""
    if sample is None:
        return [fit(title, columns), fit(trouble, columns)]
    clock = time.strftime("%H:%M:%S  q quits ", time.localtime(sample.at))
    headline = fit(title, max(0, columns - len(clock))) + clock
    shown = frame(sample, before, headline, columns, max(1, lines - bool(trouble)))
    return [shown[0], fit(trouble, columns), *shown[1:]] if trouble else shown
