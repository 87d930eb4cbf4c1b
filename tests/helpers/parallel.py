"""Runs the tests in several processes (``--processes``), forked from the one that collected them.

A process that starts anew, as those of pytest-xdist do, imports and collects all tests again: 7 s of CPU.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_SHORT = ("store", "unit")
"""The folders with the shortest tests."""
_COSTLY = {
    "_browser": "Chromium",
    "client_environment": "clients",
    "project": "Django",
    "_console": "Sidekiq",
}
"""Fixtures of a session that use seconds of CPU in each process that sets them up, by what they start."""
_PROCESSES = {"Chromium": 3, "clients": 2, "Django": 2, "Sidekiq": 2}
"""In how many processes each is set up."""
_LOOK_S = 1.0
"""How long the end of a process stays unseen whose connection a program that it started keeps open."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--processes``."""
    parser.addoption("--processes", type=int, default=1, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks; leave it to pytest if there is one process, or no test to run."""
    option = session.config.option
    if option.processes < 2 or option.collectonly or session.testsfailed:
        return None
    # Each process captures output in its own files.
    capturing = session.config.pluginmanager.getplugin("capturemanager")
    capturing.stop_global_capturing()
    # They share the folder of folders, which is made when it is first asked for.
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    _Processes(session).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def by_module(items: Sequence[tuple[Path, Collection[str]]]) -> list[list[int]]:
    """The numbers of the tests of each module, given the file and the fixtures of each test.

    Modules with the same costly fixture are one, or a few. Of those with short tests, the ones in the second
    half are last, so that the processes end at nearly the same time. The others stay where they are, so that
    tests of other folders also run after them.
    """
    modules: dict[object, list[int]] = {}
    found: Counter[str] = Counter()
    for path, some in itertools.groupby(range(len(items)), key=lambda number: items[number][0]):
        numbers = list(some)
        used = {fixture for number in numbers for fixture in items[number][1]}
        costly = next((name for fixture, name in _COSTLY.items() if fixture in used), "")
        found[costly] += 1
        key = (costly, found[costly] % _PROCESSES[costly]) if costly else path
        modules.setdefault(key, []).extend(numbers)
    given = list(modules.values())
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    return first + sorted(second, key=lambda numbers: items[numbers[0]][0].parent.name in _SHORT)


class Shares:
    """The numbers of the tests that are still to run: each process takes one module after the other.

    The tests of a module have fixtures and caches in common. It is divided when no other one is left.
    """

    def __init__(self, modules: Iterable[Iterable[int]], processes: int) -> None:
        self._modules = deque(map(deque, modules))
        self._shares: list[deque[int]] = [deque() for _ in range(processes)]

    def take(self, process: int) -> int | None:
        """The next test of a process; without another module it takes half of the largest share."""
        share = self._shares[process]
        if not share and self._modules:
            share.extend(self._modules.popleft())
        elif not share:
            largest = max(self._shares, key=len)
            for _ in range((len(largest) + 1) // 2):
                share.appendleft(largest.pop())
        return share.popleft() if share else None

    def give_back(self, process: int, tests: Sequence[int]) -> None:
        """Have tests again that a process did not run."""
        self._shares[process].extendleft(tests)


@dataclass
class _Process:
    number: int
    process: BaseProcess
    connection: Connection
    # The test that it runs, and the next one.
    given: deque[int] = field(default_factory=deque)
    # There are no more for it.
    has_all: bool = False


class _Processes:
    """The parent's side: it gives tests to the processes, and reports their results."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        modules = by_module([(item.path, getattr(item, "fixturenames", ())) for item in session.items])
        self._shares = Shares(modules, session.config.option.processes)
        self._running: list[_Process] = []

    def run(self) -> None:
        """Run all tests, or those until the session is to end."""
        try:
            for number in range(self._session.config.option.processes):
                self._start(number)
            while self._running:
                wait([process.connection for process in self._running], _LOOK_S)
                for process in list(self._running):
                    self._look(process)
        finally:
            # After an exception: without a connection, each ends after its test.
            for process in self._running:
                process.connection.close()
            for process in self._running:
                process.process.join()

    def _start(self, number: int) -> None:
        connection, theirs = multiprocessing.Pipe()
        ours = [connection, *(process.connection for process in self._running)]
        arguments = (self._session, number, theirs, ours)
        started = multiprocessing.get_context("fork").Process(target=_run_tests, args=arguments)
        started.start()
        theirs.close()
        self._running.append(process := _Process(number, started, connection))
        # A test runs with the next one known: what both need stays.
        self._give(process)
        self._give(process)

    def _give(self, process: _Process) -> None:
        if process.has_all:
            return
        is_ending = self._session.shouldfail or self._session.shouldstop
        test = None if is_ending else self._shares.take(process.number)
        process.has_all = test is None
        if test is not None:
            process.given.append(test)
        # `_look` sees that it has ended.
        with suppress(ConnectionError):
            process.connection.send(test)

    def _look(self, process: _Process) -> None:
        """Report what a process has sent; start another one if it died before its tests were done."""
        has_ended = not process.process.is_alive()
        with suppress(EOFError, ConnectionError):
            while process.connection.poll():
                reports = process.connection.recv()
                self._report(process.given.popleft(), reports)
                self._give(process)
        if has_ended:
            process.connection.close()
            self._running.remove(process)
            code = process.process.exitcode
            if code or process.given:
                self._died(process, f"the process of this test ended with exit code {code}")

    def _died(self, process: _Process, how: str) -> None:
        if not process.given:
            self._session.shouldfail = f"after its last test, {how}"
            return
        test = process.given.popleft()
        item = self._session.items[test]
        died = pytest.TestReport(item.nodeid, item.location, {}, "failed", how, "call")
        self._report(test, [item.config.hook.pytest_report_to_serializable(config=item.config, report=died)])
        self._shares.give_back(process.number, process.given)
        self._start(process.number)

    def _report(self, test: int, reports: Sequence[dict[str, Any]]) -> None:
        item = self._session.items[test]
        hook, config = item.ihook, item.config
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class _Sender:
    """The plugin of a forked process: it sends the reports of each test."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run the test, and tell nothing to the terminal."""
        to_data = item.config.hook.pytest_report_to_serializable
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self._connection.send([to_data(config=item.config, report=report) for report in reports])
        return True


def _run_tests(
    session: pytest.Session, number: int, connection: Connection, others: list[Connection]
) -> None:
    """Run the tests whose numbers arrive, in a forked process; None is after the last one."""
    for other in others:
        other.close()
    # As pytest-xdist names them, for what depends on the process: ports, what all processes share.
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(session.config.option.processes)
    plugins = session.config.pluginmanager
    capturing = plugins.getplugin("capturemanager")
    capturing.start_global_capturing()
    # As pytest-xdist does: there is no public way to give a process its own folder.
    folders = session.config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.getbasetemp() / f"process{number}"
    folders._basetemp.mkdir(exist_ok=True)
    plugins.register(_Sender(connection))
    try:
        # The parent ends early: a connection without an end, or a signal to both.
        with suppress(EOFError, ConnectionError, KeyboardInterrupt):
            test = connection.recv()
            while test is not None:
                following = connection.recv()
                item, nextitem = (None if n is None else session.items[n] for n in (test, following))
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                test = following
    finally:
        session._setupstate.teardown_exact(None)
        capturing.stop_global_capturing()
