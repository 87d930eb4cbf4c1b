"""Questions: what a client asks about jobs and batches, as steps at one Redis, or at each until one answers.

Used by ``Routes``, which blocks, and by ``AsyncClient``. What is known by an id alone, such as a status, is
asked of all Redis servers, one after the other. This module opens no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError, UntrackedJobError
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchStatus, CancelledBatch
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import UNKNOWN, Cancelled, JobState, JobStatus
from pyworkers.store import cancel
from pyworkers.store.calls import Operation
from pyworkers.store.flow import batchviews, cancelling, finding, tracking
from pyworkers.store.wiresteps import OverClient, WireSteps

T = TypeVar("T")
Ask = Callable[[RedisConfig], WireSteps[T | None]]
"""The steps at one Redis; their answer is empty if it does not know."""


class At(NamedTuple):
    """Steps at the Redis of this name; the question gets their result, or their error."""

    name: str
    steps: WireSteps[Any]


Question = Generator[At, Any, T]
"""Yields what it asks, and returns the answer."""


class Questions:
    """The questions of a client to its Redis servers. All raise RedisUnavailableError and StoreError."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def status(self, jid: str) -> Question[JobStatus]:
        """As ``Client.status``."""
        return (yield from self._first(lambda redis: _known(redis, jid))) or UNKNOWN

    def result(self, jid: str, deadline: float) -> Question[Any]:
        """As ``Client.result``, until ``deadline`` (monotonic)."""
        names = list(self._stores.by_name)
        if self._stores.several and (known := (yield from self._find(lambda redis: _known(redis, jid)))):
            names = [known[0]]
        missing: PyworkersError | None = None
        for name in names:
            try:
                return (yield self._result(name, jid, deadline))
            except UntrackedJobError as error:
                missing = missing or error
            except (RedisUnavailableError, StoreError) as error:
                missing = error
        assert missing is not None, "there is a Redis"
        raise missing

    def history(self, jid: str) -> Question[JobHistory | None]:
        """As ``Client.history``."""
        return self._first(lambda redis: tracking.history(Keys(redis.namespace), jid))

    def logs(self, jid: str) -> Question[list[LogLine]]:
        """As ``Client.logs``."""
        return (yield from self._first(lambda redis: tracking.logs(Keys(redis.namespace), jid))) or []

    def iteration(self, jid: str, queue: str | None) -> Question[Mapping[str, bytes]]:
        """As ``Client.iteration``; of a job whose ``queue`` is known, one Redis is asked."""
        if queue is not None:
            keys = Keys(self._stores.redis_of(queue).namespace)
            found: Mapping[str, bytes] = yield At(self._stores.name_of(queue), tracking.iteration(keys, jid))
            return found
        return (yield from self._first(lambda redis: tracking.iteration(Keys(redis.namespace), jid))) or {}

    def find(self, jid: str) -> Question[JobStatus]:
        """As ``Client.find``."""
        found = yield from self._first(lambda redis: _over(redis, finding.find(Keys(redis.namespace), jid)))
        return found.status if found else UNKNOWN

    def cancel(self, jid: str) -> Question[Cancelled]:
        """As ``Client.cancel``: at each Redis."""
        found = Cancelled.UNKNOWN
        missing: PyworkersError | None = None
        for name, redis in self._stores.by_name.items():
            try:
                answer = yield At(name, _over(redis, cancel.cancel(Keys(redis.namespace), jid)))
            except (RedisUnavailableError, StoreError) as error:
                missing = error
            else:
                found = answer if found is Cancelled.UNKNOWN else found
        if found is Cancelled.UNKNOWN and missing is not None:
            raise missing
        return found

    def batch_status(self, batch: str) -> Question[BatchStatus | None]:
        """The status of a batch; None for an unknown one."""
        return self._first(lambda redis: _batch(redis, batch))

    def cancel_batch(self, batch: str) -> Question[CancelledBatch | None]:
        """Cancel a batch; None for an unknown one."""
        return self._first(lambda redis: _over(redis, cancelling.cancel_batch(Keys(redis.namespace), batch)))

    def batch_result(self, batch: str, deadline: float) -> Question[Any]:
        """As ``Batch.result``, until ``deadline`` (monotonic)."""
        name, status = (yield from self._find(lambda redis: _batch(redis, batch))) or (DEFAULT, None)
        if status is not None and not status.answered:
            redis = self._stores.by_name[name]
            yield At(name, tracking.wait(redis, Keys(redis.namespace), batch, deadline))
        return (yield self._result(name, batch, deadline))

    def _result(self, name: str, jid: str, deadline: float) -> At:
        redis = self._stores.by_name[name]
        return At(name, tracking.result(redis, Keys(redis.namespace), jid, deadline))

    def _first(self, ask: Ask[T]) -> Question[T | None]:
        """The first answer, as ``_find``."""
        found = yield from self._find(ask)
        return None if found is None else found[1]

    def _find(self, ask: Ask[T]) -> Question[tuple[str, T] | None]:
        """The name of the first Redis that knows, and its answer.

        Without one, raises the error of a Redis that is away: it may have had the answer.
        """
        missing: PyworkersError | None = None
        for name, redis in self._stores.by_name.items():
            try:
                if answer := (yield At(name, ask(redis))):
                    return name, answer
            except (RedisUnavailableError, StoreError) as error:
                missing = missing or error
        if missing is not None:
            raise missing
        return None


def _known(redis: RedisConfig, jid: str) -> WireSteps[JobStatus | None]:
    """The status of a job that is known."""
    status = (yield from tracking.look(Keys(redis.namespace), jid)).status
    return None if status.state is JobState.UNKNOWN else status


def _batch(redis: RedisConfig, batch: str) -> WireSteps[BatchStatus | None]:
    return _over(redis, batchviews.status(Keys(redis.namespace), batch))


def _over(redis: RedisConfig, operation: Operation[T]) -> WireSteps[T]:
    """Many commands, rarely needed, over a separate connection."""
    found: T = yield OverClient(redis, operation)
    return found
