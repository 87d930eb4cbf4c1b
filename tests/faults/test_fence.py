"""Jobs that must not overlap end before another run starts, while their server cannot renew its lease."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.helpers.processes import process_alive
from tests.helpers.proxy import Proxy, proxied
from tests.helpers.records import job
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import PATIENCE_S, wait_for

LEASE_S, LONGER_LEASE_S = 3, 9
"""A job that was asked has a fifteenth of the lease to end. A busy machine may take longer than 0.2 s."""
# Each job writes while it runs, until the file ``done`` is there. With ``swallows`` it ignores requests.
CODE = """
from time import monotonic
ledger = Path({ledger!r})

def write(name, swallows=False):
    note("start", name, monotonic())
    until = monotonic() + 60
    while monotonic() < until and not Path({done!r}).exists():
        try:
            time.sleep(0.01)
            note("write", name, monotonic())
        except BaseException:
            if mode != "thread" and not swallows:
                raise
    note("end", name, monotonic())

@worker.process("ordered", ordered=True{mode})
def ordered(message):
    write("fenced", *message.args)

@worker.process("fenced", fenced=True, concurrency=2{mode})
def fenced(message):
    write("fenced", *message.args)

@worker.process("plain", concurrency=2{mode})
def plain(message):
    write("plain", *message.args)

@worker.job(queue="coroutines", mode="async", concurrency=3, fenced=True)
async def coroutine(swallows=False):
    import asyncio
    # On a thread, which no cancellation ends.
    await asyncio.to_thread(write, "fenced", swallows)

@worker.job(queue="coroutines")
async def bystander(swallows=False):
    import asyncio
    await asyncio.to_thread(write, "plain", swallows)
"""


class Two:
    """A server behind a proxy, and one that takes over what the first one had."""

    def __init__(self, folder: Path, url: str, proxy: Proxy, namespace: str, mode: str, lease_s: int) -> None:
        self.proxy = proxy
        self._lease_s = lease_s
        self.ledger = folder / "ledger"
        self._done = folder / "done"
        self._mode = f', mode="{mode}"' if mode == "thread" else ""
        self.first = self._made(folder / "first", proxy.url, url, namespace)
        self.second = self._made(folder / "second", url, url, namespace)

    def _made(self, folder: Path, url: str, direct_url: str, namespace: str) -> ServerProcess:
        folder.mkdir()
        (folder / "ledger").symlink_to(self.ledger)
        server = ServerProcess(
            folder, url, namespace, direct_url=direct_url, PYWORKERS_SERVER__LEASE=str(self._lease_s)
        )
        server.write_app(CODE.format(ledger=str(self.ledger), done=str(self._done), mode=self._mode))
        return server

    def let_go(self) -> None:
        self._done.touch()

    def kill(self) -> None:
        self.first.kill()
        self.second.kill()


@pytest.fixture
def two(tmp_path: Path, redis_url: str, namespace: str, request: pytest.FixtureRequest) -> Iterator[Two]:
    params = request.node.callspec.params
    lease_s = LEASE_S if params.get("swallows", True) else LONGER_LEASE_S
    with proxied(redis_url) as proxy:
        servers = Two(tmp_path, redis_url, proxy, namespace, params["mode"], lease_s)
        try:
            yield servers
        finally:
            servers.kill()


@contextlib.contextmanager
def frozen(two: Two) -> Iterator[None]:
    """The master alone is stopped."""
    os.kill(two.first.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(two.first.pid, signal.SIGCONT)


def cut_off(two: Two) -> AbstractContextManager[None]:
    """Nothing passes between the first server and Redis."""
    return two.proxy.partition()


@pytest.mark.fault("O5")
@pytest.mark.parametrize("swallows", [False, True], ids=["asked", "killed"])
@pytest.mark.parametrize("fault", [frozen, cut_off])
@pytest.mark.parametrize(
    ("mode", "queue"),
    [("process", "ordered"), ("process", "fenced"), ("thread", "ordered"), ("async", "coroutines")],
)
def test_a_fenced_job_ends_before_its_lease_and_others_carry_on(
    two: Two, mode: str, queue: str, fault: Callable[[Two], AbstractContextManager[None]], swallows: bool
) -> None:
    first, second = two.first.start(), two.second
    classes = ("coroutine", "bystander") if mode == "async" else ("Any", "Any")
    first.push(queue, job("a", classes[0], *([True] if swallows else [])))
    others = "coroutines" if mode == "async" else "plain"
    first.push(others, job("b", classes[1]))
    [[one, *_]] = first.wait_for_notes(1, "start", "fenced")
    [[other, *_]] = first.wait_for_notes(1, "start", "plain")
    with fault(two):
        second.start()
        second.wait_for_notes(2, "start", "fenced", timeout=2 * PATIENCE_S)
        # Both write each 10 ms.
        wait_for(lambda: sum(note[0] not in (one, other) for note in first.ledger()) > 20)
        notes = first.ledger()
        before = [note[3] for note in notes if note[0] == one and note[2] == "fenced"]
        again = next(note[3] for note in notes if note[0] != one and note[1:3] == ["start", "fenced"])
        assert before[-1] < again, f"the first run wrote {before[-1] - again:.2f} s after the second started"
        if other != one:
            # Nothing else ends because of it.
            assert process_alive(other)
            at = time.monotonic()
            wait_for(
                lambda: any(
                    note[0] == other and note[1] == "write" and note[3] > at for note in first.ledger()
                )
            )
    two.let_go()
    wait_for(lambda: second.settled(queue, others, sets=("retry", "dead")), timeout=2 * PATIENCE_S)
    assert not first.events("job.failed") + second.events("job.failed")
    if mode != "thread" and not swallows:
        reasons = {event["reason"] for event in first.events("job.interrupted") if "reason" in event}
        assert reasons == {"the server may lose its lease: the job is given back"}


@pytest.mark.parametrize("mode", ["process"])
def test_a_fenced_job_outlasts_an_outage_that_is_shorter(two: Two, mode: str) -> None:
    first = two.first.start()
    first.push("fenced", job("a", "Any"))
    [[pid, *_]] = first.wait_for_notes(1, "start", "fenced")
    with two.proxy.partition():
        time.sleep(LEASE_S / 3)
    at = time.monotonic() + LEASE_S
    wait_for(lambda: first.ledger()[-1][3] > at)
    assert {note[0] for note in first.ledger()} == {pid}
    two.let_go()
    first.wait_for_event("job.done")
