"""Live: the transport to the Redis of a server that this process serves, for all its clients.

Used in the program that serves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus
from pyworkers.protocol.status import JobStatus
from pyworkers.store.admin import Admin
from pyworkers.store.flow import batches, batchviews, tracking
from pyworkers.store.producer import push
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import connect
from pyworkers.store.wiresteps import run


class Live:
    """Connections to one Redis, closed at the end of the ``with``."""

    def __init__(self, config: RedisConfig) -> None:
        self._admin = Admin(config)
        self._wires = Wires(connect(config))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wires.close()

    def now(self) -> float:
        """The system's time."""
        return time.time()

    def redis(self) -> RedisConfig:
        """The Redis of the server."""
        return self._admin.config

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        """As ``Client.push``."""
        return push(self._wires, self._admin.keys, jobs)

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """As ``Client.enlist``."""
        batches.enlist(self._wires, self._admin.keys, plan)

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        return self._admin.run(batchviews.status(self._admin.keys, batch))

    def batch_result(self, batch: str, deadline: float) -> Any:
        """As ``Batch.result``."""
        status = self.batch_status(batch)
        if status is not None and status.success_at is None and status.death_at is None:
            run(self._wires, tracking.wait(self._admin.config, self._admin.keys, batch, deadline))
        return self.result(batch, deadline)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        return run(self._wires, tracking.look(self._admin.keys, jid)).status

    def result(self, jid: str, deadline: float) -> Any:
        """As ``Client.result``."""
        return run(self._wires, tracking.result(self._admin.config, self._admin.keys, jid, deadline))

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        return run(self._wires, tracking.history(self._admin.keys, jid))

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """As ``Client.iteration``."""
        return run(self._wires, tracking.iteration(self._admin.keys, jid))
