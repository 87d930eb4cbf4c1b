"""Do something with many jobs: select, ask, act, and say what became of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import click

from pyworkers.api import JobRecord, JobSet
from pyworkers.cli.listing import Action, Jobs, Place
from pyworkers.cli.selection import Selection
from pyworkers.cli.text import printable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Mode:
    """How to act."""

    every: bool
    dry_run: bool
    yes: bool
    as_json: bool


@dataclass(slots=True)
class Tally:
    """What came of a command. ``refused`` jobs cannot be moved, for the last ``reason``; ``found`` are the
    named ones that are there.
    """

    selected: int = 0
    refused: int = 0
    done: int = 0
    reason: str = ""
    found: set[str] = field(default_factory=set)

    @property
    def movable(self) -> int:
        """How many of the selected jobs can be moved."""
        return self.selected - self.refused


@dataclass(frozen=True, slots=True)
class Deed:
    """An action on the selected jobs of a place."""

    place: Place
    jobs: Jobs
    action: Action
    selection: Selection

    def look(self) -> Tally:
        """Count what would be done."""
        tally = Tally()
        for _ in self._chosen(tally, "Looking"):
            pass
        return tally

    def do(self) -> Tally:
        """Do it."""
        tally = Tally()
        tally.done = self.action.run(self.jobs, self._chosen(tally, self.action.verb.capitalize()))
        return tally

    def _chosen(self, tally: Tally, label: str) -> Iterator[JobRecord]:
        now = time.time()
        for job in self._candidates(label):
            if self.selection.matches(job, self.place.age_s(job, now)) and not self._again(job, now):
                tally.selected += 1
                if self.selection.jids:
                    tally.found.add(job.jid)
                reason = self._refusal(job)
                if reason:
                    tally.refused += 1
                    tally.reason = reason
                else:
                    yield job

    def _candidates(self, label: str) -> Iterator[JobRecord]:
        """One named job is looked for by Redis; otherwise all are looked at."""
        if len(self.selection.jids) == 1:
            return iter(self.jobs.find_jobs(*self.selection.jids))
        return progressing(self.jobs, self.jobs.size, label)

    def _again(self, job: JobRecord, began: float) -> bool:
        """True for a job that we have put into its queue, and that has failed since."""
        return self.action.to_queue and not self.selection.jids and (job.failed_at or 0.0) > began

    def _refusal(self, job: JobRecord) -> str:
        if self.action.to_queue and isinstance(self.jobs, JobSet):
            return self.jobs.refusal(job)
        return ""


def act(deed: Deed, mode: Mode, title: str) -> None:
    """Act on the selected jobs, after a question unless they are named. Raises click's errors."""
    selection, action = deed.selection, deed.action
    if selection.empty and not mode.every:
        raise click.UsageError("Say which jobs: by id, --class, --queue, --error, --older-than …, or --all.")
    if not (mode.dry_run or mode.yes or selection.only_named):
        check_terminal()
        seen = deed.look()
        if seen.movable:
            ask(f"{action.verb.capitalize()} {count(seen.movable)} in {title}?")
        else:
            tell(action, selection, seen, mode)
            return
    done = deed.look() if mode.dry_run else deed.do()
    tell(action, selection, done, mode)
    undone = done.selected > done.done or done.found < selection.jids
    if selection.only_named and not mode.dry_run and undone:
        click.get_current_context().exit(1)


def tell(action: Action, selection: Selection, tally: Tally, mode: Mode) -> None:
    """Print what happened."""
    missing = sorted(selection.jids - tally.found)
    gone = 0 if mode.dry_run else tally.movable - tally.done
    if mode.as_json:
        numbers = {"selected": tally.selected, "done": tally.done, "gone": gone, "refused": tally.refused}
        about = {"action": action.verb, **numbers, "missing": missing, "dry_run": mode.dry_run}
        click.echo(json.dumps(about))
        return
    if mode.dry_run:
        click.echo(f"would {action.verb} {count(tally.movable)}")
    else:
        click.echo(f"{action.done} {count(tally.done)}")
    if gone:
        click.echo(f"{count(gone)} had gone elsewhere meanwhile", err=True)
    if tally.refused:
        click.echo(f"{count(tally.refused)} cannot be moved: {printable(tally.reason)}", err=True)
    for jid in missing:
        click.echo(f"no such job: {printable(jid)}", err=True)


def count(number: int) -> str:
    """The number of jobs in words."""
    return f"{number:,} {'job' if number == 1 else 'jobs'}"


def check_terminal() -> None:
    """Raise a usage error where nobody sits at the terminal: a script must say ``--yes``."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "This asks before it acts, and here is no terminal: add --yes, or try --dry-run."
        )


def ask(question: str) -> None:
    """Go on only after a yes; raises click.Abort otherwise."""
    click.confirm(question, abort=True, err=True)


def progressing(items: Iterable[T], length: int, label: str) -> Iterator[T]:
    """The items, with a bar on stderr if that is a terminal. ``length`` is about how many there are."""
    with click.progressbar(
        items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()
    ) as bar:
        yield from bar
