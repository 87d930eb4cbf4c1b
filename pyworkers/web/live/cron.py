"""The live parts of the pages of cron: each entry's state, next slot and last run, and the runs of one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from pyworkers.api import CronJob, read_cron_job, read_cron_page
from pyworkers.web import names
from pyworkers.web.paging import ROWS, rank_in
from pyworkers.web.rendering import fragment, macro

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_MACROS = "cron_macros.html"
_GONE = '<span class="bad">gone: it was removed, or no running server declares it</span>'


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the entries of one page of the list; ``parameters``: its first index."""
    first = rank_in(parameters)
    watched = reader.watch(f"cron?{first}", lambda keys: read_cron_page(keys, first, ROWS))
    if watched.value is None or reader.last is None:
        return {}
    now = reader.last.now
    following, last, state = (
        macro(request, _MACROS, name) for name in ("next_cell", "last_cell", "state_cell")
    )
    found: dict[str, str] = {}
    for job in watched.value.jobs:
        key, slot = key_of(job), next(iter(job.next_slots(1, now)), None)
        found |= {
            f"{key}:next": following(job, slot, now),
            f"{key}:last": last(job.last_run, now),
            f"{key}:state": state(job),
        }
    return found


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
        f"{feed}:state": macro(request, _MACROS, "state_cell")(job),
        f"{feed}:runs": fragment(request, "live/cron_runs.html", job=job, now=reader.last.now),
    }


def key_of(job: CronJob) -> str:
    """The name of a row in the live parts; a shadowed entry has the name of another one."""
    return f"{names.part(job.name)}{'/shadowed' if job.shadowed else ''}"
