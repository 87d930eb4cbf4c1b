"""Servers of one ordered queue, whose jobs write one ledger."""

from __future__ import annotations

from pathlib import Path

from pyworkers.api import Stats
from tests.helpers.records import job
from tests.helpers.server_process import ServerProcess

CODE = """
ledger = Path({ledger!r})

@worker.process("ledger", ordered=True, retry=2, retry_in=lambda *_: 0.2{options})
def handle(message):
    name = message.args[0]
    note("start", name, message.fence, message.attempt)
    if name == "meet":
        wait_for_file(name)
    if name == "fail" or name == "flaky" and message.attempt == 0:
        raise ValueError(name)
    if name == "later" and message.attempt == 0:
        raise Retry(delay=3600)
    if name == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", name, message.fence)
"""


class Servers:
    """Servers of the queue ``ledger``; jobs named ``meet`` end once the file ``meet`` exists."""

    def __init__(self, folder: Path, url: str, namespace: str) -> None:
        self._folder = folder
        self._place = url, namespace
        self._all: list[ServerProcess] = []

    def start(self, options: str = "", lease: float = 30, **environment: str) -> ServerProcess:
        """One more server. ``options`` are further ones of the decorator."""
        folder = self._folder / f"s{len(self._all)}"
        folder.mkdir()
        for name in ("ledger", "meet"):
            (folder / name).symlink_to(self._folder / name)
        server = ServerProcess(folder, *self._place, PYWORKERS_SERVER__LEASE=str(lease), **environment)
        self._all.append(server)
        server.write_app(CODE.format(ledger=str(self._folder / "ledger"), options=options))
        return server.start()

    def let_go(self) -> None:
        """End the jobs named ``meet``."""
        (self._folder / "meet").touch()

    def kill(self) -> None:
        """End all of them."""
        for server in self._all:
            server.kill()


def push(server: ServerProcess, *names: str) -> None:
    """Enqueue jobs of these names, in this order."""
    server.push("ledger", *(job(f"{name}-{place}", "Any", name) for place, name in enumerate(names)))


def started(server: ServerProcess) -> list[str]:
    """The names of the jobs that have started, in the order of their starts."""
    return [note[2] for note in server.ledger() if note[1] == "start"]


def fence(server: ServerProcess, name: str) -> int:
    """The token of the last start of a job."""
    found: int = [note[3] for note in server.ledger() if note[1:3] == ["start", name]][-1]
    return found


def active(server: ServerProcess) -> str:
    """The active server."""
    queues = Stats.fetch(server.url, namespace=server.keys.namespace).queues
    return next((queue.active for queue in queues if queue.name == "ledger"), "")
