"""Programs of the examples, and their answers by HTTP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from pyworkers.embedded import spawn_bound
from tests.helpers.support import PATIENCE_S


@contextmanager
def running(log: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the end of the block."""
    with log.open("wb") as output:
        process = spawn_bound(command, output=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def fetch(url: str, data: bytes | None = None) -> Any:
    """The JSON of an answer, or its code; None while there is no answer."""
    try:
        with urlopen(url, data) as response:
            return json.load(response)
    except HTTPError as error:
        return {"code": error.code}
    except OSError:
        return None
