"""The live parts of the page of running jobs: how far each is, and which still run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api import Work, WorkPage
from pyworkers.api.running import WORK, read_works
from pyworkers.protocol.status import Progress
from pyworkers.web import names
from pyworkers.web.lists.showing import args_text
from pyworkers.web.showing import number, shown, visible
from pyworkers.web.tables import Listing, link

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_MOST_BYTES = 20_000


def parts(reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """The cells of the longest running jobs.

    A job that a page shows, and that has no cells here, has ended: the longest come first, so it leaves by
    its end alone. The part ``running:all`` says so; it is missing if more jobs run than are put in order.
    """
    works = reader.watch("running", read_works).value
    if works is None:
        return {}
    found = {"running:total": str(total(works.total)), **({"running:all": ""} if works.complete else {})}
    return found | listing(request, works).live()


def listing(
    request: Request, page: WorkPage, mask: Collection[str] = (), *, with_server: bool = True
) -> Listing[Work]:
    """The table of these jobs."""
    chosen = ["class", "queue", "run_at", "progress", "identity", "thread", "rss_kb", "limit_at"]
    if not with_server:
        chosen.remove("identity")
    if all(work.limit_at is None for work in page.works):
        chosen.remove("limit_at")
    html: Mapping[str, Callable[[Work], Markup]] = {
        "class": partial(_job, request, mask),
        "progress": lambda work: bar(work.progress, work.job_class),
    }
    return Listing(
        request, WORK.shown(*chosen), page.works, page.at,
        key=key_of, ended={"progress": "running:all"}, html=html,
    )  # fmt: skip


def _job(request: Request, mask: Collection[str], work: Work) -> Markup:
    """Class, id and arguments; of a large job its size: fifty of them would make the page late."""
    args = args_text(work, mask) if work.length <= _MOST_BYTES else f"({work.length:,} bytes)"
    return Markup("{}<br>{}{}").format(
        shown(work.job_class) if work.job_class else "no class",
        link(request, "jobs", work.jid) if work.jid else "no id",
        Markup("<br><code>{}</code>").format(shown(args, 100)) if args else "",
    )


def key_of(work: Work) -> str:
    """The name of a run in the live parts."""
    return "/".join(map(names.encode, (work.identity, work.thread, work.jid)))


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
