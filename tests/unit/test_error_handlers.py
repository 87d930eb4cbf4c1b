"""Error handlers: called once after each failed run, def or async def, wherever the job runs."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyworkers import Discard, Interrupted, JobCancelled, Kill, Retry, Snooze
from pyworkers.app import Worker
from pyworkers.errors import DeclarationError, JobTimeout
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind
from pyworkers.protocol.message import Message, current_message
from pyworkers.protocol.outcome import DONE, Fate, Loss, Outcome
from pyworkers.testing import fake, inline
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.chains import Chains
from pyworkers.worker.execution import Execution

Reports = list[tuple[str, BaseException | None, Fate]]


class Runner:
    """Runs the job "job" of an application as a worker process of one mode does."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.bridge = Bridge(mode)

    def run(self, worker: Worker, **fields: Any) -> Outcome:
        data = {"class": "job", "args": [], "jid": "j1", **fields}
        execution = Execution(Message.parse(json.dumps(data).encode(), "default", str))
        handler = worker.lookup("default", "job")
        runtime = Runtime(self.bridge, 25, lambda: 1_795_225_197.5, random.Random(1))
        return self._run(StepChain(worker, handler, runtime), execution)

    def _run(self, chain: StepChain, execution: Execution) -> Outcome:
        if self.mode == "async":
            # On the loop of the process, as the jobs of such a process.
            found: list[Outcome] = []

            async def main() -> None:
                await chain.run_async(execution)
                found.append(execution.outcome)

            self.bridge.run(main)
            return found[0]
        if self.mode == "thread":
            return on_a_thread(self.bridge, lambda: chain.run(execution))
        return chain.run(execution)


def on_a_thread(bridge: Bridge, function: Callable[[], Outcome]) -> Outcome:
    found: list[Outcome] = []

    def run() -> None:
        found.append(function())
        # That of this thread.
        bridge.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(params=["process", "async", "thread"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    found = Runner(request.param)
    yield found
    found.bridge.close()


def reporting(is_async: bool) -> tuple[Worker, Reports]:
    """An application with an error handler, and what that got."""
    worker, reports = Worker(), Reports()

    def handle(message: Message, error: BaseException | None, outcome: Outcome) -> None:
        reports.append((current_message().jid, error, outcome.fate))

    async def handle_async(message: Message, error: BaseException | None, outcome: Outcome) -> None:
        await asyncio.sleep(0)
        handle(message, error, outcome)

    worker.on_error(handle_async if is_async else handle)
    return worker, reports


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])


@BOTH
@pytest.mark.parametrize(
    ("error", "fields", "fate"),
    [
        (ValueError(), {}, Fate.RETRY),
        (ValueError(), {"retry": 0}, Fate.DEAD),
        (ValueError(), {"retry": False}, Fate.DISCARD),
        (SystemExit(3), {}, Fate.RETRY),
        (JobTimeout(), {}, Fate.RETRY),
        (Retry(delay=5), {}, Fate.RETRY),
        (Discard(), {}, Fate.DISCARD),
        (Kill(), {}, Fate.DEAD),
        (Snooze(5), {}, None),
        (JobCancelled(), {}, None),
        (Interrupted(), {}, None),
    ],
)
def test_a_failed_run_is_reported_once(
    runner: Runner, is_async: bool, error: BaseException, fields: dict[str, Any], fate: Fate | None
) -> None:
    worker, reports = reporting(is_async)

    @worker.job
    def job() -> None:
        raise error

    runner.run(worker, **fields)
    assert reports == ([("j1", error, fate)] if fate is not None else [])


@BOTH
def test_no_other_run_is_reported(runner: Runner, is_async: bool) -> None:
    worker, reports = reporting(is_async)
    worker.job(name="job")(lambda: None)
    assert runner.run(worker) is DONE
    runner.run(worker, expiry=1)
    assert reports == []


@BOTH
def test_an_outcome_that_failed_without_an_exception(runner: Runner, is_async: bool) -> None:
    worker, reports = reporting(is_async)
    worker.job(name="job")(lambda: None)
    worker.middleware(lambda message, call_next: Outcome(Fate.DEAD, failed=True))
    runner.run(worker)
    assert reports == [("j1", None, Fate.DEAD)]


@BOTH
def test_a_result_that_cannot_be_kept(runner: Runner, is_async: bool) -> None:
    worker, reports = reporting(is_async)

    @worker.job
    async def job() -> object:
        return object()

    assert runner.run(worker, track=60).fate is Fate.RETRY
    [(_, error, fate)] = reports
    assert (type(error).__name__, fate) == ("BadResultError", Fate.RETRY)


@BOTH
def test_a_limit_that_fails(runner: Runner, is_async: bool) -> None:
    worker, reports = reporting(is_async)
    limit = worker.limit("x", concurrency=1, by=lambda: 1 // 0)
    worker.job(name="job", limits=[limit])(lambda: None)
    assert runner.run(worker).fate is Fate.RETRY
    [(_, error, fate)] = reports
    assert (type(error), fate) == (ZeroDivisionError, Fate.RETRY)


def test_a_handler_that_fails_changes_nothing(runner: Runner) -> None:
    worker, reports = reporting(False)

    @worker.on_error
    def leave(message: Message, error: BaseException | None, outcome: Outcome) -> None:
        sys.exit(1)

    @worker.on_error
    async def fail(message: Message, error: BaseException | None, outcome: Outcome) -> None:
        raise ValueError

    worker.on_error(lambda message, error, outcome: reports.append(("last", error, outcome.fate)))
    worker.on_exhausted(lambda message, error: reports.append(("exhausted", error, Fate.DEAD)))
    failure = ValueError()

    @worker.job
    def job() -> None:
        raise failure

    assert runner.run(worker, retry=0).fate is Fate.DEAD
    assert [name for name, error, _ in reports if error is failure] == ["j1", "last", "exhausted"]


@pytest.mark.parametrize("place", [fake, inline])
def test_a_job_of_a_test_is_reported(place: Callable[..., Any]) -> None:
    worker, reports = reporting(True)

    @worker.job
    def job() -> None:
        raise ValueError("bad")

    with place() as queue, pytest.raises(ValueError, match="bad"):
        job.enqueue()
        queue.drain()
    [(_, error, fate)] = reports
    assert (str(error), fate) == ("bad", Fate.RETRY)


@BOTH
@pytest.mark.parametrize("name", ["WorkerLost", "JobTimeout"])
@pytest.mark.parametrize("fate", [Fate.RETRY, Fate.DEAD])
def test_a_job_that_was_lost_with_its_worker(is_async: bool, name: str, fate: Fate) -> None:
    worker, reports = reporting(is_async)
    exhausted: list[str] = []
    worker.job(name="job", on_exhausted=lambda message, error: exhausted.append(message.jid))(lambda: None)
    bridge = Bridge()
    chains = Chains(worker, Settings(), Runtime(bridge, 25, time.time, random.Random(1)))
    outcome = Outcome(fate, failed=True, error_class=name, error_message="why")
    loss = Loss(b'{"class":"job","args":[]}', "j1", outcome)
    assert chains.run_worker_task(Packet(1, PacketKind.LOST, b"default", loss.pack())).outcome is DONE
    bridge.close()
    [(jid, error, found)] = reports
    assert (jid, type(error).__name__, str(error), found) == ("j1", name, "why", fate)
    assert exhausted == (["j1"] if fate is Fate.DEAD else [])


@pytest.mark.parametrize("function", [lambda message, error: None, lambda: None, 7, int])
def test_a_handler_of_another_shape_is_refused(function: Any) -> None:
    with pytest.raises(DeclarationError, match="on_error") as caught:
        Worker().on_error(function)
    assert "test_error_handlers.py:" in caught.value.location
