"""Pool: keeps the wanted number of workers of one queue, all of the current generation (*reconcile*).

Runs in the master's event loop. It passes the reports of its workers to the hand-out and to the deliveries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pyworkers import logs
from pyworkers.protocol.outcome import Report
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool import losses
from pyworkers.server.pool.deliveries import Deliveries
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.handout import HandOut
from pyworkers.server.pool.limits import DEFAULTS, Limits
from pyworkers.server.pool.respawn import Respawn
from pyworkers.server.pool.state import State
from pyworkers.server.pool.worker import End, Worker

log = logs.get_logger()


class Pool:
    """Workers of one queue; ``resize`` and ``use`` set their number and generation.

    ``failing`` is called when starts begin to fail, and when they succeed again.
    """

    def __init__(
        self,
        queue: str,
        spawner: Spawner,
        hand_out: HandOut,
        deliveries: Deliveries,
        failing: Callable[[bool], None],
        limits: Limits = DEFAULTS,
    ) -> None:
        self._queue = queue
        self._limits = limits
        self._spawner = spawner
        self._hand_out = hand_out
        self._deliveries = deliveries
        self._respawn = Respawn(self._reconcile, failing)
        self._workers: list[Worker] = []
        self._concurrency = 0

    # For the manager

    def resize(self, concurrency: int) -> None:
        """Set the number of workers."""
        self._concurrency = concurrency
        self._reconcile()

    def use(self, spawner: Spawner, concurrency: int) -> None:
        """Replace all workers by this number of a generation, one by one, as the new ones become ready."""
        self._spawner, self._concurrency = spawner, concurrency
        self._respawn.cancel()
        for worker in self._workers:
            if worker.state is State.BOOTING and worker.spawner is not spawner:
                self._dismiss(worker)
        self._reconcile()

    def signal(self, number: int, apart_s: float) -> None:
        """Send a signal to every worker, one after the other, so that their output does not mix."""
        loop = asyncio.get_running_loop()
        for place, worker in enumerate(self._workers):
            loop.call_later(place * apart_s, worker.signal, number)

    def abandon(self) -> None:
        """Kill every busy worker and forget its job, unless its outcome is in the pipe already."""
        # Waiting jobs first: a worker whose outcome is read below becomes idle, and would start one of them.
        self._deliveries.forget_waiting()
        for worker in list(self._workers):
            if (delivery := worker.abandon()) is not None:
                self._deliveries.abandoned(delivery)

    def replace_idle(self) -> None:
        """Replace the workers that run no job, because they log the identity with which they were forked.

        Without a fork server they stay: nothing could replace them.
        """
        if not self._spawner.alive:
            return
        for worker in self._workers:
            if worker.state in (State.BOOTING, State.IDLE):
                self._dismiss(worker)
        self._reconcile()

    @property
    def abandoned(self) -> int:
        """The number of processes killed by ``abandon`` that may still run."""
        return sum(worker.abandoned for worker in self._workers)

    def close(self) -> None:
        """Have every worker leave after its job."""
        self._concurrency = 0
        self._respawn.cancel()
        for worker in self._workers:
            self._dismiss(worker)

    def kill(self) -> None:
        """Kill every process."""
        for worker in self._workers:
            worker.kill()

    def replace_stalled(self) -> None:
        """Kill workers that do not read their job; another one gets it. To be called every few seconds."""
        for worker in self._workers:
            worker.end_if_stalled()

    @property
    def empty(self) -> bool:
        """True when no process is left."""
        return not self._workers

    def pids(self) -> dict[int, str]:
        """The state of each process, by pid, for the log."""
        return {w.pid: w.state.name.lower() for w in self._workers if w.pid}

    # Reports of its workers

    def ready(self, worker: Worker, booted: bool) -> None:
        """Note a successful start; a worker that has booted takes jobs."""
        self._respawn.succeeded()
        if booted and not worker.ended:
            self._hand_out.admit(worker)
        self._reconcile()

    def finished(self, worker: Worker, delivery: Delivery, report: Report) -> None:
        """Settle a job; its worker takes the next one, or leaves."""
        self._deliveries.ended(delivery, report)
        if report.retiring or worker.state is State.LEAVING:
            self._dismiss(worker)
            self._reconcile()
        elif not worker.ended:
            self._hand_out.admit(worker)

    def ended(self, worker: Worker) -> None:
        """Hand no more jobs to a worker whose outcome pipe has ended."""
        self._hand_out.withdraw(worker)

    def gone(self, worker: Worker, end: End) -> None:
        """Replace a worker that has ended, and settle its job or hand it out again."""
        self._workers.remove(worker)
        self._hand_out.withdraw(worker)
        if end.failed_start:
            self._respawn.failed()
        if end.delivery is not None:
            self._deliveries.lost(end.delivery, losses.died(end.reason, end.rss_kb), end.untouched)
        self._reconcile()

    # The number of workers

    def _reconcile(self) -> None:
        """Start missing workers and dismiss surplus workers, first the ones with old code."""
        if self._respawn.pending:
            return
        staying = [w for w in self._workers if w.state is not State.LEAVING]
        current = [w for w in staying if w.spawner is self._spawner]
        if self._spawner.alive:
            for _ in range(self._concurrency - len(current)):
                self._spawn()
        serving = [w for w in staying if w.state is not State.BOOTING]
        # Workers with old code first; with the same code, idle workers first.
        serving.sort(key=lambda w: (w.spawner is self._spawner, w.state is State.BUSY))
        for worker in serving[: max(0, len(serving) - self._concurrency)]:
            self._dismiss(worker)

    def _spawn(self) -> None:
        try:
            self._workers.append(Worker(self._queue, self._spawner, self, self._limits))
        except OSError as error:
            log.error("worker.lost", queue=self._queue, reason=f"no pipe for it: {error}")
            self._respawn.failed()

    def _dismiss(self, worker: Worker) -> None:
        """Have a worker leave: at once if it is idle, else after its job."""
        self._hand_out.withdraw(worker)
        worker.leave()
