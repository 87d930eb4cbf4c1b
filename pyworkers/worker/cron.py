"""Cron: makes the jobs of cron slots, by the application's client middleware, types and keys.

Runs in the worker process, between jobs or alongside them. It pushes nothing: the master does, once a slot.
"""

from __future__ import annotations

import time
from dataclasses import replace

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import text_with_class
from pyworkers.failpoints import hit
from pyworkers.middleware import pass_client_links
from pyworkers.observing.readable import readable
from pyworkers.protocol.draft import Draft, Writing, draft
from pyworkers.protocol.flow.slots import Made, SlotAnswer, SlotRequest
from pyworkers.protocol.outcome import Fate, Outcome, Report
from pyworkers.store.routes import check_place

LIMIT_S = 8.0
"""Seconds for one request; then the master kills the process. Less than the master waits for the answer."""

log = logs.get_logger()


def make_jobs(app: Worker, payload: bytes) -> Report:
    """The jobs of the slots that the payload names. A link that raises fails its slot alone."""
    request = SlotRequest.unpack(payload)
    hit("slots_asked")
    answer = SlotAnswer([_made(app, request) for _ in range(request.slots)])
    return Report(Outcome(Fate.ANSWER, payload=answer.pack()))


def _made(app: Worker, request: SlotRequest) -> Made:
    try:
        plan = _draft(app, request)
        _, jobs = pass_client_links(app.client_links, plan, request.args, time.time(), "args")
        check_place(app.stores(), request.queue, jobs)
    except BaseException as error:
        log.exception("link.failed", hook="client_middleware", job_class=request.job_class)
        return Made(error=text_with_class(readable(error)))
    return Made(jobs)


def _draft(app: Worker, request: SlotRequest) -> Draft:
    """The draft of an entry, whose arguments are JSON values already."""
    make = app.draft if request.declared else draft
    found = make(request.queue, request.job_class, request.retry, request.options)
    return replace(found, writing=Writing(encryption=app.encryption))
