"""The options that select jobs: by id, class, queue, error and age.

The decision is pure; the options parse the command line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Concatenate, ParamSpec

import click

from pyworkers.api import JobRecord
from pyworkers.api.browse.filter import Filter
from pyworkers.cli.params import parse_duration, reads
from pyworkers.cli.text import exact_duration

P = ParamSpec("P")


@dataclass(frozen=True)
class Selection:
    """The conditions that a selected job meets; None or empty: no condition. Ages are in seconds."""

    jids: frozenset[str] = frozenset()
    job_class: str | None = None
    queue: str | None = None
    batch: str | None = None
    error: str | None = None
    error_like: str | None = None
    older_s: float | None = None
    newer_s: float | None = None

    @property
    def only_named(self) -> bool:
        """True if the only condition is the ids."""
        return bool(self.jids) and Selection(self.jids) == self

    @property
    def empty(self) -> bool:
        """True if every job is selected."""
        return Selection() == self

    def __str__(self) -> str:
        parts = [
            ("class", self.job_class),
            ("queue", self.queue),
            ("batch", self.batch),
            ("error contains", self.error),
            ("error is like", self.error_like),
            ("older than", None if self.older_s is None else exact_duration(self.older_s)),
            ("newer than", None if self.newer_s is None else exact_duration(self.newer_s)),
            ("ids", ", ".join(sorted(self.jids)) or None),
        ]
        return ", ".join(f"{words} {value}" for words, value in parts if value is not None) or "all jobs"

    @functools.cached_property
    def filter(self) -> Filter:
        """A filter that each selected job meets, and perhaps others: Redis finds the jobs by it.

        Not by the queue: the one in a queue is in its key. Nor by a class with ``?`` or ``[``, which
        match more here than there.
        """
        job_class = self.job_class or ""
        return Filter(
            job_class="" if set(job_class) & set("?[") else job_class,
            batch=self.batch or "",
            error=self.error or "",
            error_like=self.error_like or "",
            older_s=self.older_s,
            younger_s=self.newer_s,
        )

    def matches(self, job: JobRecord, age_s: float | None) -> bool:
        """True if a job meets all conditions. A job of unknown age (None) is neither older nor newer."""
        return (
            self.filter.matches(job, age_s)
            and (not self.jids or job.jid in self.jids)
            and (self.job_class is None or fnmatchcase(job.job_class, self.job_class))
            and (self.queue is None or job.queue == self.queue)
        )


_OPTIONS = (
    click.option(
        "--class", "job_class", metavar="CLASS", help="Only jobs of this class; * matches any text."
    ),
    click.option("--queue", metavar="QUEUE", help="Only jobs of this queue."),
    click.option("--batch", metavar="ID", help="Only members of this batch, not of batches inside it."),
    click.option("--error", metavar="TEXT", help="Only jobs whose last error contains this text."),
    click.option(
        "--error-like",
        metavar="ERROR",
        help="Only jobs of this group of errors, as `pyworkers errors` prints it.",
    ),
    click.option(
        "--older-than",
        "older_s",
        metavar="DURATION",
        callback=reads(parse_duration),
        help="Only jobs older than this, e.g. 90s, 2h, 1d12h.",
    ),
    click.option(
        "--newer-than",
        "newer_s",
        metavar="DURATION",
        callback=reads(parse_duration),
        help="Only jobs newer than this.",
    ),
)


def selection_options(command: Callable[Concatenate[Selection, P], None]) -> Callable[..., None]:
    """Add the options that select jobs; the command gets a Selection as its first argument."""

    @functools.wraps(command)
    def with_selection(*args: Any, jids: tuple[str, ...] = (), **others: Any) -> None:
        conditions = {item.name: others.pop(item.name) for item in fields(Selection) if item.name != "jids"}
        command(Selection(frozenset(jids), **conditions), *args, **others)

    decorated: Callable[..., None] = with_selection
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
