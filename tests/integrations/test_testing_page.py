"""The programs of contrib/docs/testing.md run, and do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import redis

from tests.helpers.support import ROOT
from tests.integrations.test_pytest import ALONE

TEXT = (ROOT / "contrib/docs/testing.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", TEXT, re.DOTALL))
# Of a project, which the page does not show.
SETTINGS = """
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[],
)
django.setup()
"""
TESTS = 11


def test_all_programs_pass(tmp_path: Path, valkey_binary: str, one_redis_url: str) -> None:
    assert len(PROGRAMS) == TEXT.count("```python\n")
    for name, code in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(code)
    with (tmp_path / "conftest.py").open("a") as file:
        file.write(SETTINGS)
    [ini] = re.findall(r"```ini\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "pytest.ini").write_text(ini)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *ALONE],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"REDIS_URL": one_redis_url},
        capture_output=True,
        text=True,
    )
    assert f"{TESTS} passed" in done.stdout, done.stdout + done.stderr
    with redis.Redis.from_url(one_redis_url) as service:
        left = list(service.scan_iter("test-*"))
        assert left, "the test with a service did not use it"
        service.delete(*left)


def test_the_message_is_the_one_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(PROGRAMS["tasks"])
    code = (
        "from tasks import *\nfrom pyworkers.testing import fake\n"
        "with fake() as jobs:\n    sign_up(7)\n    jobs.assert_enqueued(send_mail, 7, 'Welcome')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    [message] = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert done.stderr.endswith(message)
