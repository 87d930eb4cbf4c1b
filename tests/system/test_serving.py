"""``pyworkers.serve``: a real server in a child process of a program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyworkers import (
    AsyncClient,
    Cancelled,
    Client,
    Worker,
    parallel,
    serve,
)
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.errors import (
    AppImportError,
    ConfigError,
    PyworkersError,
    RedisUnavailableError,
)
from pyworkers.serving.naming import import_path
from tests.helpers.processes import process_alive
from tests.helpers.server_process import HEADER
from tests.helpers.support import PATIENCE_S, ROOT, next_line, wait_for, whole_lines

APP = """
@worker.job(track=60)
def add(a, b):
    return a + b

@worker.job
def slow(name):
    note("start", name)
    wait_for_file(name)
    note("end", name)
"""
PROGRAM = """
import sys, time
from pyworkers import serve
from served import slow, worker
with serve(worker, {"redis": {"url": "embedded:data"}}, log="log") as server, server.redirect():
    slow.enqueue("finish")
    print(server.pid, flush=True)
    time.sleep(600)
"""
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An application in a module that this process has imported from a new folder."""
    (tmp_path / "served.py").write_text(HEADER + APP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "served", raising=False)
    yield import_module("served")
    del sys.modules["served"]


@pytest.fixture
def config(one_redis_url: str, namespace: str) -> dict[str, Any]:
    return {"redis": {"url": one_redis_url, "namespace": namespace}}


def notes(folder: Path) -> list[str]:
    path = folder / "ledger"
    return [line.split(", ", 1)[1] for line in whole_lines(path)] if path.exists() else []


def test_what_this_process_enqueues_goes_to_the_server(
    app: ModuleType, config: dict[str, Any], tmp_path: Path
) -> None:
    stray = Worker(NOWHERE)
    with serve(app.worker, config, log=tmp_path / "log") as server, server.redirect():
        assert server.running
        assert server.config.app == "served:worker"
        assert app.worker.result(app.add.enqueue(1, 2)) == 3
        jid = Client(NOWHERE).enqueue("default", "add", [3, 4], track=60)
        assert stray.result(jid) == stray.client.result(jid) == 7
        jid = asyncio.run(AsyncClient(NOWHERE).enqueue("default", "add", [5, 6], track=60))
        assert asyncio.run(AsyncClient(NOWHERE).result(jid)) == 11
        assert parallel(app.add.call(1, 1), app.add.call(2, 2)).enqueue().result() == [2, 4]
        jid = app.slow.enqueue_in(600, "never")
        assert stray.find(jid).state == "scheduled"
        assert stray.cancel(jid) is Cancelled.REMOVED
    assert not server.running
    assert '"event": "server.stopped"' in (tmp_path / "log").read_text()


def test_stop_waits_for_running_jobs(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    server = serve("served:worker", config)
    with server.redirect():
        app.slow.enqueue("finish")
    wait_for(lambda: notes(tmp_path))
    stop = threading.Thread(target=server.stop)
    stop.start()
    os.kill(server.pid, 0)
    (tmp_path / "finish").touch()
    stop.join()
    server.stop()
    assert notes(tmp_path) == ['"start", "finish"]', '"end", "finish"]']


def test_a_file_and_a_config(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "workers.toml"
    path.write_text(
        f'app = "served:worker"\n[redis]\nurl = "{config["redis"]["url"]}"\n'
        f'namespace = "{config["redis"]["namespace"]}"\n'
    )
    redis = RedisConfig(**config["redis"])
    for given in (path, str(path), Config(redis=redis)):
        with serve(app.worker, given) as server:
            assert server.config.redis == redis


def test_a_dict_holds_all_that_a_file_does(app: ModuleType, config: dict[str, Any]) -> None:
    entry = {"name": "hourly", "every": "1h", "class": "add", "args": [1, 2]}
    group = {"queues": {"default": 2, "low.priority": 1}}
    with serve(app.worker, {**config, "cron": [entry], "groups": {"g": group}}) as server:
        assert [found.job_class for found in server.config.cron] == ["add"]
        assert server.config.groups["g"].queues == {"default": 2, "low.priority": 1}


def test_what_the_server_says_is_raised(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    with pytest.raises(AppImportError, match="No module named 'nothing_of_that_name'") as caught:
        serve("broken:worker", config)
    assert "broken.py" in caught.value.__notes__[0]
    with pytest.raises(RedisUnavailableError):
        serve(app.worker, {"redis": {"url": NOWHERE}})
    with pytest.raises(ConfigError, match="nothing"):
        serve(app.worker, {**config, "queues": {"nothing": {"concurrency": 2}}})


def test_a_configuration_that_is_wrong_starts_nothing(app: ModuleType, tmp_path: Path) -> None:
    wrong = r"config of serve: unknown key server\.leese\n.*did you mean server\.lease"
    with pytest.raises(ConfigError, match=wrong):
        serve(app.worker, {"server": {"leese": 3}})
    with pytest.raises(ConfigError, match="no such file"):
        serve(app.worker, tmp_path / "missing.toml")


def test_a_log_that_cannot_be_written(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing/log"):
        serve(app.worker, config, log=tmp_path / "missing" / "log")


def test_an_application_without_an_import_path_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"not in a module that another process can import\nput the Worker"):
        serve(Worker(), config)
    code = "import multiprocessing; from pyworkers import *; worker = Worker(); serve(worker, {})"
    program = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert b"ConfigError: the application is in __main__, which another process cannot" in program.stderr


def test_a_server_that_dies_is_an_error(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    said = r"(?s)has failed: killed by signal 9\nthe end of .*server\.started"
    with pytest.raises(PyworkersError, match=said), serve(app.worker, config, log=log) as server:
        os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ValueError, match="of the block"), serve(app.worker, config) as server:
        os.kill(server.pid, signal.SIGKILL)
        raise ValueError("of the block")


def test_another_module_of_the_name_is_not_served(
    app: ModuleType, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "served.py").write_text("raise AssertionError('another module')")
    monkeypatch.chdir(folder)
    with serve(app.worker, config) as server:
        assert server.running


def test_the_child_finds_modules_where_this_process_does(
    app: ModuleType, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = import_path()
    assert (path[0], path[-1]) == (str(Path(app.__file__ or "").parent), str(Path.cwd()))
    assert not any("site-packages" in entry for entry in path)
    given = str(Path(pytest.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", given)
    assert given in import_path()


def test_a_fork_of_the_program_does_not_stop_it(app: ModuleType, config: dict[str, Any]) -> None:
    with serve(app.worker, config) as server:
        if (pid := os.fork()) == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert server.running


def test_it_cannot_be_replaced(app: ModuleType, config: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serve(app.worker, config, log=log) as server:
        os.kill(server.pid, signal.SIGUSR2)
        wait_for(lambda: "belongs to the program that has started it" in log.read_text())


@pytest.mark.fault("M12")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_program_is_that_of_a_server_that_starts(
    tmp_path: Path, valkey_binary: str, number: signal.Signals
) -> None:
    (tmp_path / "served.py").write_text(
        "import os, time\n"
        "from pathlib import Path\n"
        "Path('pids').write_text(f'{os.getppid()} {os.getpid()}\\n')\n"
        "time.sleep(600)\n"
    )
    code = (
        "from pyworkers import serve\nserve('served:worker', {'redis': {'url': 'embedded:data'}}, log='log')"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: (tmp_path / "pids").exists() and whole_lines(tmp_path / "pids"))
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        os.killpg(program.pid, number)
        wait_for(lambda: not any(process_alive(pid) for pid in pids))
        wait_for(lambda: "bye" in (tmp_path / "data" / "valkey.log").read_text())
    finally:
        program.kill()
        program.wait()


@pytest.mark.fault("M12")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_program_is_that_of_the_server(
    tmp_path: Path, valkey_binary: str, number: signal.Signals
) -> None:
    (tmp_path / "served.py").write_text(HEADER + APP)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        pid = int(next_line(program))
        wait_for(lambda: notes(tmp_path))
        # As the terminal does it: to all processes of the group.
        os.killpg(program.pid, number)
        log = tmp_path / "log"
        wait_for(lambda: '"event": "server.stopping"' in log.read_text())
        (tmp_path / "finish").touch()
        wait_for(lambda: not process_alive(pid))
        assert notes(tmp_path) == ['"start", "finish"]', '"end", "finish"]']
        assert '"event": "server.stopped"' in log.read_text()
        wait_for(lambda: "bye" in (tmp_path / "data" / "valkey.log").read_text())
    finally:
        program.kill()
        program.communicate()


def test_a_program_without_standard_streams_serves(
    app: ModuleType, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    program = """
import os, sys, time
os.closerange(0, 3)
from pyworkers import serve
from served import slow, worker
with serve(worker, {"redis": {"url": sys.argv[1], "namespace": sys.argv[2]}}) as server, server.redirect():
    streams = [os.readlink(f"/proc/{server.pid}/fd/{number}") for number in range(3)]
    slow.enqueue("finish")
    with open("streams", "x") as file:
        print(*streams, file=file)
    # The server ends with this program, and might not have taken the job yet.
    while not os.path.exists("ledger") or '"end"' not in open("ledger").read():
        time.sleep(0.01)
    os._exit(0 if server.running else 1)
"""
    (tmp_path / "finish").touch()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, one_redis_url, namespace]
    assert subprocess.run(command, cwd=tmp_path, env=env, timeout=PATIENCE_S).returncode == 0
    assert (tmp_path / "streams").read_text() == "/dev/null /dev/null /dev/null\n"
    assert notes(tmp_path) == ['"start", "finish"]', '"end", "finish"]']
