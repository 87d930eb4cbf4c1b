"""Each generation of a server is like the first: after HUP, the loss of the fork server, and USR2."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.sites import Site, editable, linked, running, unnamed, wheel, zipped
from tests.helpers.support import wait_for


@pytest.mark.parametrize("install", [wheel, editable, zipped, linked])
def test_each_start_is_like_the_first(
    install: Callable[[Path], Site], tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    place = install(tmp_path)
    with running(place, tmp_path, one_redis_url, namespace) as server:
        release, first = server.look(server.fork_server())
        assert release == "r1" and first["chance"]
        place.next_release()

        os.kill(server.pid, signal.SIGHUP)
        server.event("reload.done")
        reloaded = server.event("reload.started")["pid"]
        after_hup = server.look(reloaded)

        os.kill(reloaded, signal.SIGKILL)
        server.event("forkserver.lost", pid=reloaded)
        anew = wait_for(lambda: pid if (pid := server.event("reload.started")["pid"]) != reloaded else 0)
        after_loss = server.look(anew)

        os.kill(server.pid, signal.SIGUSR2)
        server.pid = server.event("upgrade.done")["successor"]
        after_upgrade = server.look(server.fork_server())
        os.kill(server.pid, signal.SIGTERM)

    following = "r2" if install is linked else "r1"
    text = json.dumps(first).replace("/r1", f"/{following}")
    expected = json.loads(text)
    for found, facts in (after_hup, after_loss, after_upgrade):
        assert {name: (fact, expected[name]) for name, fact in facts.items() if fact != expected[name]} == {}
        assert found == following


def test_a_folder_without_a_name_is_kept_and_the_log_says_so(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    place = unnamed(tmp_path)
    with running(place, tmp_path, one_redis_url, namespace) as server:
        first = server.fork_server()
        place.next_release()
        os.kill(server.pid, signal.SIGHUP)
        elsewhere = server.event("folder.elsewhere")
        assert elsewhere["folder"] == str(tmp_path / "r1")
        assert elsewhere["leads_to"] == str(tmp_path / "r2")
        server.event("reload.done")
        reloaded = server.event("reload.started")["pid"]
        release, facts = server.look(reloaded)
        assert (release, facts["folder"]) == ("r1", str(tmp_path / "r1"))
        assert reloaded != first

        shutil.rmtree(tmp_path / "r1")
        pids = {server.look(reloaded)[1]["environment"]["PYWORKERS_CONFIG"] for _ in range(3)}
        assert pids == {str(tmp_path / "other/workers.toml")}
        os.kill(server.pid, signal.SIGHUP)
        server.event("folder.missing", folder=str(tmp_path / "r1"))
        failed = server.event("reload.failed")
        # Python 3.13 raises a SystemError that names nothing.
        assert failed["error"] and failed["traceback"]
        assert server.look(reloaded)[0] == "r1"
