"""``pyworkers jobs``, ``scheduled``, ``retries`` and ``dead``: list, show and change the jobs of one place.

Run by people and scripts. One builder makes all four groups, so that they have the same commands.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from pyworkers.api import JobRecord
from pyworkers.cli.bulk import BulkOptions, Deed, act, ask, check_terminal, count, progressing
from pyworkers.cli.listing import DEAD, QUEUE, RETRIES, SCHEDULED, BulkAction, Jobs, Place, row
from pyworkers.cli.options import Source, config_options, listing_group
from pyworkers.cli.selection import Selection, selection_options
from pyworkers.cli.text import fit, printable, table
from pyworkers.protocol import sealing

_SHOWN = 25
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_YES = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the number of jobs; change nothing.")


def make_group(place: Place, text: str) -> click.Group:
    """The group of a place; ``text`` is its help."""
    commands = {"list": _list(place), "show": _show(place)}
    commands |= {action.verb: _action(place, action) for action in place.actions}
    commands["clear"] = _clear(place)

    arguments = [click.Argument(["queue"])] if place.name == "jobs" else []
    return listing_group(place.name, text, commands, arguments)


def _opened(place: Place, source: Source) -> Jobs:
    parent = click.get_current_context().parent
    queue = parent.params.get("queue", "") if parent is not None else ""
    return place.open(source.redis(), queue)


def _command(name: str, callback: Callable[..., None], text: str) -> click.Command:
    return click.command(name, help=text)(callback)


def _example(place: Place, words: str) -> str:
    where = "jobs mail" if place.name == "jobs" else place.name
    return f"\b\nExample: pyworkers {where} {words}"


def _list(place: Place) -> click.Command:
    @_JSON
    @click.option(
        "--limit", metavar="N", type=click.IntRange(min=0), default=_SHOWN, show_default=True,
        help="Show at most N jobs; 0 for all.",
    )  # fmt: skip
    @selection_options
    @config_options
    def list_jobs(source: Source, selection: Selection, limit: int, as_json: bool) -> None:
        jobs = _opened(place, source)
        now = time.time()
        walk = place.walk(jobs)
        if not limit and not sys.stdout.isatty():
            walk = progressing(walk, jobs.size, "List")
        found = (job for job in walk if selection.matches(job, place.age_s(job, now)))
        shown = islice(found, limit) if limit else found
        if as_json:
            _print_json(job.as_dict() for job in shown)
            return
        lines = _lines(place, shown, now)
        first = next(lines, None)
        if first is None:
            click.echo(f"no {'' if selection.empty else 'matching '}jobs in {_title(place)}", err=True)
            return
        click.echo(first)
        for line in lines:
            click.echo(line)
        if limit and next(found, None) is not None:
            click.echo(f"… more of {jobs.size:,} jobs: --limit 0 shows all", err=True)

    sentence = f"List the jobs, {place.order}."
    age = f"The age of a job is {place.age_is}."
    return _command("list", list_jobs, f"{sentence}\n\n{age}\n\n{_example(place, 'list --class SendMail')}")


def _lines(place: Place, jobs: Iterator[JobRecord], now: float) -> Iterator[str]:
    first = next(jobs, None)
    if first is None:
        return
    rows: Iterator[Sequence[str]] = (row(place, job, now) for job in _chained(first, jobs))
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in table([column.title for column in place.columns], rows):
        yield fit(line, columns).rstrip() if columns else line


def _chained(first: JobRecord, others: Iterator[JobRecord]) -> Iterator[JobRecord]:
    yield first
    yield from others


def _print_json(entries: Iterator[dict[str, Any]]) -> None:
    """Print a JSON list item by item: there may be millions."""
    click.echo("[", nl=False)
    for number, item in enumerate(entries):
        click.echo((",\n " if number else "") + json.dumps(item), nl=False)
    click.echo("]")


def _show(place: Place) -> click.Command:
    @click.argument("jid")
    @_JSON
    @config_options
    def show(source: Source, jid: str, as_json: bool) -> None:
        job = _opened(place, source).find_job(jid)
        if job is None:
            click.echo(f"no such job: {printable(jid)}", err=True)
            click.get_current_context().exit(1)
        click.echo(json.dumps(job.as_dict()) if as_json else "\n".join(_details(job)))

    return _command("show", show, f"Show all fields of a job.\n\n{_example(place, 'show JID')}")


def _details(job: JobRecord) -> Iterator[str]:
    """The fields of the envelope, and the backtrace decompressed."""
    shown = {name: value for name, value in job.data.items() if name != "error_backtrace"}
    if job.data.get(sealing.FIELD) is True:
        shown["args"] = job.args
    score = getattr(job, "score", None)
    if score is not None:
        shown["score"] = score
    names = [printable(name) for name in shown]
    widest = min(max(map(len, names), default=0), 20)
    for name, value in zip(names, shown.values(), strict=True):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name:<{widest}}  {printable(text)}"
    if job.error_backtrace:
        yield "error_backtrace"
        yield from (f"    {printable(line)}" for line in job.error_backtrace)


def _action(place: Place, action: BulkAction) -> click.Command:
    @click.argument("jids", metavar="[JID]...", nargs=-1)
    @click.option("--all", "every", is_flag=True, help="All jobs.")
    @_DRY_RUN
    @_YES
    @_JSON
    @selection_options
    @config_options
    def change(
        source: Source, selection: Selection, every: bool, dry_run: bool, yes: bool, as_json: bool
    ) -> None:
        deed = Deed(place, _opened(place, source), action, selection)
        act(deed, BulkOptions(every, dry_run, yes, as_json), _title(place))

    rule = f"Asks for confirmation unless all jobs are named by id. The age of a job is {place.age_is}."
    example = _example(place, f"{action.verb} --class SendMail --older-than 1d")
    return _command(action.verb, change, f"{action.sentence}\n\n{rule}\n\n{example}")


def _clear(place: Place) -> click.Command:
    @_DRY_RUN
    @_YES
    @_JSON
    @config_options
    def clear(source: Source, dry_run: bool, yes: bool, as_json: bool) -> None:
        jobs = _opened(place, source)
        if not (dry_run or yes):
            check_terminal()
            size = jobs.size
            ask(f"Delete all jobs in {_title(place)} ({count(size) if size else 'none now'})?")
        number = jobs.size if dry_run else jobs.clear()
        if as_json:
            counts = {"selected": number, "done": 0 if dry_run else number}
            click.echo(json.dumps({"action": "clear", **counts, "dry_run": dry_run}))
        else:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {count(number)}")

    return _command("clear", clear, f"Delete all jobs.\n\n{_example(place, 'clear --dry-run')}")


def _title(place: Place) -> str:
    parent = click.get_current_context().parent
    queue = parent.params.get("queue") if parent is not None else None
    return f"queue {printable(queue)}" if queue else place.name


jobs = make_group(
    QUEUE,
    """Show the jobs waiting in QUEUE; kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers jobs mail delete --class SendMail --older-than 1d
    """,
)

scheduled = make_group(
    SCHEDULED,
    """Show scheduled jobs; run them now, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers scheduled retry 1f4a…
    """,
)

retries = make_group(
    RETRIES,
    """Show jobs waiting for a retry; retry, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers retries retry --error ConnectionRefused
    """,
)

dead = make_group(
    DEAD,
    """Show dead jobs; retry or delete them.

    Without a command, list them.

    \b
    Example: pyworkers dead retry --class SendMail --newer-than 2h
    """,
)
