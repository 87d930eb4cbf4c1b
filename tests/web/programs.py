"""A program that uses the JSON of the dashboard: it sends what it is told, and keeps no cookie."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

TIMEOUT_S = 60


@dataclass(frozen=True)
class Reply:
    """An answer of any status; ``value`` is its JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The JSON, which has no NaN and no infinity."""
        return json.loads(self.body, parse_constant=_refuse)

    @property
    def error(self) -> str:
        """The sentence of an error."""
        [(name, text)] = self.value.items()
        assert name == "error"
        assert isinstance(text, str)
        return text


class Program:
    """Asks the dashboard at this address, with these headers in each request."""

    def __init__(self, root: str, **headers: str) -> None:
        about = urlsplit(root)
        assert about.hostname is not None
        self._host, self._port, self._path = about.hostname, about.port, about.path.rstrip("/")
        self._headers = headers

    @classmethod
    def with_token(cls, root: str) -> Program:
        """One with the token and the cookie of a dashboard without ``--auth``."""
        reply = cls(root).ask("GET", "")
        cookie = reply.headers["set-cookie"].partition(";")[0]
        return cls(root, X_CSRF_Token=reply.value["csrf"], Cookie=cookie)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """The answer; ``body`` is sent as JSON, bytes as they are."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} if body is not None else {}
        given |= {name.replace("_", "-"): value for name, value in {**self._headers, **headers}.items()}
        try:
            connection.request(method, f"{self._path}/api{path}", sent, given)
            answer = connection.getresponse()
            return Reply(
                answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
            )
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON of an address that must exist."""
        reply = self.ask("GET", path)
        assert reply.status == 200, f"{reply.status} for {path}: {reply.body[:2000]!r}"
        return reply.value

    def look_up(self, path: str) -> Reply:
        """The answer about one thing. A search that takes longer than one request goes on in the next."""
        place: dict[str, str] = {}
        while True:
            reply = self.ask("GET", f"{path}?{urlencode(place)}")
            if reply.status != 200 or "further" not in reply.value:
                return reply
            place = reply.value["further"]
            if "redis" in reply.value:
                place["redis"] = reply.value["redis"]

    def act(self, path: str, action: str, **fields: Any) -> Reply:
        """The answer to an action."""
        return self.ask("POST", path, {"action": action, **fields})

    def done(self, path: str, action: str, **fields: Any) -> int:
        """How many things an action has changed that must succeed."""
        reply = self.act(path, action, **fields)
        assert reply.status == 200, f"{reply.status} for {action} {path}: {reply.body[:2000]!r}"
        assert reply.value["action"] == action
        done: int = reply.value["done"]
        assert type(done) is int, done
        return done


As = Callable[[str], Program]
"""Programs on one dashboard, by the role of their user."""


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")
