"""The HTTP endpoint of a server that a test starts: its address, and its pages."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from importlib.util import find_spec
from typing import Any

from tests.conftest import missing
from tests.helpers.support import PATIENCE_S, free_port

_PACKAGES = ("uvicorn", "starlette", "prometheus_client")


class Endpoint:
    """The pages of one server, which gets ``environment``."""

    def __init__(self) -> None:
        for package in _PACKAGES:
            if find_spec(package) is None:
                missing(f"{package} is not installed")
        self.bind = f"127.0.0.1:{free_port()}"
        self.environment = {"PYWORKERS_HTTP__BIND": self.bind}

    def get(self, page: str, timeout: float = PATIENCE_S, **headers: str) -> tuple[int, str]:
        """The status, and the text. Raises URLError for a connection that is refused."""
        request = urllib.request.Request(f"http://{self.bind}{page}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, page: str) -> Any:
        """The JSON of a page."""
        return json.loads(self.get(page)[1])

    def number(self, name: str) -> float:
        """One number of /metrics, by its name with its labels."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else -1.0
