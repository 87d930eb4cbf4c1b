"""The live parts of the page of running jobs: how far each is, and which still run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api import Work
from pyworkers.api.running import read_works
from pyworkers.protocol.status import Progress
from pyworkers.web import names
from pyworkers.web.showing import moment, number, shown, size, visible

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader


def parts(reader: Reader, _request: Request, _parameters: str) -> dict[str, str]:
    """The cells of the longest running jobs.

    A job that a page shows, and that has no cells here, has ended: the longest come first, so it leaves by
    its end alone. The part ``running:all`` says so; it is missing if more jobs run than are put in order.
    """
    works = reader.watch("running", read_works).value
    if works is None:
        return {}
    found = {"running:total": str(total(works.total)), **({"running:all": ""} if works.complete else {})}
    for work in works.works:
        found |= {f"{key_of(work)}:{cell}": str(html) for cell, html in cells(work, works.at).items()}
    return found


def key_of(work: Work) -> str:
    """The name of a run in the live parts."""
    return "/".join(map(names.encode, (work.identity, work.thread, work.jid)))


def cells(work: Work, now: float) -> Mapping[str, Markup]:
    """The cells of a running job that change, by name."""
    return {
        "since": moment(work.run_at or None, now),
        "progress": bar(work.progress, work.job_class),
        "memory": escape(size(work.rss_kb * 1024)) if work.rss_kb else Markup("\N{EN DASH}"),
    }


def bar(progress: Progress | None, label: str) -> Markup:
    """The progress of a job: a bar if its total is known, the numbers, and its text."""
    if progress is None:
        return Markup("")
    parts = [Markup("")]
    if progress.total is not None and progress.total > 0:
        parts.append(
            Markup('<progress value="{:g}" max="{:g}" aria-label="Progress of {}"></progress>').format(
                max(0, progress.done), progress.total, visible(label)
            )
        )
    of = "" if progress.total is None else f" of {progress.total:g}"
    numbers = Markup('<span class="of">{}</span>').format(f"{progress.done:g}{of}")
    parts += [numbers, shown(progress.text, 60) if progress.text else Markup("")]
    return Markup(" ").join(part for part in parts if part)


def total(count: int) -> Markup:
    """How many jobs run now."""
    return Markup("{} {} now.").format(number(count), "job runs" if count == 1 else "jobs run")
