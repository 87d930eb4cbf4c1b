"""The live parts of the pages of cron: each entry's state, next slot and last run, and the runs of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api import CronJob, CronRun, read_cron_job, read_cron_page
from pyworkers.api.cronjob import CRON, RUN, outcome
from pyworkers.web import names
from pyworkers.web.paging import ROWS, rank_in
from pyworkers.web.rendering import address, fragment, linkable
from pyworkers.web.showing import moment, shown
from pyworkers.web.tables import Listing, cell, link, words

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_COLUMNS = CRON.shown("name", "schedule", "class", "queue", "next", "last_run", "state")
_GONE = '<span class="bad">gone: it was removed, or no running server declares it</span>'


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the entries of one page of the list; ``parameters``: its first index."""
    first = rank_in(parameters)
    watched = reader.watch(f"cron?{first}", lambda keys: read_cron_page(keys, first, ROWS))
    if watched.value is None or reader.last is None:
        return {}
    return listing(request, watched.value.jobs, reader.last.now).live()


def listing(request: Request, jobs: Sequence[CronJob], now: float, feed: str = "") -> Listing[CronJob]:
    """The table of these entries."""
    html: Mapping[str, Callable[[CronJob], Markup]] = {
        "name": partial(_named, request),
        "schedule": _schedule,
        "last_run": partial(_last_run, request, now=now),
    }
    return Listing(request, _COLUMNS, jobs, now, key=key_of, feed=feed, html=html)


def runs(request: Request, job: CronJob, now: float) -> Listing[CronRun]:
    """The table of the runs of an entry."""
    return Listing(request, RUN.shown(), job.runs, now)


def _named(request: Request, job: CronJob) -> Markup:
    return shown(job.name) if job.state == "shadowed" else link(request, "cron", job.name)


def _schedule(job: CronJob) -> Markup:
    about = shown(job.entry.schedule, 100), shown(job.entry.timezone, 60)
    return Markup("<span><code>{}</code> {}</span>").format(*about)


def _last_run(request: Request, job: CronJob, now: float) -> Markup:
    run = job.last_run
    if run is None:
        return Markup("none")
    job_page = Markup('<a href="{}">job</a>').format(address(request, "jobs", run.jid))
    return Markup("{} {} {}").format(
        words(request, outcome(run)), moment(run.slot, now), job_page if linkable(run.jid) else shown(run.jid)
    )


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The state and the runs of one entry; ``parameters``: its name, as it stands in the address."""
    feed, read = f"entry?{parameters}", partial(read_cron_job, name=names.decode(parameters))
    watched = reader.watch(feed, read)
    if not watched.known or reader.last is None:
        return {}
    job = watched.value
    if job is None:
        return {f"{feed}:state": _GONE}
    return {
        f"{feed}:state": state(request, job),
        f"{feed}:runs": fragment(request, "live/cron_runs.html", runs=runs(request, job, reader.last.now)),
    }


def state(request: Request, job: CronJob) -> Markup:
    """The state of an entry as a word."""
    return cell(request, CRON.columns["state"], job, 0.0)


def key_of(job: CronJob) -> str:
    """The name of a row in the live parts; a shadowed entry has the name of another one."""
    return f"{names.part(job.name)}{'/shadowed' if job.shadowed else ''}"
