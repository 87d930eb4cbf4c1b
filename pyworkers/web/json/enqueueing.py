"""Enqueueing by JSON: ``POST /api/jobs``, one job or an array of jobs, also by a request that is sent again.

Runs in the event loop of the dashboard, without a thread. The checks are the same as in the client
(``api/enqueueing.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request

from pyworkers.api.enqueueing import (
    FIELDS,
    PORTION,
    Answered,
    BatchedJob,
    Enqueued,
    PushRefusal,
    Receipt,
    enqueue,
    pause_s,
    place_of,
    read,
    wait_s,
)
from pyworkers.api.parameters import BadRequestError, Parameter
from pyworkers.api.schemas import FLAG, NUMBER, OBJECT, TEXT, Schema, array, record
from pyworkers.errors import (
    BadArgumentError,
    BatchError,
    DuplicateJobError,
    PyworkersError,
    QueueFullError,
    RedisUnavailableError,
    StoreError,
)
from pyworkers.protocol.options import OPTIONS, JobOption
from pyworkers.protocol.portions import portions
from pyworkers.web.acting import audited, is_sent, undone
from pyworkers.web.json.resources import Created, Creation, Refused, Resource
from pyworkers.web.leaving import is_leaving
from pyworkers.web.security import body_of, viewer_of
from pyworkers.web.site import Site, site_of
from pyworkers.web.waiting import waits_of

_KEY = "Idempotency-Key"
_LONGEST_KEY = 255
_RECEIPT_LIFE_S = 86_400
_LONGEST_WAIT_S = 30
_RETRY_AFTER_S = 2
# Between this many jobs that are read, other requests are answered.
_AT_A_TIME = 100
_SENT_AGAIN = "Send the request again, with the same Idempotency-Key."


class _Sent(NamedTuple):
    """The jobs of a request. ``several``: it has an array of them."""

    given: Sequence[Any]
    several: bool

    def place(self, number: int, field: str = "") -> str:
        """The JSON Pointer of a field of a job, or of the value in it that is invalid."""
        given = self.given[number]
        inner = place_of(given, field) if field and isinstance(given, dict) else ""
        return f"/{number}{inner}" if self.several else inner


class _Progress:
    """How far a request is."""

    def __init__(self) -> None:
        self.jobs: list[Enqueued] = []
        self.replayed = True
        """True if an earlier request with the same key has enqueued all that is done."""
        self.refused_at = 0
        """The place of the job that was refused."""

    def refuse(self, place: int) -> None:
        """Note the place of a job that was refused."""
        self.refused_at = place

    def add(self, answered: Answered) -> None:
        """Note what was done."""
        self.jobs += answered.jobs
        self.replayed &= answered.replayed


async def _create(request: Request, body: Any) -> Created:
    sent = _Sent(body, True) if isinstance(body, list) else _Sent([body], False)
    receipt = _receipt(request, body_of(request))
    jobs = await _read_all(sent, site_of(request))
    if not jobs:
        return Created({"jobs": []})
    progress = _Progress()

    async def push() -> _Progress:
        for number, portion in enumerate(portions(jobs, PORTION)):
            await _push(request, portion, receipt, number, progress)
        return progress

    try:
        queues = {member.job.queue for member in jobs}
        await audited(request, "job.enqueue", _target(jobs), push, _described, queues=queues)
    except PyworkersError as error:
        raise _refused(request, error, sent, progress) from error
    found = progress.jobs
    if not sent.several and not found[0].is_new:
        raise _duplicate(found[0].jid)
    value = {"jobs": _shown(found)} if sent.several else {"jid": found[0].jid}
    return Created(value, {"Idempotent-Replayed": "true"} if progress.replayed else None)


def _receipt(request: Request, body: bytes) -> Receipt | None:
    """What is kept of a request with an Idempotency-Key, of this user."""
    given = request.headers.getlist(_KEY)
    if not given:
        return None
    if len(given) > 1 or not 0 < len(given[0]) <= _LONGEST_KEY:
        raise BadRequestError(f"{_KEY} must be one text of 1 to {_LONGEST_KEY} characters.")
    name = hashlib.sha256(f"{viewer_of(request).name}\0{given[0]}".encode()).hexdigest()[:32]
    keys = site_of(request).keys
    return Receipt(keys.enqueued(name), hashlib.sha256(body).hexdigest()[:32], _RECEIPT_LIFE_S)


async def _read_all(sent: _Sent, site: Site) -> list[BatchedJob]:
    """All jobs, before any is pushed. Raises Refused with the place of the first invalid value."""
    now, jobs = time.time(), list[BatchedJob]()
    for number, given in enumerate(sent.given):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        if not isinstance(given, dict):
            raise _invalid("a job is an object with queue, class and args", sent.place(number))
        try:
            jobs.append(read(given, now, site.writing))
        except BadArgumentError as error:
            raise _invalid(_text(error), sent.place(number, error.field)) from error
        if name := site.settings.elsewhere(given["queue"]):
            text = f"the queue is on the Redis {name!r}: send it to /redis/{name}/api/jobs"
            raise _invalid(text, sent.place(number, "queue"))
        if wait_s(jobs[-1:]) > _LONGEST_WAIT_S:
            raise _invalid(f"wait must be at most {_LONGEST_WAIT_S} seconds here", sent.place(number, "wait"))
    return jobs


async def _push(
    request: Request,
    jobs: Sequence[BatchedJob],
    receipt: Receipt | None,
    number: int,
    progress: _Progress,
) -> None:
    """Push a thousand, all or none; waits for room if asked to. Raises the error of a refusal; Refused."""
    site, own = site_of(request), receipt and receipt._replace(part=number)
    until = time.monotonic() + wait_s(jobs)

    async def attempt(after: PushRefusal | None = None) -> Answered:
        answered = await site.read(enqueue(site.keys, jobs, own, after))
        if answered.refusal is not None:
            progress.refuse(number * PORTION + answered.refusal.place)
        return answered

    answered = await attempt()
    if answered.refusal is not None:
        with waits_of(request).for_room(request, answered.refusal.error) as leaving:
            answered = await _with_room(attempt, answered.refusal, until, leaving)
    if answered.is_taken:
        raise _invalid(f"This {_KEY} was used for another request: choose another.", "")
    progress.add(answered)


async def _with_room(
    attempt: Callable[[PushRefusal | None], Awaitable[Answered]],
    refusal: PushRefusal,
    until: float,
    leaving: asyncio.Task[None],
) -> Answered:
    """The answer when there is room. Raises the error of the refusal at the end of the time."""
    while True:
        left, _ = await asyncio.wait({leaving}, timeout=pause_s(refusal, until))
        if left or is_leaving():
            raise refusal.error
        # At the end of the time by its receipt: meanwhile another request may have pushed the same jobs.
        answered = await attempt(refusal if time.monotonic() < until else None)
        if answered.refusal is None:
            return answered
        refusal = answered.refusal


def _refused(request: Request, error: PyworkersError, sent: _Sent, progress: _Progress) -> Refused:
    """The answer to a request that Redis did not execute, or only the first thousands of it."""
    facts: dict[str, Any] = {"error": _text(error)}
    if progress.jobs:
        facts["jobs"] = _shown(progress.jobs)
    if sent.several and isinstance(error, DuplicateJobError | QueueFullError):
        facts["path"] = sent.place(progress.refused_at)
    match error:
        case DuplicateJobError():
            return _duplicate(error.jid, facts)
        case QueueFullError():
            return Refused(429, facts, {"Retry-After": str(_RETRY_AFTER_S)})
        case BatchError():
            return Refused(422, {**facts, "path": sent.place(progress.refused_at, "batch")})
        case RedisUnavailableError() | StoreError():
            _, facts["error"] = undone(request, error)
            headers = {} if is_sent(request) else {"Retry-After": str(_RETRY_AFTER_S)}
            if is_sent(request) and _KEY in request.headers:
                facts["error"] = f"{facts['error'].partition(' Look ')[0]} {_SENT_AGAIN}"
                headers = {"Retry-After": str(_RETRY_AFTER_S)}
            return Refused(503, facts, headers)
    return Refused(409, facts)


def _duplicate(jid: str, facts: Mapping[str, Any] | None = None) -> Refused:
    """The answer to a job that is there already, with the id of that job."""
    return Refused(409, {**(facts or {"error": str(DuplicateJobError(jid))}), "jid": jid})


def _invalid(text: str, place: str) -> Refused:
    return Refused(422, {"error": text, "path": place})


def _text(error: PyworkersError) -> str:
    return str(error).replace("?\n", "? ").replace("\n", "; ")


def _shown(found: Sequence[Enqueued]) -> list[dict[str, Any]]:
    return [{"jid": job.jid, "duplicate": not job.is_new} for job in found]


def _target(jobs: Sequence[BatchedJob]) -> str:
    """The jobs in the audit: their queues."""
    queues = list(dict.fromkeys(member.job.queue for member in jobs))
    return ", ".join(queues[:3]) + (" …" if len(queues) > 3 else "")


def _described(progress: _Progress) -> str:
    """The result in the audit."""
    return progress.jobs[0].jid if len(progress.jobs) == 1 else f"{len(progress.jobs)} jobs"


def _schema_of(option: JobOption) -> Schema:
    about = {"description": option.meaning.replace("``", "")}
    kinds: Mapping[str, Schema] = {
        "flag": {"type": "boolean"},
        "flag or count": {"type": ["boolean", "integer"], "minimum": 0},
        "count": {"type": ["integer", "null"], "minimum": 0},
        "seconds": {"type": ["number", "null"], "minimum": 0},
        "text": TEXT,
        "texts": array(TEXT),
        "choice": {"enum": list(option.choices)},
        "object": OBJECT,
        "value": {},
    }
    return {**kinds[option.kind], **about}


_TYPES: Mapping[str, Schema] = {
    "queue": TEXT,
    "class": TEXT,
    "args": {"type": "array"},
    "in": NUMBER,
    "at": NUMBER,
    "batch": TEXT,
}
_DESCRIBED = {name: {**_TYPES[name], "description": about} for name, about in FIELDS.items()}
_JOB: Schema = {
    **record(
        "NewJob",
        {name: _DESCRIBED[name] for name in ("queue", "class")},
        {**_DESCRIBED, **{name: _schema_of(option) for name, option in OPTIONS.items()}},
    ),
    "additionalProperties": False,
}
_ONE = record("EnqueuedJob", {"jid": TEXT})
_OUTCOME = record("EnqueueOutcome", {"jid": TEXT, "duplicate": FLAG})
_SEVERAL = record("EnqueuedJobs", {"jobs": array(_OUTCOME)})
_REFUSAL = record("EnqueueRefusal", {"error": TEXT}, {"path": TEXT, "jid": TEXT, "jobs": array(_OUTCOME)})

RESOURCES = (
    Resource(
        "/jobs",
        "Jobs that are enqueued.",
        None,
        {},
        creation=Creation(
            "Enqueue a job, or an array of jobs: of each thousand all but the duplicates, or none.",
            _create,
            {"oneOf": [_JOB, array(_JOB)]},
            {
                "201": (
                    "Redis has the job. Of an array: for each job its jid, or the jid of the other one if it "
                    "is a duplicate. With the header Idempotent-Replayed: true, an earlier request with the "
                    "same Idempotency-Key has enqueued them.",
                    {"oneOf": [_ONE, _SEVERAL]},
                ),
                "409": ("The job is a duplicate of jid (unique_for), and is not enqueued.", _REFUSAL),
                "422": (
                    "The value at path, a JSON Pointer, is invalid. Nothing but jobs is enqueued.",
                    _REFUSAL,
                ),
                "429": (
                    "A queue is full (max_waiting), or there were too many wrong tokens. jobs has the jobs "
                    "of the thousands before.",
                    _REFUSAL,
                ),
                "503": ("Redis does not answer; Retry-After says when to send it again.", _REFUSAL),
            },
            [
                Parameter(
                    _KEY,
                    "A text of the program, kept for a day: a second request of this user with the same key "
                    "and body enqueues nothing, and gets the answer of the first; another body is 422.",
                    longest=_LONGEST_KEY,
                )
            ],
        ),
    ),
)
