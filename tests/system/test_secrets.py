"""The password of Redis: clients in jobs have it, and neither variables nor command lines show it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import free_port, running_server, wait_for
from tests.helpers.warm import COLD

CODE = """
import subprocess
from pyworkers import Client

at_import = Client()

@worker.job(queue="q")
def look(key):
    mine = "\\0".join(f"{name}={value}" for name, value in os.environ.items())
    programs = subprocess.run(["cat", "/proc/self/environ"], capture_output=True, text=True).stdout
    note("seen", key, mine, Path("/proc/self/environ").read_text(), programs)
    for client in (Client(), at_import, worker.client, Client.of(worker)):
        client.enqueue("q", "arrived", [key])

@worker.job(queue="q")
def arrived(key):
    note("arrived", key)
"""
SECRET = "hunter2secret"


@pytest.fixture
def server(tmp_path: Path, valkey_binary: str) -> Iterator[ServerProcess]:
    (tmp_path / "data").mkdir()
    config = tmp_path / "workers.toml"
    config.write_text(f'[redis]\npassword = "{SECRET}"\n')
    with running_server(valkey_binary, tmp_path / "data", free_port()) as url:
        with redis.Redis.from_url(url) as connection:
            connection.config_set("requirepass", SECRET)
        direct = url.replace("redis://", f"redis://:{SECRET}@")
        options = ("--config", str(config))
        # /proc shows the environment with which a program was executed.
        with serving(
            tmp_path, url, "app:", CODE, *options, direct_url=direct, REDIS_URL="redis://theirs", **COLD
        ) as one:
            yield one


def look(server: ServerProcess, key: str) -> None:
    server.push("q", {"class": "look", "args": [key], "jid": key})
    [[_, _, _, *environments]] = server.wait_for_notes(1, "seen", key)
    server.wait_for_notes(4, "arrived", key)
    assert len(environments) == 3
    for environment in environments:
        assert SECRET not in environment
        # What the user has set is the user's.
        assert "REDIS_URL=redis://theirs" in environment.split("\0")
    assert f"PYWORKERS_CONFIG={server.folder / 'workers.toml'}" in environments[0].split("\0")


def test_no_variable_holds_the_password(server: ServerProcess) -> None:
    look(server, "first")
    before = server.tree()
    # The next fork server is executed, not forked.
    server.signal(signal.SIGHUP)
    server.wait_for_event("reload.done")
    # "done" is logged before the last process of the old generation has ended.
    wait_for(lambda: not before & server.tree(), message="the old generation has ended")
    look(server, "second")
    looks = 0
    for pid in server.tree():
        for file in ("environ", "cmdline"):
            # A process that started too late for the list of the old generation may end just now.
            with suppress(FileNotFoundError, ProcessLookupError):
                assert SECRET not in Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
                looks += 1
    assert looks >= 4
    assert SECRET not in server.log_text()
    assert os.environ.get("REDIS_URL") != "redis://theirs"
