"""Links and jobs, def and async def in any mixture: in their own thread, and as tasks of one loop."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from itertools import product
from typing import Any

import pytest

from pyworkers.app import Worker
from pyworkers.errors import Interrupted, JobCancelled, JobTimeout
from pyworkers.middleware import AsyncCallNext, CallNext, DualLink
from pyworkers.protocol.message import Message, current_message
from pyworkers.protocol.outcome import CANCELLED, DONE, REQUEUE, Fate, Outcome
from pyworkers.worker.asyncrunner import LoopTimer
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Execution
from pyworkers.worker.signals import interrupted
from pyworkers.worker.steps.timelimit import Alarm

MESSAGE = Message.parse(b'{"class":"job","args":[],"jid":"j1"}', "default", str)


def as_task(chain: StepChain, execution: Execution) -> asyncio.Task[Outcome]:
    """The task of a job, as a worker process of mode async makes it."""

    async def run() -> Outcome:
        await chain.run_async(execution)
        return execution.outcome

    task = asyncio.create_task(run())
    execution.deliver_by(task.cancel)
    task.add_done_callback(lambda _: execution.deliver_by(None))
    return task


class Runner:
    """Runs a chain in one of the two ways."""

    def __init__(self, shared: bool) -> None:
        self.shared = shared
        self.bridge = Bridge("async" if shared else "process")

    def chain(self, worker: Worker, limit_s: float = 0.0, **more: Any) -> StepChain:
        runtime = Runtime(self.bridge, 25, lambda: 1_795_225_197.5, random.Random(1), **more)
        return StepChain(worker, worker.lookup("default", "job"), runtime, limit_s)

    def run(self, worker: Worker, execution: Execution | None = None, **more: Any) -> Outcome:
        execution = execution or Execution(MESSAGE)
        chain = self.chain(worker, **more)
        if not self.shared:
            return chain.run(execution)

        async def main() -> Outcome:
            return await as_task(chain, execution)

        return asyncio.run(main())


@pytest.fixture(params=[False, True], ids=["own thread", "shared loop"])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = Runner(request.param)
    yield runner
    runner.bridge.close()


@pytest.fixture
def serial() -> Iterator[Runner]:
    runner = Runner(False)
    yield runner
    runner.bridge.close()


@pytest.fixture
def shared() -> Iterator[Runner]:
    runner = Runner(True)
    yield runner
    runner.bridge.close()


def in_a_loop() -> bool:
    return asyncio._get_running_loop() is not None


_PATH: ContextVar[tuple[str, ...]] = ContextVar("path", default=())


class Notes(list[str]):
    """Notes where each link and the job run. A context variable has the links outside of them."""

    def def_link(self, name: str) -> Callable[[Message, CallNext], Outcome]:
        def link(message: Message, call_next: CallNext) -> Outcome:
            self.add(name, False)
            _PATH.set((*_PATH.get(), name))
            outcome = call_next(message.replace(args=[*message.args, name]))
            self.append(f"{name} out")
            return outcome

        return link

    def async_link(self, name: str) -> Callable[[Message, AsyncCallNext], Any]:
        async def link(message: Message, call_next: AsyncCallNext) -> Outcome:
            self.add(name, True)
            _PATH.set((*_PATH.get(), name))
            await asyncio.sleep(0)
            outcome = await call_next(message.replace(args=[*message.args, name]))
            self.append(f"{name} out")
            return outcome

        return link

    def add(self, name: str, is_async: bool) -> None:
        assert current_message().jid == "j1"
        assert in_a_loop() is is_async
        self.append(name)

    def declare(self, shape: str) -> Worker:
        """A job with links, each of the kind that its letter in ``shape`` gives; the last one is the job."""
        worker = Worker()
        links, job = shape[:-1], shape[-1]
        for number, kind in enumerate(links):
            worker.middleware(
                self.async_link(f"{kind}{number}") if kind == "a" else self.def_link(f"{kind}{number}")
            )

        def work(*args: str) -> None:
            assert _PATH.get() == args
            self.add(f"job {' '.join(args)}", False)

        async def work_async(*args: str) -> None:
            assert _PATH.get() == args
            self.add(f"job {' '.join(args)}", True)
            await asyncio.sleep(0)

        worker.job(name="job")(work_async if job == "a" else work)
        return worker


@pytest.mark.parametrize("shape", ["".join(kinds) for n in (1, 2, 3, 4) for kinds in product("ad", repeat=n)])
def test_links_and_jobs_mix(runner: Runner, shape: str) -> None:
    notes = Notes()
    assert runner.run(notes.declare(shape)) == DONE
    names = [f"{kind}{number}" for number, kind in enumerate(shape[:-1])]
    assert notes == [*names, f"job {' '.join(names)}", *(f"{name} out" for name in reversed(names))]
    assert _PATH.get() == ()


@pytest.mark.parametrize("shape", ["a", "da", "ad", "ada", "dad"])
def test_an_error_passes_all_links_and_is_the_jobs(runner: Runner, shape: str) -> None:
    worker, notes = Worker(), Notes()
    links, job = shape[:-1], shape[-1]
    for kind in links:
        worker.middleware(notes.async_link("x") if kind == "a" else notes.def_link("x"))

    def fail(*args: str) -> None:
        raise SystemExit(3)

    async def fail_async(*args: str) -> None:
        await asyncio.sleep(0)
        fail()

    worker.job(name="job")(fail_async if job == "a" else fail)
    execution = Execution(MESSAGE)
    outcome = runner.run(worker, execution)
    assert (outcome.fate, outcome.error_class, outcome.error_message) == (Fate.RETRY, "SystemExit", "3")
    assert execution.exc_info is not None
    trace = execution.exc_info[2]
    assert trace is not None
    assert trace.tb_frame.f_code.co_filename == __file__
    execution.forget()


@pytest.mark.parametrize("shape", ["da", "ad", "aa", "dd", "ada"])
def test_nothing_of_a_failed_job_is_kept(runner: Runner, shape: str) -> None:
    class Thing:
        pass

    things: list[weakref.ref[Thing]] = []
    worker, notes = Worker(), Notes()
    for kind in shape[:-1]:
        worker.middleware(notes.async_link("x") if kind == "a" else notes.def_link("x"))

    def fail(*args: str) -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        raise ValueError

    async def fail_async(*args: str) -> None:
        fail()

    worker.job(name="job")(fail_async if shape[-1] == "a" else fail)
    execution = Execution(MESSAGE)
    gc.disable()
    try:
        assert runner.run(worker, execution).error_class == "ValueError"
        execution.forget()
        if runner.shared:
            # A thread of the pool keeps its last piece of work until the next one.
            runner.bridge.close()
        deadline = time.monotonic() + 10
        while things[0]() is not None and time.monotonic() < deadline:
            time.sleep(0.001)
        assert things[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", ["a", "d", "da", "ad", "ada"])
@pytest.mark.parametrize("limit_s", [0, 60])
def test_the_context_of_a_job_ends_with_it(runner: Runner, shape: str, limit_s: float) -> None:
    class Thing:
        pass

    things: list[weakref.ref[Thing]] = []
    worker, notes, kept = Worker(), Notes(), ContextVar[Thing]("kept")
    for kind in shape[:-1]:
        worker.middleware(notes.async_link("x") if kind == "a" else notes.def_link("x"))

    def work(*args: str) -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        kept.set(thing)

    async def work_async(*args: str) -> None:
        work()

    worker.job(name="job")(work_async if shape[-1] == "a" else work)
    timer = LoopTimer if runner.shared else Alarm

    async def run() -> None:
        await as_task(runner.chain(worker, limit_s, timer=timer), Execution(MESSAGE))
        # A thread of the pool drops its last piece of work a moment later.
        deadline = time.monotonic() + 60
        while things[0]() is not None and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
        assert things[0]() is None

    gc.disable()
    try:
        if runner.shared:
            asyncio.run(run())
        else:
            assert runner.run(worker, limit_s=limit_s, timer=timer) == DONE
            assert things[0]() is None
    finally:
        gc.enable()


def test_where_all_is_def_there_is_no_loop(serial: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "new_event_loop", None)
    threads = threading.enumerate()
    assert serial.run(Notes().declare("ddd")) == DONE
    assert set(threading.enumerate()) <= set(threads)


def test_a_loop_is_kept_for_the_next_job(serial: Runner) -> None:
    worker, loops = Worker(), list[asyncio.AbstractEventLoop]()

    @worker.job(name="job")
    async def job() -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(2):
        assert serial.run(worker) == DONE
    assert loops[0] is loops[1]


def test_code_in_its_own_thread_runs_there(serial: Runner) -> None:
    worker, threads = Worker(), list[int]()

    @worker.middleware
    def outer(message: Message, call_next: CallNext) -> Outcome:
        threads.append(threading.get_ident())
        return call_next(message)

    @worker.middleware
    async def inner(message: Message, call_next: AsyncCallNext) -> Outcome:
        threads.append(threading.get_ident())
        return await call_next(message)

    @worker.job(name="job")
    def job() -> None:
        threads.append(threading.get_ident())
        # As a def job may do everywhere.
        asyncio.run(asyncio.sleep(0))

    assert serial.run(worker) == DONE
    assert threads == [threading.get_ident()] * 3


def test_def_code_does_not_block_a_shared_loop(shared: Runner) -> None:
    worker, passed = Worker(), threading.Event()

    @worker.job(name="job")
    def job() -> None:
        assert passed.wait(60)

    async def main() -> Outcome:
        task = as_task(shared.chain(worker), Execution(MESSAGE))
        await asyncio.sleep(0)
        # Runs on while the job waits for it.
        passed.set()
        return await task

    assert asyncio.run(main()) == DONE


async def _hidden() -> None: ...


async def _hidden_steps() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("make", [_hidden, _hidden_steps, lambda: (step for step in "ab")])
def test_a_job_that_returns_what_has_not_run_is_not_done(
    runner: Runner, make: Callable[[], Any], is_async: bool
) -> None:
    worker = Worker()

    async def job() -> Any:
        return make()

    worker.job(name="job")(job if is_async else lambda: make())
    outcome = runner.run(worker)
    assert (outcome.fate, outcome.error_class) == (Fate.RETRY, "TypeError")


def test_an_async_link_that_returns_something_else_is_a_bug(runner: Runner) -> None:
    worker = Worker()
    worker.job(name="job")(lambda: None)

    @worker.middleware
    async def wrong(message: Message, call_next: AsyncCallNext) -> Any:
        return "ok"

    assert "wrong returned 'ok', not an Outcome or None" in runner.run(worker).error_message


# --- requests to end --------------------------------------------------------------------------------------


class Waiting:
    """An async job that waits until it is cancelled, and keeps what it saw."""

    def __init__(self, *, swallow: bool = False) -> None:
        self.started = threading.Event()
        self.seen: list[BaseException] = []
        self._swallow = swallow

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            self.seen.append(error)
            if not self._swallow:
                raise


def ask_when(started: threading.Event, ask: Callable[[], None]) -> None:
    def run() -> None:
        assert started.wait(60)
        ask()

    threading.Thread(target=run, daemon=True).start()


def ask(runner: Runner, execution: Execution, request: BaseException, job: Waiting) -> None:
    """Ask the job as its runner would: by a signal to the thread, or on the loop."""
    if runner.shared:

        async def soon() -> None:
            while not job.started.is_set():
                await asyncio.sleep(0.001)
            execution.ask(request)

        asyncio.get_running_loop().create_task(soon())
        return

    def handle(*_: object) -> None:
        execution.ask(request)

    signal.signal(signal.SIGURG, handle)
    ask_when(job.started, lambda: os.kill(os.getpid(), signal.SIGURG))


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGURG, signal.SIGWINCH, signal.SIGALRM)]
    yield
    for number, handler in zip((signal.SIGURG, signal.SIGWINCH, signal.SIGALRM), before, strict=True):
        signal.signal(number, handler)


def run_asked(
    runner: Runner, job: Waiting, request: BaseException, links: str = "", **more: Any
) -> tuple[Outcome, Execution]:
    worker, notes = Worker(), Notes()
    for kind in links:
        worker.middleware(notes.async_link("x") if kind == "a" else notes.def_link("x"))

    async def call(*args: str) -> None:
        await job()

    worker.job(name="job")(call)
    execution = Execution(MESSAGE)
    chain = runner.chain(worker, **more)
    if not runner.shared:
        ask(runner, execution, request, job)
        return chain.run(execution), execution

    async def main() -> Outcome:
        ask(runner, execution, request, job)
        return await as_task(chain, execution)

    return asyncio.run(main()), execution


@pytest.mark.parametrize("links", ["", "d", "a", "ad"])
@pytest.mark.parametrize(
    ("request_", "fate"),
    [
        (JobCancelled("no"), Fate.CANCELLED),
        (Interrupted("stop"), Fate.REQUEUE),
        (JobTimeout("long"), Fate.RETRY),
    ],
)
def test_a_request_cancels_async_code(
    runner: Runner, request_: BaseException, fate: Fate, links: str
) -> None:
    job, ended = Waiting(), list[Execution]()
    outcome, execution = run_asked(runner, job, request_, links, after_request=ended.append)
    assert outcome.fate is fate
    [cancelled] = job.seen
    assert cancelled.args == (request_,)
    assert ended == [execution]
    assert execution.exc_info is not None
    error = execution.exc_info[1]
    assert type(error) is type(request_)
    assert isinstance(error.__cause__, asyncio.CancelledError)
    execution.forget()


def test_a_timeout_shows_where_the_job_was(runner: Runner) -> None:
    _, execution = run_asked(runner, Waiting(), JobTimeout("long"))
    assert execution.exc_info is not None
    trace = execution.exc_info[2]
    assert trace is not None
    assert trace.tb_frame.f_code.co_filename == __file__
    execution.forget()


def test_a_job_that_swallows_its_cancellation_has_ended(runner: Runner) -> None:
    outcome, _ = run_asked(runner, Waiting(swallow=True), JobCancelled(), "ad")
    assert outcome == DONE


def test_a_request_before_the_start_runs_nothing_of_the_job(runner: Runner) -> None:
    job, worker = Waiting(), Worker()
    worker.job(name="job")(job)
    execution = Execution(MESSAGE)
    execution.ask(JobCancelled())
    assert runner.run(worker, execution) == CANCELLED
    assert not job.started.is_set()


def test_a_cancellation_of_its_own_is_a_failure(runner: Runner) -> None:
    worker = Worker()

    @worker.job(name="job")
    async def job() -> None:
        raise asyncio.CancelledError("mine")

    outcome = runner.run(worker)
    assert (outcome.fate, outcome.error_class) == (
        Fate.RETRY,
        "asyncio.exceptions.CancelledError",
    )


def test_def_code_in_its_own_thread_is_interrupted_inside_of_async_links(serial: Runner) -> None:
    worker, notes, seen = Worker(), Notes(), list[BaseException]()
    worker.middleware(notes.async_link("x"))
    execution = Execution(MESSAGE)

    @worker.job(name="job")
    def job(*args: str) -> None:
        try:
            os.kill(os.getpid(), signal.SIGWINCH)
        except BaseException as error:
            seen.append(error)
            raise

    signal.signal(signal.SIGWINCH, lambda *_: execution.ask(interrupted()))
    assert serial.run(worker, execution) == REQUEUE
    assert [type(error) for error in seen] == [Interrupted]


def test_def_code_on_a_shared_loop_is_told_and_runs_to_its_end(shared: Runner) -> None:
    worker, seen = Worker(), list[bool]()
    started = threading.Event()

    @worker.job(name="job")
    def job() -> None:
        seen.append(current_message().stopping)
        started.set()
        deadline = time.monotonic() + 60
        while not current_message().stopping and time.monotonic() < deadline:
            time.sleep(0.001)
        seen.append(current_message().stopping)

    execution = Execution(MESSAGE)

    async def main() -> Outcome:
        task = as_task(shared.chain(worker), execution)
        await asyncio.to_thread(started.wait, 60)
        execution.ask(JobCancelled())
        return await task

    assert asyncio.run(main()) == DONE
    assert seen == [False, True]
    assert not MESSAGE.stopping


def test_a_request_to_def_code_reaches_the_async_code_that_it_calls(shared: Runner) -> None:
    worker, job = Worker(), Waiting()
    inside, go_on = threading.Event(), threading.Event()

    @worker.middleware
    def link(message: Message, call_next: CallNext) -> Outcome:
        inside.set()
        assert go_on.wait(60)
        return call_next(message)

    worker.job(name="job")(job)
    execution = Execution(MESSAGE)

    async def main() -> Outcome:
        task = as_task(shared.chain(worker), execution)
        await asyncio.to_thread(inside.wait, 60)
        execution.ask(JobCancelled())
        go_on.set()
        return await task

    assert asyncio.run(main()) == CANCELLED


def test_a_timeout_around_def_code_takes_effect_at_its_end(shared: Runner) -> None:
    worker, ended = Worker(), list[str]()
    release = threading.Event()

    @worker.middleware
    async def hurry(message: Message, call_next: AsyncCallNext) -> Outcome:
        async with asyncio.timeout(0):
            return await call_next(message)

    @worker.job(name="job")
    def job() -> None:
        assert release.wait(60)
        ended.append("job")

    async def main() -> Outcome:
        task = as_task(shared.chain(worker), Execution(MESSAGE))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.01, release.set)
        return await task

    assert asyncio.run(main()).error_class == "TimeoutError"
    assert ended == ["job"]


@pytest.mark.parametrize("links", ["", "d", "a"])
def test_an_alarm_ends_async_code(serial: Runner, links: str) -> None:
    worker, notes, announced = Worker(), Notes(), list[tuple[int, float]]()
    for kind in links:
        worker.middleware(notes.async_link("x") if kind == "a" else notes.def_link("x"))

    @worker.job(name="job")
    async def job(*args: str) -> None:
        await asyncio.sleep(60)

    outcome = serial.run(
        worker,
        Execution(MESSAGE, 7),
        limit_s=0.05,
        announce_limit=lambda *about: announced.append(about),
        timer=Alarm,
    )
    assert (outcome.fate, outcome.error_class) == (Fate.RETRY, "JobTimeout")
    assert announced == [(7, 0.05)]


@pytest.mark.parametrize("timeout", [1e12, 10**400], ids=["time", "float"])
def test_a_limit_that_no_clock_can_count_is_shortened(serial: Runner, timeout: float) -> None:
    worker, announced = Worker(), list[tuple[int, float]]()
    worker.job(name="job")(lambda *args: None)
    outcome = serial.run(
        worker,
        Execution(MESSAGE, 7),
        limit_s=timeout,
        announce_limit=lambda *about: announced.append(about),
        timer=Alarm,
    )
    assert outcome.fate is Fate.DONE
    assert announced == [(7, 1e9)]


def test_a_request_while_the_loop_is_made_cancels_the_code_on_it(
    serial: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, execution = Worker(), Execution(MESSAGE)
    make = asyncio.new_event_loop

    def late() -> asyncio.AbstractEventLoop:
        execution.ask(JobTimeout("late"))
        return make()

    @worker.job(name="job")
    async def job() -> None:
        await asyncio.sleep(60)

    # asyncio.Runner calls it by its module.
    monkeypatch.setattr(asyncio.events, "new_event_loop", late)
    outcome = serial.run(worker, execution)
    assert (outcome.error_class, outcome.error_message) == ("JobTimeout", "late")
    assert not serial.bridge.loop().is_closed()


def test_the_hooks_of_a_failed_job_do_not_block_a_shared_loop(shared: Runner) -> None:
    worker, passed, heard = Worker(), threading.Event(), list[str]()

    @worker.job(name="job", retry=0)
    async def job() -> None:
        raise ValueError

    @worker.on_exhausted
    def exhausted(message: Message, error: BaseException | None) -> None:
        assert passed.wait(60)
        heard.append(current_message().jid)

    async def main() -> Outcome:
        task = as_task(shared.chain(worker), Execution(MESSAGE))
        await asyncio.sleep(0.01)
        passed.set()
        return await task

    assert asyncio.run(main()).fate is Fate.DEAD
    assert heard == ["j1"]


@pytest.mark.parametrize(
    ("shape", "both", "once"),
    [
        ("a", ["async", "job"], ["async", "job"]),
        ("da", ["def", "d", "async", "job"], ["def", "d", "job"]),
        ("ad", ["async", "a", "def", "job"], ["async", "a", "job"]),
        ("dad", ["def", "d", "async", "a", "def", "job"], ["def", "d", "a", "job"]),
    ],
)
def test_a_link_for_both_forms_is_once_more_around_code_of_the_other_form(
    runner: Runner, shape: str, both: list[str], once: list[str]
) -> None:
    def run(is_for_both: bool) -> list[str]:
        notes: list[str] = []

        def note(name: str) -> DualLink:
            def link(message: Message, call_next: CallNext) -> Outcome:
                notes.append(name or "def")
                return call_next(message)

            async def async_link(message: Message, call_next: AsyncCallNext) -> Outcome:
                notes.append(name or "async")
                return await call_next(message)

            return DualLink(link, async_link, both=is_for_both and not name)

        worker = Worker()
        worker.middleware(note(""))
        for kind in shape[:-1]:
            worker.middleware(note("d").link if kind == "d" else note("a").async_link)

        def work() -> None:
            notes.append("job")

        async def work_async() -> None:
            notes.append("job")

        worker.job(name="job")(work_async if shape[-1] == "a" else work)
        assert runner.run(worker) is DONE
        return notes

    assert (run(True), run(False)) == (both, once)
