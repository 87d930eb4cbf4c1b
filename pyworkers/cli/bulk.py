"""Bulk actions: select jobs, ask for confirmation, act, and print the result.

A command looks at each job once, and ends with its terminal. A task of the dashboard outlives a request, so
its state is in Redis (``api/browse/work.py``). Both move jobs by ``MOVES`` (``api/browse/actions.py``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import click

from pyworkers.api import DeletionNumbers, JobRecord
from pyworkers.api.actions import result_of
from pyworkers.api.browse.actions import How, JobAction, JobMove, MoveCommand
from pyworkers.api.browse.undo import Deletion
from pyworkers.cli.listing import Jobs, ListedPlace
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import print_json
from pyworkers.cli.selection import Selection
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.portions import portions
from pyworkers.text import counted

T = TypeVar("T")
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """The options of a bulk action."""

    every: bool
    dry_run: bool
    yes: bool
    as_json: bool


@dataclass(slots=True)
class BulkResult:
    """The counts of one action. ``refused`` jobs cannot be moved; ``reason`` is why the last one cannot;
    ``found`` are the named jobs that exist.
    """

    selected: int = 0
    refused: int = 0
    done: int = 0
    reason: str = ""
    found: set[str] = field(default_factory=set)
    undo: dict[str, DeletionNumbers | None] = field(default_factory=dict)
    """The deletions by their ids, one in each Redis: how many jobs can be put back; None: unknown."""

    @property
    def movable(self) -> int:
        """How many of the selected jobs can be moved."""
        return self.selected - self.refused

    def select(self, jid: str) -> None:
        """Count a selected job; ``jid`` is empty unless jobs were named."""
        self.selected += 1
        if jid:
            self.found.add(jid)

    def add_done(self, number: int) -> None:
        """Count jobs that the action has changed."""
        self.done += number

    def add_kept(self, deletions: Mapping[str, DeletionNumbers | None]) -> None:
        """Note how many of the deleted jobs can be put back, by the ids of the deletions."""
        self.undo |= deletions

    def add(self, other: BulkResult) -> None:
        """Count what the same action has done elsewhere."""
        self.selected += other.selected
        self.refused += other.refused
        self.done += other.done
        self.reason = other.reason or self.reason
        self.found |= other.found
        self.add_kept(other.undo)

    def refuse(self, reason: str) -> None:
        """Count a selected job that cannot be moved."""
        self.refused += 1
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on the selected jobs of a place."""

    place: ListedPlace
    jobs: Jobs
    move: JobMove
    command: MoveCommand
    selection: Selection
    redis: RedisConfig
    title: str
    """The place, for people."""
    at: float | None = None
    """The new time of the jobs, in epoch seconds."""
    deletion: str = ""
    """The id with which deleted jobs can be put back."""

    def look(self) -> BulkResult:
        """Count the selected jobs; changes nothing."""
        tally = BulkResult()
        for _ in self._chosen(tally, "Looking"):
            pass
        return tally

    def do(self) -> BulkResult:
        """Perform the action; the audit has the number of jobs also if it is cut off."""
        tally = BulkResult()
        chosen = self._chosen(tally, self.command.verb.capitalize())
        target = f"{self.title}: {self.selection}"
        with noting(self.redis, f"jobs.{self.command.verb}", target, self.deletion) as noted:
            for portion in portions(chosen, self.move.at_once):
                noted.has_changed(tally.done)
                tally.add_done(self.move.act(self.jobs, portion, How(self.at, self.deletion)))
            noted.end(result_of(tally.done))
        if self.deletion and tally.done:
            tally.add_kept(kept_by(self.redis, self.deletion))
        return tally

    def _chosen(self, tally: BulkResult, label: str) -> Iterator[JobRecord]:
        now, may_meet = time.time(), self.selection.filter.sieve()
        for job in self._candidates(label):
            if not may_meet(job.raw):
                continue
            if self.selection.matches(job, self.place.age_s(job, now)) and not self._again(job, now):
                tally.select(job.jid if self.selection.jids else "")
                if reason := self.move.refusal(self.jobs, job):
                    tally.refuse(reason)
                else:
                    yield job

    def _candidates(self, label: str) -> Iterator[JobRecord]:
        """The jobs to check: those with the id if only one is named, else all, with a progress bar."""
        if len(self.selection.jids) == 1:
            return iter(self.jobs.find_jobs(*self.selection.jids))
        return progressing(self.jobs, self.jobs.size, label)

    def _again(self, job: JobRecord, began: float) -> bool:
        """True for a job that this action put into its queue and that has failed since."""
        again = self.move.action is JobAction.RUN and not self.selection.jids
        return again and (job.failed_at or 0.0) > began


def act(deeds: Sequence[Deed], mode: BulkOptions, title: str) -> None:
    """Act on the selected jobs; ask first unless all are named by id. Raises click's errors.

    ``deeds``: the same action in each Redis.
    """
    selection, command = deeds[0].selection, deeds[0].command
    if selection.empty and not mode.every:
        raise click.UsageError(
            "No jobs selected: name ids, pass --class, --queue, --error, --older-than …, or --all."
        )
    if not (mode.dry_run or mode.yes or selection.only_named):
        check_terminal()
        seen = _sum(deed.look() for deed in deeds)
        if seen.movable:
            if warning := deeds[0].move.warning(seen.movable):
                click.echo(warning, err=True)
            ask(f"{command.verb.capitalize()} {counted(seen.movable, 'job')} in {title}?")
        else:
            tell(command, selection, seen, mode)
            return
    done = _sum(deed.look() if mode.dry_run else deed.do() for deed in deeds)
    tell(command, selection, done, mode)
    undone = done.selected > done.done or done.found < selection.jids
    if selection.only_named and not mode.dry_run and undone:
        click.get_current_context().exit(1)


def _sum(results: Iterable[BulkResult]) -> BulkResult:
    whole = BulkResult()
    for result in results:
        whole.add(result)
    return whole


def tell(command: MoveCommand, selection: Selection, tally: BulkResult, mode: BulkOptions) -> None:
    """Print the counts, and why some jobs were not moved."""
    missing = sorted(selection.jids - tally.found)
    gone = 0 if mode.dry_run else tally.movable - tally.done
    if mode.as_json:
        numbers = {"selected": tally.selected, "done": tally.done, "gone": gone, "refused": tally.refused}
        about = {"action": command.verb, **numbers, "missing": missing, "dry_run": mode.dry_run}
        print_json({**about, **undo_facts(tally.undo)})
        return
    if mode.dry_run:
        click.echo(f"would {command.verb} {counted(tally.movable, 'job')}")
    else:
        click.echo(f"{command.done} {counted(tally.done, 'job')}")
        tell_undo(tally.undo)
    if gone:
        click.echo(f"{counted(gone, 'job')} moved elsewhere in the meantime", err=True)
    if tally.refused:
        click.echo(f"{counted(tally.refused, 'job')} cannot be moved: {printable(tally.reason)}", err=True)
    for jid in missing:
        click.echo(f"no such job: {printable(jid)}", err=True)


def kept_by(redis: RedisConfig, deletion: str) -> dict[str, DeletionNumbers | None]:
    """How many jobs of a deletion can be put back, by its id; None if Redis does not say so."""
    try:
        numbers = Deletion(deletion, redis).numbers
    except PyworkersError:
        # The jobs are deleted: an error here must not look like one of the deletion.
        return {deletion: None}
    return {} if numbers is None else {deletion: numbers}


def undo_facts(deletions: Mapping[str, DeletionNumbers | None]) -> dict[str, list[str]]:
    """The ids of the deletions that can be undone, for JSON; empty if there are none."""
    ids = [deletion for deletion, numbers in deletions.items() if numbers is None or numbers.kept]
    return {"undo": ids} if ids else {}


def tell_undo(deletions: Mapping[str, DeletionNumbers | None]) -> None:
    """Print how deleted jobs are put back, and how many are not kept."""
    for deletion, numbers in deletions.items():
        if numbers is None or numbers.kept:
            words = f"`pyworkers undo {deletion}` puts {_them(numbers)} back, for ten minutes"
            click.echo(words, err=True)
        if numbers and numbers.lost:
            lost = counted(numbers.lost, "job")
            click.echo(f"{lost} cannot be put back: there was no room to keep them", err=True)


def _them(numbers: DeletionNumbers | None) -> str:
    if numbers is None:
        return "the kept ones"
    return f"{numbers.kept:,} of them" if numbers.lost else "them"


def check_terminal() -> None:
    """Raise a usage error if stdin is not a terminal: a script must pass ``--yes``."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "Confirmation required, but stdin is not a terminal: pass --yes, or try --dry-run."
        )


def ask(question: str) -> None:
    """Ask for confirmation on stderr; raises click.Abort unless the answer is yes."""
    click.confirm(question, abort=True, err=True)


def progressing(items: Iterable[T], length: int, label: str) -> Iterator[T]:
    """Yield the items, with a progress bar if stderr is a terminal. ``length`` is approximate."""
    with click.progressbar(
        items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield from bar
