"""Bodies: what a request sends, up to a limit, and the form in it."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

Form: TypeAlias = ImmutableMultiDict[str, str]
MOST_BYTES = 1 << 20
HEAD_BYTES = 16 * 1024
"""What a form of the dashboard needs for its token, and the most that is read of a stranger."""
_MOST_FIELDS = 1000
_FORM = "application/x-www-form-urlencoded"


class TooLargeError(Exception):
    """The body has more bytes, or its form more fields, than the dashboard reads."""


class Body:
    """The body of a request: first the part that has the token of a form, then, if that is valid, the rest.

    ``most`` bytes. Raises TooLargeError as soon as it is too large, first if it says so.
    """

    def __init__(self, request: Request, most: int) -> None:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 19 or int(length) > most):
            raise TooLargeError
        self._most = most
        self._parts = aiter(request.stream())
        self._read = bytearray()

    async def head(self) -> bytes:
        """The first bytes, all of them if there are few. Raises TooLargeError."""
        await self._read_up_to(HEAD_BYTES)
        return bytes(self._read)

    async def whole(self) -> bytes:
        """All of it. Raises TooLargeError."""
        await self._read_up_to(self._most + 1)
        return bytes(self._read)

    async def _read_up_to(self, number: int) -> None:
        while len(self._read) < number:
            part = await anext(self._parts, None)
            if part is None:
                return
            self._read += part
            if len(self._read) > self._most:
                raise TooLargeError


async def token_in(request: Request, body: Body) -> str:
    """The token in the first bytes of a form; empty without one. Raises TooLargeError."""
    if not is_form(request):
        return ""
    head = await body.head()
    # Its last field may be incomplete.
    return parse_form(request, head if len(head) < HEAD_BYTES else head.rpartition(b"&")[0]).get("csrf", "")


def is_form(request: Request) -> bool:
    """True if the body is a form."""
    kind: str = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == _FORM


def parse_form(request: Request, body: bytes) -> Form:
    """The fields of a form; none for a body of another type. Raises TooLargeError."""
    if not is_form(request):
        return Form()
    text = body.decode(errors="replace")
    try:
        fields = parse_qsl(text, keep_blank_values=True, errors="replace", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise TooLargeError from error
    return Form(fields)
