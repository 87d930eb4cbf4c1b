"""Bodies: what a request sends, up to a limit, and the form in it."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.types import Message, Receive

Form: TypeAlias = ImmutableMultiDict[str, str]
MOST_BYTES = 1 << 20
_MOST_FIELDS = 1000
_FORM = "application/x-www-form-urlencoded"


class TooLargeError(Exception):
    """The body has more bytes, or its form more fields, than the dashboard reads."""


async def read_body(request: Request) -> bytes:
    """The whole body. Raises TooLargeError as soon as it is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > MOST_BYTES:
        raise TooLargeError
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise TooLargeError
        parts.append(part)
    return b"".join(parts)


def parse_form(request: Request, body: bytes) -> Form:
    """The fields of a form; none for a body of another type. Raises TooLargeError."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return Form()
    text = body.decode(errors="replace")
    try:
        fields = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise TooLargeError from error
    return Form(fields)


def again(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` for the page: the body that was read, then what follows it."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return rest.pop() if rest else await receive()

    return receive_again
