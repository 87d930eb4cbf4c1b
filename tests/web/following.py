"""The event stream as a browser's script reads it: the live parts, event by event."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode, urljoin

from tests.web.visitor import TIMEOUT_S, Visitor


@contextmanager
def events(visitor: Visitor, *feeds: str) -> Iterator[Iterator[dict[str, str]]]:
    """The parts of each event of these feeds."""
    query = urlencode([("feed", feed) for feed in feeds])
    with urllib.request.urlopen(urljoin(visitor.root, f"events?{query}"), timeout=TIMEOUT_S) as stream:
        lines = (line for line in stream if line.startswith(b"data: "))
        yield (json.loads(line.removeprefix(b"data: "))["parts"] for line in lines)
