"""The examples in other languages, each run by its one command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.conftest import missing
from tests.helpers.support import PATIENCE_S, ROOT


@pytest.mark.parametrize(("language", "program"), [("go", "go"), ("ruby", "sidekiq")])
def test_orders_go_to_python_and_receipts_come_back(
    language: str, program: str, url: str, db: redis.Redis
) -> None:
    if shutil.which(program) is None:
        missing(f"{program} is not installed")
    done = subprocess.run(
        [ROOT / "contrib" / "examples" / language / "run"],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        env=os.environ | {"REDIS_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    ordered = [line for line in done.stdout.splitlines() if line.startswith("ordered")]
    archived = {line for line in done.stdout.splitlines() if line.startswith("archived")}
    assert len(ordered) == 3
    assert archived == {
        "archived order 1: receipt for ada@example.org",
        "archived order 2: receipt for bob@example.org",
        "archived order 3: receipt for eve@example.org",
    }
    assert db.get("stat:processed") == b"6"
    assert not db.exists("queue:receipts", "queue:archive", "retry", "goretry", "dead")
    assert not list(db.scan_iter("*:inprogress"))
