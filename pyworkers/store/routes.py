"""Routes: the Redis servers of a producer; each push and each question goes to the one that has the queue.

Used by the clients, which block here; ``AsyncClient`` takes the decisions and the pushes from here. A program
with one Redis decides nothing.

A push whose connection was lost is reported and never repeated: perhaps only its reply was lost, and then
each job would run twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, TypeVar

import hiredis
from redis.exceptions import RedisError, ResponseError

from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import envelope
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus, CancelledBatch, queues_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled, JobStatus
from pyworkers.store.admin import Admin
from pyworkers.store.calls import drive
from pyworkers.store.flow import conditions
from pyworkers.store.flow.conditions import REFUSALS
from pyworkers.store.questions import Question, Questions
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import connect, errors_translated
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.wire import AsyncWires
from pyworkers.store.wiresteps import run, run_async

T = TypeVar("T")

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))


class Routes:
    """The transport to the Redis servers (``interception``); connects to each at its first use in a process.

    Threads share it. A call blocks.
    """

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._several = stores.several
        self._keys = keys_of(stores)
        self._questions = Questions(stores)
        self._open: dict[str, Wires] = {}

    def now(self) -> float:
        """The system's time, in epoch seconds."""
        return time.time()

    def push(self, jobs: Sequence[PushedJob], owner: object = None) -> Others:
        """As the function ``push``, for each Redis. Raises BadArgumentError as ``apart``."""
        if not self._several:
            return push(self._wires(DEFAULT), self._keys[DEFAULT], jobs)
        others: dict[str, str] = {}
        for name, part in apart(self._stores, jobs).items():
            others |= push(self._wires(name), self._keys[name], part)
        return others

    def enlist(self, plan: BatchPlan, owner: object = None) -> None:
        """Make a batch and push its jobs. Raises BadArgumentError if it is on several Redis servers."""
        # Imported at the first batch.
        from pyworkers.store.flow.batches import enlist

        name = place_of(self._stores, plan)
        enlist(self._wires(name), self._keys[name], plan)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        return self._ask(self._questions.status(jid))

    def result(self, jid: str, deadline: float) -> Any:
        """As ``Client.result``, until ``deadline`` (monotonic)."""
        return self._ask(self._questions.result(jid, deadline))

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        return self._ask(self._questions.history(jid))

    def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        return self._ask(self._questions.logs(jid))

    def iteration(self, jid: str, queue: str | None = None) -> Mapping[str, bytes]:
        """As ``Client.iteration``; of a job whose ``queue`` is known, one Redis is asked."""
        return self._ask(self._questions.iteration(jid, queue))

    def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
        return self._ask(self._questions.find(jid))

    def cancel(self, jid: str, owner: object = None) -> Cancelled:
        """As ``Client.cancel``."""
        return self._ask(self._questions.cancel(jid))

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        return self._ask(self._questions.batch_status(batch))

    def cancel_batch(self, batch: str, owner: object = None) -> CancelledBatch | None:
        """As ``Batch.cancel``; None for an unknown one."""
        return self._ask(self._questions.cancel_batch(batch))

    def batch_result(self, batch: str, deadline: float) -> Any:
        """As ``Batch.result``, until ``deadline`` (monotonic)."""
        return self._ask(self._questions.batch_result(batch, deadline))

    def _ask(self, question: Question[T]) -> T:
        return drive(question, lambda at: run(self._wires(at.name), at.steps))

    def close(self) -> None:
        """Close the connections of this process. A later call opens new ones."""
        opened, self._open = self._open, {}
        for wires in opened.values():
            wires.close()

    def _wires(self, name: str) -> Wires:
        # No lock: a fork could copy it locked. If two threads connect at the first use, one Wires is dropped.
        wires = self._open.get(name)
        if wires is None:
            wires = self._open[name] = Wires(connect(self._stores.by_name[name]))
        return wires


def packed(keys: Keys, jobs: Sequence[PushedJob]) -> tuple[bytes, int]:
    """The commands that put ``jobs`` into their queues or into ``schedule``, and the number of their replies.

    Ready to be sent. Several commands are one transaction. No command if a job has conditions.
    """
    waiting: dict[str, list[bytes]] = {}
    later: list[bytes | float] = []
    for queue, payload, _, at, asked in jobs:
        if asked is not None:
            return b"", 0
        if at is None:
            waiting.setdefault(queue, []).append(payload)
        else:
            later += (at, payload)
    commands: list[bytes] = []
    for queue, payloads in waiting.items():
        listing, key = _known(keys.namespace, queue)
        commands += (listing, _pack(("LPUSH", key, *payloads)))
    if later:
        commands.append(_pack(("ZADD", keys.schedule, *later)))
    if len(commands) > 1:
        commands = [_MULTI, *commands, _EXEC]
    return b"".join(commands), len(commands)


@lru_cache(maxsize=256)
def _known(namespace: str, queue: str) -> tuple[bytes, str]:
    """The parts that all jobs of a queue share: the command that adds it to ``queues``, and its key."""
    keys = Keys(namespace)
    return _pack(("SADD", keys.queues, queue)), keys.queue(queue)


def push(wires: Wires, keys: Keys, jobs: Sequence[PushedJob]) -> Others:
    """Push ``jobs``, all or none; but of jobs that have conditions, none that is a duplicate: returns these.

    Raises RedisUnavailableError, after which the jobs may have been pushed or not, and StoreError,
    QueueFullError or DuplicateJobError, after which none was pushed.
    """
    commands, count = packed(keys, jobs)
    if not commands:
        return run(wires, conditions.pushing(keys, jobs))
    # Not as steps, which take a fifth of the time of a push.
    with errors_translated():
        if _is_refused(wires.exchange(commands, count, REFUSALS)):
            _check(wires.exchange(commands, count))
    return NO_OTHERS


async def push_async(wires: AsyncWires, keys: Keys, jobs: Sequence[PushedJob]) -> Others:
    """As ``push``, in an event loop."""
    commands, count = packed(keys, jobs)
    if not commands:
        return await run_async(wires, conditions.pushing(keys, jobs))
    with errors_translated():
        if _is_refused(await wires.exchange(commands, count, REFUSALS)):
            _check(await wires.exchange(commands, count))
    return NO_OTHERS


def push_by(admin: Admin, jobs: Sequence[PushedJob]) -> Others:
    """As ``push``, from ``api``."""
    with closing(Wires(admin.redis)) as wires:
        return push(wires, admin.keys, jobs)


def _is_refused(replies: Iterable[Any]) -> bool:
    """True if another connection may lead to a server that takes the commands. Raises any other refusal."""
    try:
        _check(replies)
    except ResponseError as error:
        if code_of(error) not in REFUSALS:
            raise
        return True
    return False


def _check(replies: Iterable[Any]) -> None:
    """Raise the first refusal. In a transaction, the refusal of a command comes before the refusal of EXEC,
    which has no reason itself, or is inside the reply to EXEC.
    """
    for reply in replies:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, RedisError):
                raise answer


def keys_of(stores: Stores) -> dict[str, Keys]:
    """The keys at each Redis."""
    return {name: Keys(redis.namespace) for name, redis in stores.by_name.items()}


def apart(stores: Stores, jobs: Iterable[PushedJob]) -> dict[str, list[PushedJob]]:
    """The jobs of each Redis.

    Raises BadArgumentError for a job that would be retried on another one, or whose limits count on another.
    """
    parts: dict[str, list[PushedJob]] = {}
    for job in jobs:
        if b'"retry_queue":' in job.payload:
            queues = [job.queue, *_retry_queues(job.payload)]
            one_of(stores, queues, "the retries of a job stay in its Redis", "choose another retry_queue")
        name = stores.name_of(job.queue)
        if any(stores.name_of(queue) != name for queue in stores.limited.values()):
            _check_limits(stores, job)
        parts.setdefault(name, []).append(job)
    return parts


def _check_limits(stores: Stores, job: PushedJob) -> None:
    job_class = envelope.decode(job.payload).get("class")
    if isinstance(job_class, str) and (home := stores.limited.get(job_class)) is not None:
        fix = "choose a queue of that Redis, or declare another job with another limit"
        one_of(stores, [home, job.queue], f"the limits of {job_class} count on one Redis", fix)


def _retry_queues(payload: bytes) -> list[str]:
    found = envelope.decode(payload).get("retry_queue")
    return [found] if isinstance(found, str) else []


def place_of(stores: Stores, plan: BatchPlan) -> str:
    """The name of the Redis of a batch. Raises BadArgumentError if it is on several."""
    if not stores.several:
        return DEFAULT
    apart(stores, [*plan.jobs, *plan.starts])
    return place_of_jobs(stores, *queues_of(plan))


def place_of_jobs(stores: Stores, *queues: str) -> str:
    """The name of the Redis of a batch with jobs of these queues. Raises BadArgumentError."""
    if not stores.several:
        return DEFAULT
    known = (queue for queue in queues if queue)
    return one_of(stores, known, "a batch, chain or group is on one Redis", "make one for each Redis")


def check_place(stores: Stores, queue: str, jobs: Iterable[PushedJob]) -> None:
    """Raise BadArgumentError if a cron entry of this queue makes a job on another Redis."""
    if stores.several:
        queues = [queue, *(job.queue for part in apart(stores, jobs).values() for job in part)]
        one_of(stores, queues, "a cron entry fires in the Redis of its queue", "give the entry that queue")


def one_of(stores: Stores, queues: Iterable[str], rule: str, fix: str) -> str:
    """The name of the Redis that has all these queues. Raises BadArgumentError, with the rule, for two."""
    found: dict[str, str] = {}
    for queue in queues:
        found.setdefault(stores.name_of(queue), queue)
    if len(found) > 1:
        where = " and ".join(f"the queue {queue!r} is on {name!r}" for name, queue in found.items())
        raise BadArgumentError(f"{rule}: {where}", hint=fix)
    return next(iter(found), DEFAULT)
