"""Enqueue: a form for one job, with the checks of the client, and what it would write before it does.

Runs in the event loop of the dashboard. ``POST /api/jobs`` has the same reader of the fields and the same way
into Redis.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import simplejson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.places import SCHEDULED, Place
from pyworkers.api.enqueueing import BatchedJob, Enqueued, KnownClass, enqueue, known_classes, read
from pyworkers.api.metrics import read_metrics
from pyworkers.errors import (
    BadArgumentError,
    BatchError,
    DuplicateJobError,
    QueueFullError,
)
from pyworkers.protocol import sealing
from pyworkers.protocol.options import OPTIONS
from pyworkers.web.acting import audited, done
from pyworkers.web.lists.asking import MOST_CHARACTERS, encoded, moment_of
from pyworkers.web.lists.asking import typed as unescaped
from pyworkers.web.lists.showing import NO_ID
from pyworkers.web.lists.words import DELAYS
from pyworkers.web.live.reader import reader_of
from pyworkers.web.rendering import address, render
from pyworkers.web.security import Form, form_of, viewer_of
from pyworkers.web.showing import counted, visible
from pyworkers.web.site import site_of

_MOST_NAMES = 200
"""The classes and the queues that the fields offer."""
_MOST_SHOWN = 20_000
_REFUSALS = (BadArgumentError, DuplicateJobError, QueueFullError, BatchError)
_TYPED = ("class", "queue", "args", "options", "in", "when")
_NOW = "0"


async def show(request: Request) -> Response:
    """The form; an address may fill it: ``?class=Send&queue=mail&args=[7]``."""
    return await _form(request, {name: request.query_params.get(name, "") for name in _TYPED})


async def act(request: Request) -> Response:
    """Show what would be written, or enqueue it."""
    form = form_of(request)
    typed = {name: form.get(name, "") for name in _TYPED}
    action = form.get("action")
    if action not in ("preview", "enqueue"):
        raise HTTPException(400, "This action is unknown.")
    try:
        job = _job_of(request, form)
        await _check_arguments(request, job)
        if action == "preview":
            return await _form(request, typed, preview=_shown(job))
        queue = job.job.queue
        push = partial(_push, request, job)
        added = await audited(request, "job.enqueue", queue, push, _described, queues=[queue])
    except _REFUSALS as error:
        return await _form(request, typed, refusal=f"Not done: {error}")
    place = Place.of_queue(job.job.queue) if job.job.at is None else SCHEDULED
    to = address(request, "jobs", added.jid or NO_ID, **{"in": encoded(place)})
    return done(request, to, f"Enqueued into {job.job.queue}.")


async def _form(request: Request, typed: Mapping[str, str], preview: str = "", refusal: str = "") -> Response:
    operate = viewer_of(request).role == "operate"
    known, classes, queues = (await _known(request)) if operate else ({}, (), ())
    visibly = {name: "\n".join(map(visible, text.splitlines())) for name, text in typed.items()}
    return await render(
        request, "enqueue.html", title="Enqueue", operate=operate, typed=visibly, preview=preview,
        refused=refusal, known=known, chosen=known.get(unescaped(typed["class"])),
        classes=classes, queues=queues, delays=((_NOW, "now"), *DELAYS), options=OPTIONS,
    )  # fmt: skip


async def _known(request: Request) -> tuple[dict[str, KnownClass], list[str], list[str]]:
    """The classes that servers declare, those whose jobs ran in the last hour, and the queues."""
    site, reader = site_of(request), reader_of(request)
    known = await site.read(known_classes(site.keys))
    metrics = await site.read(read_metrics(site.keys, count=_MOST_NAMES))
    stats = reader.last or await reader.read()
    classes = [row.job_class for row in metrics.classes if row.job_class not in known]
    queues = [queue.name for queue in stats.queues if viewer_of(request).operates(queue.name)]
    some = {name: _offered(known[name]) for name in _short(list(known))[:_MOST_NAMES]}
    return some, _short(classes), _short(queues[:_MOST_NAMES])


def _offered(one: KnownClass) -> KnownClass:
    """A class, with the queues that an address can hold."""
    return one._replace(queues=tuple(_short(one.queues)))


async def _check_arguments(request: Request, job: BatchedJob) -> None:
    """Raise BadArgumentError if no running server takes this many arguments."""
    site, data = site_of(request), simplejson.loads(job.job.payload)
    known = (await site.read(known_classes(site.keys))).get(str(data.get("class")))
    args = data.get("args")
    if known is None or not isinstance(args, list) or data.get(sealing.FIELD) or known.takes(len(args)):
        return
    takes = " or ".join(f"({visible(one.parameters)})" for one in known.signatures)
    raise BadArgumentError(
        f"{visible(str(data['class']))} takes {takes}, not {counted(len(args), 'argument')}"
    )


def _short(found: Sequence[str]) -> list[str]:
    return [name for name in found if len(name) <= MOST_CHARACTERS]


def _job_of(request: Request, form: Form) -> BatchedJob:
    """The job that a form describes. Raises BadArgumentError for anything that the client refuses."""
    now, site = time.time(), site_of(request)
    given: dict[str, Any] = {
        **json_of(form.get("options", ""), "options", dict, '{"retry": 3}'),
        "class": unescaped(form.get("class", "")),
        "queue": unescaped(form.get("queue", "")),
        "args": json_of(form.get("args", ""), "arguments", list, "[7]"),
    }
    if name := site.settings.elsewhere(given["queue"]):
        raise BadArgumentError(f"the queue is on the Redis {name}: enqueue it on the pages of that one")
    if (at := moment_of(form, now)) is not None:
        given["at"] = at
    elif (delay := form.get("in", _NOW)) != _NOW:
        given["in"] = next((seconds for seconds, _ in DELAYS if str(seconds) == delay), 0)
    return read(given, now, site.writing)


def json_of(text: str, name: str, kind: type[Any], example: str) -> Any:
    """A value of JSON of this kind; an empty one of an empty text. Raises BadArgumentError."""
    try:
        value = simplejson.loads(text) if text.strip() else kind()
    except (ValueError, RecursionError) as error:
        raise BadArgumentError(f"the {name} are not JSON: {error}") from error
    if not isinstance(value, kind):
        word = "list" if kind is list else "object"
        raise BadArgumentError(f"the {name} are a JSON {word}, e.g. {example}")
    return value


def _shown(job: BatchedJob) -> str:
    """What would be written, in lines."""
    payload = job.job.payload
    if len(payload) > _MOST_SHOWN:
        return f"({len(payload):,} bytes)"
    return str(simplejson.dumps(simplejson.loads(payload), indent=2, ensure_ascii=False))


async def _push(request: Request, job: BatchedJob) -> Enqueued:
    """Push it. Raises the error of a refusal, and DuplicateJobError for a job that is there already."""
    site = site_of(request)
    answered = await site.read(enqueue(site.keys, [job]))
    if answered.refusal is not None:
        raise answered.refusal.error
    [added] = answered.jobs
    if not added.is_new:
        raise DuplicateJobError(added.jid)
    return added


def _described(added: Enqueued) -> str:
    return added.jid


ROUTES = [Route("/enqueue", show), Route("/enqueue", act, methods=["POST"])]
