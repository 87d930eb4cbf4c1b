"""``pyworkers cancel``: cancels jobs, waiting or running. Run by people and scripts."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from pyworkers.api import BatchSet, WorkSet
from pyworkers.api.batches import result_of_cancel
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.targets import Targets
from pyworkers.cli.text import printable
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.flow.plans import CancelledBatch, CancelledNumbers
from pyworkers.protocol.status import Cancelled
from pyworkers.store.admin import Admin
from pyworkers.store.flow.cancelling import Wanted, cancel_jobs
from pyworkers.text import counted

_SENTENCES = {
    Cancelled.REMOVED: "removed before it started",
    Cancelled.RUNNING: "running; it is asked to end, and killed with its worker if it runs two seconds later",
    Cancelled.ELSEWHERE: "running in {where}: Sidekiq ends it if it is iterable; otherwise it continues",
    Cancelled.UNKNOWN: "not found; servers refuse to start it for one day",
}


@click.command()
@click.argument("jids", metavar="[JID...]", nargs=-1)
@click.option("--batch", "batches", metavar="ID", multiple=True, help="All members of this batch.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="All jobs with this tag.")
@click.option("--class", "classes", metavar="CLASS", multiple=True, help="All jobs of this class.")
@json_option
@redis_options
@click.pass_context
def cancel(
    ctx: click.Context,
    source: ConfigOptions,
    jids: tuple[str, ...],
    batches: tuple[str, ...],
    tags: tuple[str, ...],
    classes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Cancel jobs by their id, batch, tag or class.

    A waiting job is removed from its queue, the scheduled set or the retry set. A running job, on any
    server, is asked to end by JobCancelled; if it still runs two seconds later, its worker is killed. It is
    not retried.

    If Sidekiq runs the job, the command prints where. An iterable job (Sidekiq 7.3) ends as by Sidekiq's
    cancel!; any other job continues, because Sidekiq cannot end it.

    A batch is cancelled with those inside it: its callbacks of success and death do not run, on_cancel runs,
    and it takes no more members. The command may be repeated.

    Exit code 1 if one of the jobs was not found, or runs in Sidekiq; if a batch is unknown or has succeeded;
    if no job has the tag or the class.

    \b
    Examples: pyworkers cancel b4a577edbccf1d805744efa9
              pyworkers cancel --batch c0ffeebccf1d805744efa9d0
              pyworkers cancel --tag tenant:7 --class export
    """
    if not (jids or batches or tags or classes):
        raise click.UsageError("nothing to cancel: name jobs, or use --batch, --tag or --class")
    found = _Cancellation(source.targets())
    for jid in dict.fromkeys(jids):
        found.cancel_job(jid)
    for batch in batches:
        found.cancel_batch(batch)
    for kind, values in (("tag", tags), ("class", classes)):
        for value in values:
            found.cancel_jobs(Wanted(kind, value))
    if as_json:
        print_action("cancel", found.number, **found.as_dict())
    else:
        for line in found.lines:
            click.echo(line)
    if found.missing:
        ctx.exit(1)


class _Cancellation:
    """What one call cancels: jobs by their ids, batches, and jobs by tag and class."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._results: dict[str, Cancelled] = {}
        self._batches: dict[str, dict[str, Any]] = {}
        self._jobs: dict[str, dict[str, dict[str, Any]]] = {}
        self.lines: list[str] = []
        self.number = 0
        """The jobs that were removed or asked to end."""
        self.missing = False
        """True if something that was named cannot be cancelled."""

    def cancel_job(self, jid: str) -> None:
        located = self._targets.first(partial(_cancel, jid))
        result = self._results[jid] = Cancelled.UNKNOWN if located is None else located[1]
        where = ""
        if located is not None and result is Cancelled.ELSEWHERE:
            where = _where(WorkSet(located[0].config), jid)
        self.number += result in (Cancelled.REMOVED, Cancelled.RUNNING)
        self.missing |= result in (Cancelled.UNKNOWN, Cancelled.ELSEWHERE)
        self.lines.append(f"{printable(jid)}: {_SENTENCES[result].format(where=where)}")

    def cancel_batch(self, batch: str) -> None:
        located = self._targets.first(partial(_cancel_batch, batch))
        if located is None:
            self._batches[batch] = {"state": "unknown"}
            self.lines.append(f"batch {printable(batch)}: unknown")
            self.missing = True
            return
        _, found = located
        self._batches[batch] = {"state": "ended" if found.ended else "cancelled", **found.as_dict()}
        self.number += found.removed + found.left
        self.missing |= found.ended
        words = "it has succeeded: nothing is cancelled"
        if not found.ended:
            words = f"cancelled: {counted(found.removed, 'job')} removed, {_left(found.left)}"
        self.lines.append(f"batch {printable(batch)}: {words}")

    def cancel_jobs(self, wanted: Wanted) -> None:
        each = [one.item for one in self._targets.gather(partial(_cancel_jobs, wanted))]
        found = CancelledNumbers(sum(one.removed for one in each), sum(one.running for one in each))
        self._jobs.setdefault(wanted.kind, {})[wanted.value] = found.as_dict()
        self.number += found.removed + found.running
        self.missing |= found == CancelledNumbers(0, 0)
        words = f"{counted(found.removed, 'job')} removed, {_left(found.running)}"
        self.lines.append(f"{wanted.kind} {printable(wanted.value)}: {words}")

    def as_dict(self) -> dict[str, Any]:
        """The members of the JSON; only ``results`` for options that were not given."""
        found = {"batches": self._batches, "tags": self._jobs.get("tag"), "classes": self._jobs.get("class")}
        return {"results": self._results, **{name: facts for name, facts in found.items() if facts}}


def _left(number: int) -> str:
    return f"{number:,} running {'is' if number == 1 else 'are'} asked to end"


def _cancel_batch(batch: str, redis: RedisConfig) -> CancelledBatch | None:
    with noting(redis, "batch.cancel", batch) as noted:
        found = BatchSet(redis).cancel(batch)
        if found is not None:
            noted.end(result_of_cancel(found))
    return found


def _cancel_jobs(wanted: Wanted, redis: RedisConfig) -> CancelledNumbers:
    with noting(redis, "jobs.cancel", f"{wanted.kind} {wanted.value}") as noted:
        admin = Admin(redis)
        found = admin.run(cancel_jobs(admin.keys, wanted))
        noted.end(f"{found.removed} removed, {found.running} running")
    return found


def _cancel(jid: str, redis: RedisConfig) -> Cancelled | None:
    """Cancel a job in one Redis; None if it is not there."""
    with noting(redis, "job.cancel", jid) as noted:
        found = Client.from_config(redis).cancel(jid)
        noted.end(str(found))
    return None if found is Cancelled.UNKNOWN else found


def _where(works: WorkSet, jid: str) -> str:
    """The server and the thread that run a job, as text."""
    work = works.find_work(jid)
    return f"{printable(work.identity)}, thread {printable(work.thread)}" if work else "another server"
