"""Bridge: from a view of Django to an ASGI application, whose event loop runs in a thread of this process.

The view may run under WSGI or ASGI: the application's connections belong to the one loop of the thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

Message = MutableMapping[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]
_EVENTS = "text/event-stream"
# Under WSGI, an open stream would hold a thread or a process: the browser asks again instead.
_ASK_AGAIN = b"retry: 2000\n\n"
_END_OF_EVENT = b"\n\n"
_PARTS_AHEAD = 4


class DashboardBridge:
    """Answers the requests of one application."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def answer(self, request: HttpRequest, prefix: str, more: Mapping[str, Any]) -> HttpResponseBase:
        """The answer; ``prefix`` is the address of the application, ``more`` is added to its scope."""
        scope = {**_scope(request, prefix), **more}
        exchange = _Exchange(self._application, scope, request.body)
        loop = self._running_loop()
        status, headers = asyncio.run_coroutine_threadsafe(exchange.begin(), loop).result()
        if not headers.get("content-type", "").startswith(_EVENTS):
            return _filled(HttpResponse(b"".join(_parts(exchange, loop)), status=status), headers, exchange)
        content = _stream(exchange, loop) if isinstance(request, ASGIRequest) else _one_event(exchange, loop)
        return _filled(StreamingHttpResponse(content, status=status), headers, exchange)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A fork has no threads of its parent.
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="pyworkers-web", daemon=True).start()
            return self._loop


@dataclass
class _Exchange:
    """One request to the application, which runs as a task of its loop."""

    application: Application
    scope: Mapping[str, Any]
    body: bytes
    cookies: list[str] = field(default_factory=list)
    _parts: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_PARTS_AHEAD))
    _started: asyncio.Event = field(default_factory=asyncio.Event)
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _start: Message = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def begin(self) -> tuple[int, dict[str, str]]:
        """Status and headers, as soon as the application has sent them."""
        self._task = asyncio.create_task(self._run())
        await self._started.wait()
        headers: dict[str, str] = {}
        for raw_name, raw_value in self._start.get("headers", []):
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            if name == "set-cookie":
                self.cookies.append(value)
            else:
                headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return self._start.get("status", 500), headers

    async def next_part(self) -> bytes:
        """The next part of the body; empty at its end."""
        return await self._parts.get()

    def close(self) -> None:
        """The client needs no more; further parts of the answer are dropped."""
        self._closed.set()
        while not self._parts.empty():
            self._parts.get_nowait()

    async def _run(self) -> None:
        pending: list[Message] = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def receive() -> Message:
            if pending:
                return pending.pop()
            await self._closed.wait()
            return {"type": "http.disconnect"}

        try:
            await self.application(self.scope, receive, self._send)
        finally:
            self._started.set()
            if not self._closed.is_set():
                await self._parts.put(b"")

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._started.set()
        elif message.get("body") and not self._closed.is_set():
            await self._parts.put(message["body"])


def path_of(request: HttpRequest) -> str:
    """The path with the prefix of the project: under ASGI, ``request.path`` lacks it if a proxy strips it."""
    return f"{request.META['SCRIPT_NAME'].rstrip('/')}/{request.path_info.removeprefix('/')}"


def _scope(request: HttpRequest, prefix: str) -> dict[str, Any]:
    headers = {name.lower(): value for name, value in request.headers.items()}
    # Django has checked it, and knows the proxies in front.
    headers["host"] = request.get_host()
    path = path_of(request)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": path,
        "raw_path": path.encode(errors="surrogateescape"),
        "root_path": prefix.rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode(errors="surrogateescape"),
        "headers": [(name.encode("latin-1"), _bytes(value)) for name, value in headers.items()],
        "client": (request.META.get("REMOTE_ADDR") or "", 0),
        "server": None,
    }


def _bytes(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode(errors="replace")


def _parts(exchange: _Exchange, loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    while part := asyncio.run_coroutine_threadsafe(exchange.next_part(), loop).result():
        yield part
    loop.call_soon_threadsafe(exchange.close)


def _one_event(exchange: _Exchange, loop: asyncio.AbstractEventLoop) -> Iterator[bytes]:
    yield _ASK_AGAIN
    try:
        for part in _parts(exchange, loop):
            yield part
            if part.endswith(_END_OF_EVENT):
                return
    finally:
        loop.call_soon_threadsafe(exchange.close)


async def _stream(exchange: _Exchange, loop: asyncio.AbstractEventLoop) -> AsyncIterator[bytes]:
    try:
        while part := await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(exchange.next_part(), loop)):
            yield part
    finally:
        loop.call_soon_threadsafe(exchange.close)


def _filled(response: Any, headers: Mapping[str, str], exchange: _Exchange) -> HttpResponseBase:
    del response.headers["Content-Type"]
    for name, value in headers.items():
        response.headers[name] = value
    for cookie in exchange.cookies:
        response.cookies.load(cookie)
    return response  # type: ignore[no-any-return]
