"""Sidekiq's own Ruby API, asked for what it sees. Without Sidekiq, the test is skipped, or fails in CI."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

from tests.conftest import missing

_HEAD = """
require "json"
require "sidekiq/api"
Sidekiq.configure_client { |config| config.redis = { url: ENV["REDIS_URL"] } }
"""


def sidekiq(url: str, code: str) -> Any:
    """The value of the last expression of ``code``, as JSON carries it."""
    if shutil.which("sidekiq") is None:
        missing("sidekiq is not installed: apt-get install ruby-sidekiq")
    program = f"{_HEAD}\nresult = begin\n{code}\nend\nputs JSON.generate([result])"
    environment = os.environ | {"REDIS_URL": url}
    done = subprocess.run(["ruby", "-W0", "-e", program], env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])[0]
