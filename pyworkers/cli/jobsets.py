"""``pyworkers jobs``, ``scheduled``, ``retries`` and ``dead``: list, show and change the jobs of one place.

Run by people and scripts. One builder makes all four groups, so that they have the same commands.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import click

from pyworkers.api import Deletion, DeletionNumbers, JobRecord, Queue, Stats, browse
from pyworkers.api.actions import result_of
from pyworkers.api.browse.actions import JobAction, JobMove, MoveCommand
from pyworkers.api.editing import EditableJob
from pyworkers.cli.bulk import (
    BulkOptions,
    Deed,
    act,
    ask,
    check_terminal,
    kept_by,
    progressing,
    tell_undo,
    undo_facts,
    yes_option,
)
from pyworkers.cli.listing import (
    DEAD,
    QUEUE,
    RETRIES,
    SCHEDULED,
    Jobs,
    ListedPlace,
)
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.auditing import note, noting
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_action, print_json, print_list
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.params import parse_args, reads, time_in, time_options
from pyworkers.cli.selection import Selection, selection_options
from pyworkers.cli.targets import Target, Targets, found_in
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import sealing, timestamps
from pyworkers.protocol.options import suggestion
from pyworkers.text import counted

_SHOWN = 25
# A search among more jobs says so also if it has looked at all.
_FEW = 1000
_LONGEST_TEXT = 1000
# The fields that hold a time, in any form of any program.
_MOMENTS = ("at", "created_at", "enqueued_at", "expiry", "failed_at", "retried_at")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print the number of jobs; change nothing.")


def make_group(place: ListedPlace, text: str) -> click.Group:
    """The group of a place; ``text`` is its help."""
    commands = {"list": _list(place), "show": _show(place)}
    commands |= {command.verb: _move(place, move, command) for move, command in place.moves}
    commands["edit"] = _edit(place)
    commands["clear"] = _clear(place)

    arguments = [click.Argument(["queue"])] if place.name == "jobs" else []
    return listing_group(place.name, text, commands, arguments)


def _queue() -> str:
    """The queue that the command names; empty for a set."""
    parent = click.get_current_context().parent
    return parent.params.get("queue") or "" if parent is not None else ""


def _targets(source: ConfigOptions) -> Targets:
    """The Redis of the queue; for a set, all."""
    return source.target_of(_queue()) if _queue() else source.targets()


def _unknown(source: ConfigOptions) -> str:
    """The end of a sentence about a queue that no server serves and no job was pushed to; else empty."""
    name = _queue()
    if not name or Queue(name, source.redis_of(name)).size:
        return ""
    known = [queue.name for queue in Stats.fetch(source.redis_of(name)).queues]
    if name in known:
        return ""
    near = printable(suggestion(name, known))
    return f", which is not known; {near or '`pyworkers queues` shows all'}"


def _command(name: str, callback: Callable[..., None], text: str) -> click.Command:
    return click.command(name, help=text)(callback)


def _example(place: ListedPlace, words: str) -> str:
    where = "jobs mail" if place.name == "jobs" else place.name
    return f"\b\nExample: pyworkers {where} {words}"


def _list(place: ListedPlace) -> click.Command:
    @json_option
    @click.option(
        "--limit", metavar="N", type=click.IntRange(min=0), default=_SHOWN, show_default=True,
        help="Show at most N jobs; 0 for all.",
    )  # fmt: skip
    @utc_option
    @selection_options
    @redis_options
    def list_jobs(
        source: ConfigOptions, selection: Selection, limit: int, as_json: bool, times: Times
    ) -> None:
        now = time.time()
        targets = _targets(source)
        lists = [(target, _List(place, target, selection, limit)) for target in targets]
        shown = chain.from_iterable(targets.rows(target, one) for target, one in lists)
        if as_json:
            print_list(targets.as_dicts(shown, lambda job: job.as_dict()))
        elif (first := next(shown, None)) is not None:
            form = Form(now, times, longest=_LONGEST_TEXT)
            targets.show(form, place.columns, chain([first], shown))
        elif lists:
            kind = "jobs" if selection.empty else "matching jobs"
            click.echo(f"no {kind} in {_title(place)}{_unknown(source)}", err=True)
        for _, one in lists:
            one.tell(as_json)

    sentence = f"List the jobs, {place.order}."
    age = f"The age of a job is {place.age_is}."
    return _command("list", list_jobs, f"{sentence}\n\n{age}\n\n{_example(place, 'list --class SendMail')}")


def _walk(place: ListedPlace, jobs: Jobs, limit: int) -> Iterator[JobRecord]:
    """The jobs in their order, with a progress bar if all are listed into a pipe."""
    walk = place.walk(jobs)
    return walk if limit or sys.stdout.isatty() else progressing(walk, jobs.size, "List")


class _List:
    """At most ``limit`` of the selected jobs of a place in one Redis; 0: all of them."""

    def __init__(self, place: ListedPlace, target: Target, selection: Selection, limit: int) -> None:
        self._label = target.label
        self._jobs = place.open(target.config, _queue())
        self._limit = limit
        self._search = None if selection.empty else _SelectedJobs(place, self._jobs, selection, target.config)
        self._found = iter(_walk(place, self._jobs, limit) if self._search is None else self._search)
        self._shown = 0

    def __iter__(self) -> Iterator[JobRecord]:
        for job in islice(self._found, self._limit or None):
            self._shown += 1
            yield job

    def tell(self, as_json: bool) -> None:
        """Say how far it has looked, or that there are more jobs."""
        where = f" in {self._label}" if self._label else ""
        if self._search is not None:
            self._search.tell(where)
        elif not as_json and self._shown and self._limit and next(self._found, None) is not None:
            click.echo(f"… more of {self._jobs.size:,} jobs{where}: --limit 0 shows all", err=True)


class _SelectedJobs:
    """The selected jobs of a place in its order, which Redis finds; how far it has looked."""

    def __init__(self, place: ListedPlace, jobs: Jobs, selection: Selection, redis: RedisConfig) -> None:
        self._place = place
        self._jobs = jobs
        self._selection = selection
        self._browse = browse.Jobs(redis)
        self._looked_at = 0
        self._total = 0

    def __iter__(self) -> Iterator[JobRecord]:
        where = self._place.searched(self._jobs)
        now = time.time()
        for stretch in self._browse.stretches(where, self._selection.filter):
            self._total = stretch.total
            for row in stretch.rows:
                self._looked_at = row.index + 1
                if (whole := self._browse.whole(where, row)) is not None:
                    job = self._place.record(self._jobs, whole)
                    if self._selection.matches(job, self._place.age_s(job, now)):
                        yield job
            self._looked_at = stretch.looked_at

    def tell(self, where: str) -> None:
        """Say how far it has looked, unless that is all of a few jobs."""
        if self._looked_at < self._total:
            looked = f"{self._looked_at:,} of {counted(self._total, 'job')}{where}"
            click.echo(f"looked at {looked}: --limit 0 looks at all", err=True)
        elif self._total > _FEW:
            click.echo(f"looked at all {counted(self._total, 'job')}{where}", err=True)


def _show(place: ListedPlace) -> click.Command:
    @click.argument("jid")
    @json_option
    @utc_option
    @redis_options
    def show_job(source: ConfigOptions, jid: str, as_json: bool, times: Times) -> None:
        target, job = _job(source, place, jid)
        if as_json:
            lines = {"backtrace": job.error_backtrace} if job.error_backtrace else {}
            print_json({**target.as_dict(), **job.as_dict(), **lines})
        else:
            click.echo("\n".join(_details(job, times)))

    return _command(
        "show",
        show_job,
        f"Show all fields of a job, and the traceback of its last error.\n\n{_example(place, 'show JID')}",
    )


def _job(source: ConfigOptions, place: ListedPlace, jid: str) -> tuple[Target, EditableJob]:
    """The Redis that has the job, and the job; ends the command with 1 if none has it."""

    def find(redis: RedisConfig) -> EditableJob | None:
        return place.open(redis, _queue()).find_job(jid)

    return found_in(_targets(source).first(find), f"no such job: {printable(jid)}")


def _details(job: JobRecord, times: Times) -> Iterator[str]:
    """The fields of the envelope, and the backtrace decompressed."""
    now = time.time()
    shown = {name: value for name, value in job.data.items() if name != "error_backtrace"}
    if job.data.get(sealing.FIELD) is True:
        shown["args"] = job.args
    score = getattr(job, "score", None)
    if score is not None:
        shown["score"] = score
    names = [printable(name) for name in shown]
    widest = min(max(map(len, names), default=0), 20)
    for name, value in zip(names, shown.values(), strict=True):
        # A score is in seconds, however large; large times in the envelope are milliseconds.
        moment = score if name == "score" else timestamps.read(value) if name in _MOMENTS else None
        if moment is not None:
            text = times.full(moment, now)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{name:<{widest}}  {printable(text)}"
    if job.error_backtrace:
        yield "error_backtrace"
        yield from (f"    {printable(line)}" for line in job.error_backtrace)


def _new_time(move: JobMove) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the options of a new time if the move needs one."""
    return time_options("After this time, e.g. 2h.") if move.fields else lambda command: command


def _time_of(**times: float | None) -> float:
    if (due := time_in(**times)) is None:
        raise click.UsageError("Pass the new time, by either --in or --at.")
    return due


def _move(place: ListedPlace, move: JobMove, command: MoveCommand) -> click.Command:
    @click.argument("jids", metavar="[JID]...", nargs=-1)
    @_new_time(move)
    @click.option("--all", "every", is_flag=True, help="All jobs.")
    @_DRY_RUN
    @yes_option
    @json_option
    @selection_options
    @redis_options
    def change(
        source: ConfigOptions, /, selection: Selection, every: bool, dry_run: bool, yes: bool, as_json: bool,
        **times: float | None,
    ) -> None:  # fmt: skip
        at = _time_of(**times) if move.fields else None
        queue, title = _queue(), _title(place)
        deeds = [
            Deed(
                place,
                place.open(config, queue),
                move,
                command,
                selection,
                config,
                title,
                at,
                _deletion(config, move),
            )
            for _, config in _targets(source)
        ]
        act(deeds, BulkOptions(every, dry_run, yes, as_json), title)

    rule = f"Asks for confirmation unless all jobs are named by id. The age of a job is {place.age_is}."
    options = "--in 2h --class SendMail" if move.fields else "--class SendMail --older-than 1d"
    example = _example(place, f"{command.verb} {options}")
    return _command(command.verb, change, f"{command.about}\n\n{rule}\n\n{example}")


def _edit(place: ListedPlace) -> click.Command:
    @click.argument("jid")
    @click.argument("args", metavar="[JSON_ARGS]", required=False, callback=reads(parse_args))
    @time_options("Run it after this time, e.g. 2h.")
    @click.option("--copy", is_flag=True, help="Enqueue a changed copy instead, and print its id.")
    @json_option
    @redis_options
    def edit(
        source: ConfigOptions, /, jid: str, args: list[Any] | None, copy: bool, as_json: bool,
        **times: float | None,
    ) -> None:  # fmt: skip
        due = time_in(**times)
        if not copy and args is None and due is None:
            raise click.UsageError("Pass the new arguments as JSON, or the new time by --in or --at.")
        target, job = _job(source, place, jid)
        keys = source.load().encryption.keys or None
        try:
            if copy:
                _print_copy(target.config, job, job.enqueue_copy(args, due, encryption=keys), as_json)
            else:
                _print_edited(target.config, job, job.edit(args, due, encryption=keys), as_json)
        except BadArgumentError as error:
            raise click.UsageError(str(error)) from error

    text = (
        "Give a job other arguments, another time, or both.\n\n"
        "It keeps its id and its place. A unique job needs the lock of its new arguments, and an encrypted "
        "one is sealed again. Exit code 1 if there is no such job, or if a server has taken it: then nothing "
        "is changed."
    )
    example = _example(place, "edit JID '[7, \"hello\"]'")
    return _command("edit", edit, f"{text}\n\n{example}")


def _print_edited(redis: RedisConfig, job: EditableJob, edited: bool, as_json: bool) -> None:
    note(redis, "job.edit", job.jid, result_of(edited))
    if as_json:
        print_action("edit", int(edited), jid=job.jid)
    else:
        jid = printable(job.jid)
        click.echo(
            f"edited {jid}" if edited else f"{jid} has just moved: nothing was changed", err=not edited
        )
    if not edited:
        click.get_current_context().exit(1)


def _print_copy(redis: RedisConfig, job: EditableJob, copy: str, as_json: bool) -> None:
    note(redis, "job.copy", job.jid, copy)
    if as_json:
        print_action("copy", 1, jid=copy)
    else:
        click.echo(printable(copy))


def _clear(place: ListedPlace) -> click.Command:
    @_DRY_RUN
    @yes_option
    @json_option
    @redis_options
    def clear(source: ConfigOptions, dry_run: bool, yes: bool, as_json: bool) -> None:
        lists = [(config, place.open(config, _queue())) for _, config in _targets(source)]
        number, undo = sum(jobs.size for _, jobs in lists), dict[str, DeletionNumbers | None]()
        if not (dry_run or yes):
            check_terminal()
            ask(f"Delete all jobs in {_title(place)} ({counted(number, 'job') if number else 'none now'})?")
        if not dry_run:
            cleared = [_cleared(config, jobs, _title(place)) for config, jobs in lists]
            number = sum(done for done, _ in cleared)
            undo = {deletion: numbers for _, kept in cleared for deletion, numbers in kept.items()}
        if as_json:
            facts = undo_facts(undo)
            print_action("clear", 0 if dry_run else number, selected=number, dry_run=dry_run, **facts)
        else:
            click.echo(f"{'would delete' if dry_run else 'deleted'} {counted(number, 'job')}")
            tell_undo(undo)

    return _command("clear", clear, f"Delete all jobs.\n\n{_example(place, 'clear --dry-run')}")


def _cleared(redis: RedisConfig, jobs: Jobs, title: str) -> tuple[int, dict[str, DeletionNumbers | None]]:
    """How many jobs were deleted, and how many of them can be put back, by the id of the deletion."""
    deletion = Deletion(where=redis).id
    with noting(redis, "jobs.clear", f"{title}: all jobs", deletion) as noted:
        noted.has_changed(0)
        number = jobs.clear(deletion=deletion)
        noted.end(result_of(number))
    return number, kept_by(redis, deletion) if number else {}


def _deletion(redis: RedisConfig, move: JobMove) -> str:
    return Deletion(where=redis).id if move.action is JobAction.DELETE else ""


def _title(place: ListedPlace) -> str:
    queue = _queue()
    return f"queue {printable(queue)}" if queue else place.name


jobs = make_group(
    QUEUE,
    """Show the jobs waiting in QUEUE; edit, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers jobs mail delete --class SendMail --older-than 1d
    """,
)

scheduled = make_group(
    SCHEDULED,
    """Show scheduled jobs; run them now, edit, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers scheduled retry 1f4a…
    """,
)

retries = make_group(
    RETRIES,
    """Show jobs waiting for a retry; retry, edit, kill or delete them.

    Without a command, list them.

    \b
    Example: pyworkers retries retry --error ConnectionRefused
    """,
)

dead = make_group(
    DEAD,
    """Show dead jobs; retry, edit or delete them.

    Without a command, list them.

    \b
    Example: pyworkers dead retry --class SendMail --newer-than 2h
    """,
)
