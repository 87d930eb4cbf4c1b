"""``pyworkers run --reload``: changed files are loaded; after an error the old code continues, on show."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers.cli import main
from tests.helpers.processes import children, process_alive
from tests.helpers.records import job
from tests.helpers.server_process import HEADER, Serve, ServerProcess
from tests.helpers.support import wait_for
from tests.helpers.terminal import terminal

APP = """
@worker.job(queue="q", concurrency=1)
def say():
    note("{word}")
"""
BROKEN = """
import missing_module
"""


def change(server: ServerProcess, code: str, event: str) -> dict[str, object]:
    """Write the application until this event is logged: the watch may begin after the first time."""
    before = len(server.events(event))

    def seen() -> list[dict[str, object]]:
        if not server.events("reload.changed")[before:]:
            server.write_app(code)
        return server.events(event)[before:]

    return wait_for(seen)[-1]


def test_changed_code_is_loaded_and_broken_code_is_not(serve: Serve) -> None:
    with serve(APP.format(word="first"), "--reload") as server:
        folders = server.wait_for_event("reload.watching")["folders"]
        assert folders == [str(server.folder)]
        server.push("q", job("a", "say"))
        [[old, _]] = server.wait_for_notes(1, "first")

        change(server, APP.format(word="second"), "reload.done")
        wait_for(lambda: not process_alive(old), message="the worker before has gone")
        server.wait_for_event("reload.changed", files=[str(server.folder / "tasks.py")])
        server.push("q", job("b", "say"))
        server.wait_for_notes(1, "second")

        server.write_app(BROKEN)
        failed = server.wait_for_event("reload.failed")
        assert "No module named 'missing_module'" in failed["error"]
        assert "import missing_module" in failed["traceback"]
        server.push("q", job("c", "say"))
        [_, [old, _]] = server.wait_for_notes(2, "second")

        server.write_app(APP.format(word="third"))
        server.wait_for_event("reload.done", count=2)
        wait_for(lambda: not process_alive(old), message="the worker before has gone")
        server.push("q", job("d", "say"))
        server.wait_for_notes(1, "third")
        assert server.stop() == 0


def test_other_files_are_ignored(serve: Serve) -> None:
    with serve(APP.format(word="first"), "--reload") as server:
        change(server, APP.format(word="second"), "reload.done")
        for name in ("notes.txt", "data.json"):
            (server.folder / name).write_text("changed")
        # A later change is seen alone.
        (server.folder / "other.py").write_text("")
        server.wait_for_event("reload.changed", files=[str(server.folder / "other.py")])


def test_without_the_extra_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = CliRunner().invoke(main, ["run", "--reload", "--app", "tasks:worker"])
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: --reload needs the package watchfiles\npip install 'pyworkers-server[watch]'\n"
    )


def test_on_a_terminal_the_traceback_of_a_failed_reload_is_readable(
    tmp_path: Path, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = tmp_path / "tasks.py"
    tasks.write_text(HEADER + APP.format(word="first"))
    words = ("run", "--reload", "--app", "tasks:worker", "--url", redis_url, "--namespace", namespace)
    with terminal(*words) as shown:
        shown.wait_for("server.started")

        def failed() -> bool:
            tasks.write_text("def broken(:\n")
            return b"reload.failed" in shown.read()

        wait_for(failed)
        shown.wait_for("\n    SyntaxError: ")
        shown.type("\x03")
        assert shown.wait() == 0


@pytest.mark.fault("W13")
def test_broken_code_while_the_fork_server_of_the_old_code_is_killed(serve: Serve) -> None:
    holding = """
    @worker.job(queue="q", concurrency=2)
    def hold():
        meet("hold")
        note("end")
    """
    broken = """
    note("importing")
    wait_for_file("import")
    import missing_module
    """
    with serve(holding, "--reload") as server:
        [old] = children(server.pid)
        server.push("q", job("a", "hold"))
        [[worker, _]] = server.wait_for_notes(1, "hold")
        change(server, broken, "reload.started")
        server.wait_for_notes(1, "importing")
        os.kill(old, signal.SIGKILL)
        server.wait_for_event("forkserver.lost", pid=old)
        server.let_go("import")
        # Tried again, because nothing could fork a worker now.
        server.wait_for_event("reload.failed", count=2)
        assert process_alive(worker)

        server.write_app(holding + APP.format(word="mended"))
        server.wait_for_event("reload.done")
        server.push("q", job("b", "say"))
        server.wait_for_notes(1, "mended")
        server.let_go("hold")
        server.wait_for_notes(1, "end")
        wait_for(lambda: server.settled("q"), message="settled")
        assert len(server.wait_for_notes(1, "hold")) == 1
        assert server.stop() == 0
