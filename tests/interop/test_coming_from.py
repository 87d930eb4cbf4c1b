"""The programs of contrib/docs/coming-from.md run, and do what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.helpers.golang import LINKED
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import PATIENCE_S, ROOT, wait_for
from tests.interop.programs import GO, working

PAGE = (ROOT / "contrib" / "docs" / "coming-from.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## From ")[1:]}


def program(section: str, language: str, number: int = 0) -> str:
    found: str = re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)[number]
    return found


@pytest.mark.parametrize(
    ("section", "number", "says"),
    [
        ("go-workers", 0, ["starting", "myqueue [1, 2]", " 3"]),
        ("Sidekiq", 0, ["bobbobbobbobbob", " bob", " ada", " eveeve"]),
        ("Celery", 1, ["to 7 hello"]),
        ("RQ", 1, ["to 7 hello"]),
        ("Dramatiq", 1, ["to 7 hello"]),
        ("arq", 1, ["to 7 hello"]),
    ],
)
def test_the_programs_for_pyworkers_run(
    url: str, db: redis.Redis, tmp_path: Path, section: str, number: int, says: list[str]
) -> None:
    (tmp_path / "tasks.py").write_text(program(section, "python", number))
    environment = os.environ | {"REDIS_URL": url, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, tmp_path / "tasks.py"], env=environment, check=True, timeout=PATIENCE_S)
    assert db.zcard("schedule") == 1
    server = ServerProcess(tmp_path, url, "")
    try:
        server.start()
        for words in says:
            server.wait_for_output(f"{words}\n")
        assert server.stop() == 0
        assert server.events("job.failed") == []
    finally:
        server.kill()


def test_the_program_for_go_workers_runs(
    go_programs: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO / name, tmp_path)
    host = url.partition("//")[2].partition("/")[0]
    (tmp_path / "main.go").write_text(program("go-workers", "go").replace("127.0.0.1:6379", host))
    subprocess.run(["go", "build", LINKED, "-o", "sample", "main.go"], cwd=tmp_path, check=True)
    with working([tmp_path / "sample"], tmp_path / "run") as peer:
        wait_for(lambda: re.search(r"(?m)^[0-9a-f]{24} 3$", peer.log_text()), PATIENCE_S, "1 + 2")
    assert "starting\n" in peer.log_text()
    assert "myqueue [1,2]\n" in peer.log_text()
    assert db.zcard("schedule") == 1


def test_the_program_for_sidekiq_runs(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    sample = tmp_path / "sample.rb"
    sample.write_text(program("Sidekiq", "ruby"))
    subprocess.run(["ruby", sample], env=os.environ | {"REDIS_URL": url}, check=True, timeout=PATIENCE_S)
    assert db.zcard("schedule") == 1
    assert db.llen("queue:critical") == 4
    command: list[str | Path] = ["sidekiq", "-r", sample, "-q", "critical", "-c", "1"]
    with working(["/usr/bin/env", *command], tmp_path / "run", REDIS_URL=url) as peer:
        for words in ("bobbobbobbobbob", "bob", "ada", "eveeve"):
            pattern = rf"(?m)^[0-9a-f]{{24}} {words}$"
            wait_for(lambda pattern=pattern: re.search(pattern, peer.log_text()), PATIENCE_S, pattern)  # type: ignore[misc]


@pytest.mark.parametrize("section", ["Celery", "RQ", "Dramatiq", "arq"])
def test_the_programs_for_others_are_python(section: str) -> None:
    compile(program(section, "python"), section, "exec")  # none is installed for the suite
