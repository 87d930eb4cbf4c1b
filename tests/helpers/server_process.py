"""A real server for tests: ``pyworkers run`` in its own process, with an application written on the spot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, TypeAlias

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role
from tests.helpers import warm
from tests.helpers.acl import url_of
from tests.helpers.processes import children, process_alive
from tests.helpers.redises import all_empty
from tests.helpers.replies import as_list, as_scores
from tests.helpers.support import PATIENCE_S, ROOT, wait_for, whole_lines

HEADER = """
import json, os, signal, sys, time
from pathlib import Path
from pyworkers import *
worker = Worker()
ledger = Path(__file__).with_name("ledger")
def note(*words):
    with ledger.open("a") as file:
        file.write(json.dumps([os.getpid(), *words]) + "\\n")
def wait_for_file(name):
    while not Path(__file__).with_name(name).exists():
        time.sleep(0.005)
def meet(name, *words):
    note(name, *words)
    wait_for_file(name)
"""
WAITING_APP = """
@worker.process("q", concurrency=2)
def handle(message):
    note("start", *message.args)
    if message.args[0] == "wait":
        wait_for_file("finish")
    note("end", *message.args)
"""
"""Notes the start and the end of each job. A job ``wait`` ends once the test has made the file ``finish``."""


Process: TypeAlias = "subprocess.Popen[bytes] | warm.WarmProcess"


class ServerProcess:
    """One ``pyworkers run``; its log, its Redis, and the ledger that its jobs write with ``note(...)``."""

    def __init__(
        self,
        folder: Path,
        url: str,
        namespace: str,
        *options: str,
        direct_url: str | None = None,
        log_level: str | None = "debug",
        imports: Sequence[str] = warm.SERVER,
        **environment: str,
    ) -> None:
        self.folder = folder
        self._imports = imports
        self.keys = Keys(namespace)
        # That of the test; a server that reaches Redis in another way says so.
        self.url = direct_url or url
        self.redis = redis.Redis.from_url(self.url)
        if role := os.environ.get("PYWORKERS_TEST_ROLE"):
            # With the rights that `pyworkers acl` prints, where Redis keeps its users during the test.
            url = url_of(url, Role(role), namespace)
        self._arguments = ["-m", "pyworkers", "run"]
        self._arguments += ["--url", url, "--namespace", namespace, "--log-format", "json", *options]
        if log_level is not None:
            self._arguments += ["--log-level", log_level]
        path = os.pathsep.join([environment.get("PYTHONPATH", ""), str(ROOT)]).lstrip(os.pathsep)
        # Unbuffered, what a job prints comes in pieces, and a log line may come between them.
        self._environment = os.environ | {"PYTHONUNBUFFERED": ""} | environment | {"PYTHONPATH": path}
        self.process: Process | None = None
        self.wrapper: Sequence[str] = ()
        """A program that executes the server, with its words."""

    def write_app(self, code: str, name: str = "tasks.py") -> None:
        path = self.folder / name
        path.write_text(HEADER + textwrap.dedent(code))
        # Compiled code counts as current if the source has the same size and a date in the same second.
        Path(cache_from_source(path)).unlink(missing_ok=True)

    def start(self, *, ready: bool = True, app: str = "tasks:worker") -> ServerProcess:
        with (self.folder / "log").open("ab") as log:
            self.start_with_log(log.fileno(), app=app)
        if ready:
            self.wait_for_event("server.started")
        return self

    def start_with_log(self, log: int, *, app: str = "tasks:worker") -> None:
        """Start it with this descriptor as both of its streams."""
        arguments = [*self._arguments, "--app", app]
        if self.wrapper:
            self.process = subprocess.Popen(
                [*self.wrapper, sys.executable, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        else:
            self.process = warm.start(
                arguments,
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                imports=self._imports,
            )

    @property
    def exited(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End everything, in any state."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.redis.close()

    def let_go(self, name: str) -> None:
        """End the wait of jobs in ``wait_for_file(name)`` and ``meet(name)``."""
        (self.folder / name).touch()

    # What it did

    def log_text(self) -> str:
        return (self.folder / "log").read_text()

    def clear_log(self) -> None:
        """Empty it: the server appends."""
        (self.folder / "log").write_bytes(b"")

    def wait_until_listed(self) -> None:
        """Wait for its first heartbeat: before it, no viewer and no other program knows of the server."""
        pid = f":{self.pid}:".encode()

        def is_listed() -> bool:
            return any(pid in name for name in as_list(self.redis.smembers(self.keys.processes)))

        wait_for(is_listed, message="the server is listed")

    def wait_for_output(self, text: str, timeout: float = PATIENCE_S) -> None:
        """Wait until a job, or the log, has written this."""
        try:
            wait_for(lambda: text in self.log_text(), timeout)
        except AssertionError:
            raise AssertionError(f"no {text!r}; the log:\n{self.log_text()}") from None

    def events(self, name: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """The log lines, of one event, with these fields.

        Stacks (SIGTTIN) are written word by word: a word may stand alone on a line, or before an event.
        """
        found = []
        # Tests look for an event every few milliseconds: most lines need not be parsed.
        quoted = "" if name is None else f'"{name}"'
        for line in self.log_text().splitlines():
            if quoted not in line:
                continue
            with contextlib.suppress(ValueError):
                event = json.loads(line[line.index("{") :])
                named = name is None or event.get("event") == name
                if named and all(event.get(key) == value for key, value in fields.items()):
                    found.append(event)
        return found

    def wait_for_event(
        self, name: str, count: int = 1, timeout: float = PATIENCE_S, **fields: Any
    ) -> dict[str, Any]:
        def seen() -> list[dict[str, Any]]:
            found = self.events(name, **fields)
            return found if len(found) >= count else []

        try:
            return wait_for(seen, timeout)[-1]
        except AssertionError:
            raise AssertionError(f"no {name} {fields}; the log:\n{self.log_text()}") from None

    def ledger(self) -> list[list[Any]]:
        """What jobs noted: the pid, then their words."""
        return [json.loads(line) for line in self._noted_lines()]

    def _noted_lines(self) -> list[str]:
        path = self.folder / "ledger"
        return whole_lines(path) if path.exists() else []

    def wait_for_notes(self, count: int, *words: Any, timeout: float = PATIENCE_S) -> list[list[Any]]:
        def noted() -> list[list[Any]]:
            # No line is parsed before there are as many of them.
            if len(self._noted_lines()) < count:
                return []
            found = [note for note in self.ledger() if note[1 : 1 + len(words)] == list(words)]
            return found if len(found) >= count else []

        try:
            return wait_for(noted, timeout)
        except AssertionError:
            text = f"fewer than {count} notes {words}: {self.ledger()}; the log:\n{self.log_text()}"
            raise AssertionError(text) from None

    # Its Redis

    def push(self, queue: str, *envelopes: dict[str, Any] | bytes) -> None:
        raws = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in envelopes]
        self.redis.lpush(self.keys.queue(queue), *raws)

    def zset(self, name: str) -> list[tuple[bytes, float]]:
        return as_scores(self.redis.zrange(getattr(self.keys, name), 0, -1, withscores=True))

    def make_due(self, name: str) -> None:
        """Have the jobs of this sorted set run now."""
        for raw, _ in self.zset(name):
            self.redis.zadd(getattr(self.keys, name), {raw: time.time()}, xx=True)

    def waiting(self, queue: str) -> int:
        return int(self.redis.llen(self.keys.queue(queue)))

    def inprogress(self, queue: str) -> list[bytes]:
        """The members of every in-progress list of a queue, of any owner."""
        found: list[bytes] = []
        # A scan may show a key twice.
        for key in set(self.redis.scan_iter(f"{self.keys.namespace}queue:{queue}:*:inprogress")):
            found += as_list(self.redis.lrange(key, 0, -1))
        return found

    def settled(self, *queues: str, sets: Iterable[str] = ()) -> bool:
        """True if no job of these queues waits or runs, and none is in one of these sorted sets."""
        return all_empty(
            self.redis,
            [self.keys.queue(queue) for queue in queues],
            [getattr(self.keys, name) for name in sets],
            [f"{self.keys.namespace}queue:{queue}:*:inprogress" for queue in queues],
        )

    def tree(self) -> set[int]:
        """The pids of all processes below the server that live."""
        found: set[int] = set()
        todo = [self.pid]
        while todo:
            for child in children(todo.pop()):
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return {pid for pid in found if process_alive(pid)}


@contextlib.contextmanager
def serving(
    folder: Path,
    url: str,
    namespace: str,
    code: str,
    *options: str,
    direct_url: str | None = None,
    log_level: str | None = "debug",
    imports: Sequence[str] = warm.SERVER,
    **environment: str,
) -> Iterator[ServerProcess]:
    """A started server with this application; its remains are killed after the block.

    ``log_level`` None: the level in the configuration. ``imports``: what it has imported before it starts.
    """
    server = ServerProcess(
        folder, url, namespace, *options,
        direct_url=direct_url, log_level=log_level, imports=imports, **environment,
    )  # fmt: skip
    server.write_app(code)
    try:
        yield server.start()
    finally:
        server.kill()


# An application's code, then what else ``serving`` takes.
Serve: TypeAlias = Callable[..., contextlib.AbstractContextManager[ServerProcess]]
