"""Fleet: several ``pyworkers run`` with one ledger, a producer, and one look at everything afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from pyworkers import Client
from pyworkers.failpoints import LOG_VARIABLE, VARIABLE
from pyworkers.protocol.keys import Keys
from tests.faults.invariants import check
from tests.faults.ledger import CONCURRENCY_VARIABLE, LEDGER_VARIABLE, SERVER_VARIABLE, Ledger
from tests.helpers.processes import process_alive
from tests.helpers.redises import all_empty
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import PATIENCE_S, stretched, wait_for

APP = "tests.faults.app:worker"
LEASE_S = 2
"""A short lease: peers take over after about 3 s (recovery.py) rather than 45."""


class Server(ServerProcess):
    """One server of a fleet, with its own folder and name."""

    name: str
    fired: Path

    def fired_at(self, place: str) -> bool:
        """Whether the failpoint has been seen to fire."""
        lines = self.fired.read_text().splitlines() if self.fired.exists() else []
        return any(line.startswith(f"{place} ") for line in lines)

    def wait_for_failpoint(self, place: str, timeout: float = PATIENCE_S) -> None:
        """A failpoint that does not fire fails the scenario."""
        wait_for(lambda: self.fired_at(place), timeout, message=f"the failpoint {place} fires")

    def start_again(self) -> None:
        """Start it anew, where its log goes on."""
        count = len(self.events("server.started"))
        self.start(ready=False, app=APP)
        self.wait_for_event("server.started", count + 1)

    def vanish(self, timeout: float = PATIENCE_S) -> None:
        """Wait until nothing is left of it."""
        tree = self.tree()
        assert self.process is not None
        self.process.wait(timeout)
        wait_for(lambda: not any(map(process_alive, tree)), timeout=stretched(2), message="its tree is gone")


class Fleet:
    """Servers and a producer on one Redis and one namespace."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self.folder = folder
        self.url = url
        self.namespace = namespace
        self.keys = Keys(namespace)
        self.redis = redis.Redis.from_url(url)
        self.client = Client(url, namespace=namespace)
        self.ledger = Ledger(folder / "ledger")
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.kill()
        self.client.close()
        self.redis.close()

    # Servers

    def server(
        self,
        *,
        config: str = "",
        failpoints: str = "",
        url: str | None = None,
        concurrency: int = 3,
        lease: float = LEASE_S,
        start: bool = True,
        ready: bool = True,
        **environment: str,
    ) -> Server:
        """Start one; ``url`` is how it reaches Redis, if not as the producer does."""
        name = f"server{len(self.servers)}"
        folder = self.folder / name
        folder.mkdir()
        path = folder / "workers.toml"
        path.write_text(f"[server]\nlease = {lease}\nshutdown_timeout = 5\n{config}")
        environment |= {
            LEDGER_VARIABLE: str(self.ledger.path),
            SERVER_VARIABLE: name,
            CONCURRENCY_VARIABLE: str(concurrency),
            VARIABLE: failpoints,
            LOG_VARIABLE: str(folder / "fired"),
        }
        options = ("--config", str(path))
        server = Server(folder, url or self.url, self.namespace, *options, direct_url=self.url, **environment)
        server.name, server.fired = name, folder / "fired"
        self.servers.append(server)
        if start:
            server.start(ready=ready, app=APP)
        return server

    # Jobs

    def enqueue(self, job_class: str = "work", *args: Any, queue: str = "q", **options: Any) -> str:
        """Enqueue, and say so in the ledger only when that has returned."""
        jid = self.client.enqueue(queue, job_class, args, extra={"unknown": {"kept": [1]}}, **options)
        self.ledger.note("enqueued", jid)
        return jid

    def go(self, place: str = "go") -> None:
        """Let the jobs end that wait for this."""
        (self.folder / place).touch()

    def wait_for_notes(
        self, count: int, word: str, jid: str | None = None, timeout: float = PATIENCE_S
    ) -> None:
        """Wait until the ledger has this many notes of that word (about that job)."""
        try:
            wait_for(lambda: len(self.ledger.notes(word, jid)) >= count, timeout)
        except AssertionError:
            lines = "\n".join(map(str, self.ledger.notes(jid=jid)[-40:]))
            raise AssertionError(
                f"fewer than {count} {word} of {jid}; the ledger:\n{lines}\n{self._logs()}"
            ) from None

    # The end

    def rest(self, timeout: float = PATIENCE_S) -> None:
        """Wait until no job waits, runs, or is due again."""
        queues = [self.keys.queue(queue) for queue in ("q", "other")]
        later = (self.keys.retry, self.keys.schedule)

        def quiet() -> bool:
            with contextlib.suppress(redis.RedisError):
                return all_empty(self.redis, queues, later, [f"{self.namespace}*:inprogress"])
            return False

        try:
            wait_for(quiet, timeout)
        except AssertionError:
            names = sorted(key.decode() for key in self.redis.scan_iter(f"{self.namespace}*"))
            raise AssertionError(f"no rest within {timeout:g} s; keys: {names}\n{self._logs()}") from None

    def _logs(self) -> str:
        """The ends of all logs, for a failure that has to be understood."""
        return "\n".join(f"{s.name}:\n{s.log_text()[-6000:]}" for s in self.servers)

    def check(self, extra_runs: int | dict[str, int] = 0, **options: Any) -> None:
        """All invariants, at rest. ``extra_runs``: how many faults touched each job, or each of these."""
        check(self.ledger, self.redis, self.keys, extra_runs, **options)

    def clear(self) -> None:
        """Forget, at rest, what has been checked: the ledger, the logs and the dead jobs."""
        self.ledger.clear()
        self.redis.delete(self.keys.dead)
        for server in self.servers:
            server.clear_log()

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of all servers."""
        return [event for server in self.servers for event in server.events(name, **fields)]

    def stop(self) -> None:
        """Stop all that still run; each ends with 0."""
        running = [s for s in self.servers if s.process is not None and s.process.poll() is None]
        for server in running:
            server.signal(signal.SIGTERM)
        assert {server.name: server.wait() for server in running} == {s.name: 0 for s in running}


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does not run for the length of a block: SIGSTOP and SIGCONT."""
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: _state(pid) == "T", message=f"{pid} is stopped")
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
