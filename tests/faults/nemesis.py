"""The nemesis of the soak: each method does one fault to a running fleet, and returns when it is over.

What is random is drawn from ``rng`` alone, so that a seed repeats the choice of faults. A method returns
False where there was nothing to do it to; then nothing was done.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import redis

from tests.faults.fleet import LEASE_S, Fleet, Server, stopped
from tests.faults.ledger import clock
from tests.helpers.processes import children, process_alive
from tests.helpers.proxy import Proxy, Trap, script
from tests.helpers.redises import OwnRedis
from tests.helpers.replies import as_list
from tests.helpers.support import stretched, wait_for

# Each prevents renewals for a moment; two of them in a row may outlast a lease.
_HINDERING = (
    "pause_master", "drop", "partition", "lose_reply", "kill_clients", "pause_clients", "fill_redis", "slow",
)  # fmt: skip
_LATE_S = 4 * LEASE_S
SCRIPTS = ("exchange", "renew", "promote", "recover")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from its begin to its end (``ledger.clock``); ``breaks_leases`` if it outlasts them."""

    name: str
    began: float
    ended: float
    breaks_leases: bool


class Nemesis:
    """``own`` is the Redis of the fleet if it may be hurt, None where it belongs to others, too."""

    def __init__(self, fleet: Fleet, proxies: list[Proxy], own: OwnRedis | None, rng: random.Random) -> None:
        self._fleet = fleet
        self._proxies = proxies
        self._own = own
        self._rng = rng
        self.done: Counter[str] = Counter()
        self._recent: list[Fault] = []
        safe = [
            self.kill_worker, self.stop_worker, self.kill_fork_server, self.kill_master, self.stop_master,
            self.pause_master, self.terminate_master, self.reload, self.drop, self.cut, self.slow,
            self.partition, self.isolate, self.lose_reply, self.lose_job, self.delete_lease,
        ]  # fmt: skip
        hurting = [
            self.flush_scripts, self.kill_clients, self.pause_clients, self.crash_redis, self.stop_redis,
            self.demote_redis, self.fill_redis,
        ]  # fmt: skip
        self._faults: list[Callable[[], bool]] = safe + (hurting if own else [])

    def strike(self) -> Fault | None:
        """Do one fault; None if there was nothing to do it to."""
        fault = self._rng.choice(self._faults)
        began = clock()
        if not fault():
            return None
        breaking = fault.__name__ in ("stop_master", "isolate", "stop_redis", "crash_redis", "demote_redis")
        self.done[fault.__name__] += 1
        self._recent.append(Fault(fault.__name__, began, clock(), breaking))
        return self._recent[-1]

    def touched(self, first: float, last: float) -> int:
        """How many faults may have touched what happened between two moments: their effects take a while."""
        return len(self._touching(first, last, _LATE_S))

    def may_break_leases(self, first: float, last: float) -> bool:
        """Whether faults may have outlasted a lease between two moments."""
        hindering = [fault for fault in self._touching(first, last, 2 * LEASE_S) if fault.name in _HINDERING]
        return len(hindering) > 1 or any(
            fault.breaks_leases for fault in self._touching(first, last, _LATE_S)
        )

    def _touching(self, first: float, last: float, late_s: float) -> list[Fault]:
        return [fault for fault in self._recent if fault.began <= last and fault.ended + late_s >= first]

    def clear(self) -> None:
        """Forget, at rest, the faults whose effects are over."""
        self._recent = [fault for fault in self._recent if fault.ended + _LATE_S >= clock()]

    # Processes

    def _server(self) -> Server:
        return self._rng.choice(self._fleet.servers)

    def _worker(self) -> int | None:
        server = self._server()
        number = self._rng.random()
        found = [pid for forker in children(server.pid) for pid in children(forker) if process_alive(pid)]
        return sorted(found)[int(number * len(found))] if found else None

    def kill_worker(self) -> bool:
        pid = self._worker()
        with contextlib.suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def stop_worker(self) -> bool:
        pid = self._worker()
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, AssertionError):
            if pid is not None:
                with stopped(pid):
                    time.sleep(1)
                return True
        return False

    def kill_fork_server(self) -> bool:
        found = [pid for pid in children(self._server().pid) if children(pid)]
        if not found:
            return False
        os.kill(found[0], signal.SIGKILL)
        return True

    def kill_master(self) -> bool:
        server = self._server()
        os.kill(server.pid, signal.SIGKILL)
        server.vanish()
        server.start_again()
        return True

    def stop_master(self) -> bool:
        with stopped(self._server().pid):
            time.sleep(2.5 * LEASE_S)
        return True

    def pause_master(self) -> bool:
        with stopped(self._server().pid):
            time.sleep(0.3 * LEASE_S)
        return True

    def terminate_master(self) -> bool:
        server = self._server()
        assert server.stop() == 0, server.log_text()[-5000:]
        server.start_again()
        return True

    def reload(self) -> bool:
        server = self._server()
        count = len(server.events("reload.done"))
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done", count + 1)
        return True

    # The network

    def drop(self) -> bool:
        return self._rng.choice(self._proxies).drop() > 0

    def cut(self) -> bool:
        proxy = self._rng.choice(self._proxies)
        proxy.reset_after = self._rng.randrange(10_000)
        wait_for(lambda: proxy.reset_after is None, message="a connection is cut")
        return True

    def slow(self) -> bool:
        proxy = self._rng.choice(self._proxies)
        proxy.delay_s = 0.05
        time.sleep(1)
        proxy.delay_s = 0
        return True

    def partition(self) -> bool:
        with self._rng.choice(self._proxies).partition():
            time.sleep(0.4 * LEASE_S)
        return True

    def isolate(self) -> bool:
        with self._rng.choice(self._proxies).partition():
            time.sleep(2.5 * LEASE_S)
        return True

    def lose_reply(self) -> bool:
        proxy, name = self._rng.choice(self._proxies), self._rng.choice(SCRIPTS)
        return self._spring(proxy, Trap(script(name), action=self._rng.choice(["reset", "swallow"])))

    def lose_job(self) -> bool:
        proxy = self._rng.choice(self._proxies)
        return self._spring(proxy, Trap(b"BRPOPLPUSH", b'"jid"', self._rng.choice(["reset", "swallow"])))

    def _spring(self, proxy: Proxy, trap: Trap) -> bool:
        proxy.trap(trap)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: trap.sprung, timeout=stretched(3))
        with proxy.quiet():
            trap.times = 0
        return trap.sprung > 0

    # Redis

    def delete_lease(self) -> bool:
        owners = sorted(as_list(self._fleet.redis.hkeys(self._fleet.keys.owners)))
        place = self._rng.random()
        if not owners:
            return False
        return self._fleet.redis.delete(self._fleet.keys.lease(owners[int(place * len(owners))].decode())) > 0

    def flush_scripts(self) -> bool:
        return bool(self._fleet.redis.script_flush())

    def kill_clients(self) -> bool:
        return self._fleet.redis.client_kill_filter(_type="normal", skipme=True) > 0

    def pause_clients(self) -> bool:
        self._fleet.redis.client_pause(700)
        time.sleep(0.7)
        return True

    def crash_redis(self) -> bool:
        assert self._own is not None
        self._own.kill()
        time.sleep(self._rng.random())
        self._own.start()
        return True

    def stop_redis(self) -> bool:
        assert self._own is not None
        with self._own.stopped():
            time.sleep(LEASE_S * self._rng.random() * 2)
        return True

    def demote_redis(self) -> bool:
        """A replica without a primary for a moment."""
        self._fleet.redis.replicaof("127.0.0.1", 1)
        time.sleep(1)
        self._fleet.redis.replicaof("NO", "ONE")
        return True

    def fill_redis(self) -> bool:
        self._fleet.redis.config_set("maxmemory", 1)
        time.sleep(1)
        self._fleet.redis.config_set("maxmemory", 0)
        with contextlib.suppress(redis.RedisError):
            self._fleet.redis.ping()
        return True
