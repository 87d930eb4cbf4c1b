"""Answering: one ASGI application for all addresses under ``/api``, by the table of resources.

Runs in the event loop of the dashboard. Each error is ``{"error": "…"}``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from pyworkers.api.actions import AbsentError, Action
from pyworkers.api.parameters import BadRequestError, is_storable, values_of_body, values_of_query
from pyworkers.errors import BadArgumentError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.protocol.envelope import read_integer
from pyworkers.web import names
from pyworkers.web.acting import is_sent, undone
from pyworkers.web.json import table
from pyworkers.web.json.openapi import document
from pyworkers.web.json.resources import (
    CSV,
    FORMAT,
    Change,
    CheckedRequest,
    Creation,
    Refused,
    Resource,
    number_done,
)
from pyworkers.web.json.values import plain
from pyworkers.web.roots import root_of
from pyworkers.web.security import Role, body_of, csrf_token, is_by_bearer, viewer_of
from pyworkers.web.site import site_of

_ACTION = "action"
_OF_PAGING = frozenset({"first", "count", "cursor", "after"})
_READING = ("GET", "HEAD")
_DOCUMENT = "openapi.json"
# The segments of the addresses that are about the JSON itself; the first two are the root.
_ABOUT: Sequence[Sequence[str]] = ([], [""], [_DOCUMENT])
_NO_ADDRESS = "There is no such address."
_RETRY_AFTER_S = 2
_MOST_PARAMETERS = 100
_NOT_YOURS = "Your role is {}, which may not do this."
_NO_BEARER = "Send a header Authorization: Bearer: a session is for people."


class Json(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def api(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application."""
    request = Request(scope, receive)
    answer: Response
    try:
        answer = await _answer(request)
    except HTTPException as error:
        answer = refusal(error.status_code, error.detail, error.headers)
    except Refused as error:
        answer = Json(error.facts, error.status, error.headers)
    except BadRequestError as error:
        answer = refusal(400, str(error))
    except (RedisUnavailableError, StoreError) as error:
        answer = _unavailable(request, error)
    except AbsentError as error:
        answer = refusal(404, f"There is no such {error.noun}.")
    except BadArgumentError as error:
        answer = refusal(400, str(error))
    except PyworkersError as error:
        answer = refusal(409, str(error))
    answer.headers["Cache-Control"] = "no-store"
    await answer(scope, receive, send)


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Json:
    """An error as JSON."""
    return Json({"error": text}, status, headers)


def _unavailable(request: Request, error: PyworkersError) -> Json:
    """The answer while Redis is away, or refuses; a program must not repeat what may have been done."""
    if request.method in _READING:
        text = str(error)
    else:
        _, text = undone(request, error)
    return refusal(503, text, {} if is_sent(request) else {"Retry-After": str(_RETRY_AFTER_S)})


async def _answer(request: Request) -> Response:
    segments, role = segments_of(request.scope), viewer_of(request).role
    if segments in _ABOUT:
        return _about(request, role, segments)
    resource, found = _resource_at(resources_of(request), segments)
    if request.method in _READING and resource.read is not None:
        if role not in resource.readers:
            raise HTTPException(403, _NOT_YOURS.format(role))
        return await _read(request, resource, resource.read, found)
    if request.method == "POST" and resource.creation is not None:
        return await _create(request, resource.creation)
    if request.method == "POST" and resource.actions:
        if role != "operate":
            raise HTTPException(403, _NOT_YOURS.format(role))
        return await _act(request, resource, found)
    raise HTTPException(405, f"Only {resource.methods}.", {"Allow": resource.methods})


async def _read(
    request: Request,
    resource: Resource,
    read: Callable[[CheckedRequest], Awaitable[Any]],
    found: Mapping[str, str],
) -> Response:
    """What is read at an address, as JSON; a list as CSV if the request asks for it."""
    query = parse_qsl(
        request.scope["query_string"].decode("latin-1"),
        keep_blank_values=True,
        errors="surrogateescape",
        max_num_fields=_MOST_PARAMETERS,
    )
    given = values_of_query(resource.known, query)
    viewer = viewer_of(request)
    # A program reads what its jobs return: a mask would change it.
    mask = () if viewer.role == "enqueue" else site_of(request).settings.mask
    operates = viewer.role == "operate" and not viewer.rights.queues

    async def page(given: Mapping[str, Any]) -> Any:
        return plain(await read(CheckedRequest(request, found, given)), mask, operate=operates)

    if given.get(FORMAT.name) != CSV:
        return Json(await page(given))
    named = {name for name, _ in query}
    return await table.answer(resource, given, page, whole=request.method == "GET" and "count" not in named)


def _about(request: Request, role: Role, segments: Sequence[str]) -> Json:
    """What the JSON says of itself: its addresses, or the description of all of them, which has no data."""
    if request.method not in _READING:
        raise HTTPException(405, f"Only {', '.join(_READING)}.", {"Allow": ", ".join(_READING)})
    root = f"{root_of(request.scope)}/api"
    if segments == [_DOCUMENT]:
        return Json(document(resources_of(request), root))
    if role == "enqueue":
        raise HTTPException(403, _NOT_YOURS.format(role))
    paths = [f"{root}{resource.path}" for resource in resources_of(request)]
    return Json({"openapi": f"{root}/{_DOCUMENT}", "csrf": csrf_token(request), "resources": paths})


async def _create(request: Request, creation: Creation) -> Json:
    if not is_by_bearer(request):
        raise HTTPException(401, _NO_BEARER, {"WWW-Authenticate": "Bearer"})
    created = await creation.create(request, _json_of(request, body_of(request)))
    return Json(created.value, 201, created.headers)


async def _act(request: Request, resource: Resource, found: Mapping[str, str]) -> Json:
    body = _object_of(request, body_of(request))
    action = _action_of(resource.actions, body.pop(_ACTION, None))
    given = values_of_body(resource.fields_of(action), body)
    ask = CheckedRequest(request, found, given)
    if resource.choose is not None:
        await resource.choose(ask)
    if isinstance(action, Action):
        return Json({"action": action.word, "done": await number_done(request, action, {**found, **given})})
    changed = await action.change(ask)
    facts = changed if isinstance(changed, Mapping) else {"done": int(changed)}
    return Json({"action": action.word, **facts})


def _object_of(request: Request, body: bytes) -> dict[str, Any]:
    """The body of a request that is an object."""
    value = _json_of(request, body)
    if not isinstance(value, dict):
        raise BadRequestError("The body must be a JSON object.")
    return value


def _json_of(request: Request, body: bytes) -> Any:
    """The body of a request. A page of another site cannot send this type without being asked."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != Json.media_type:
        raise HTTPException(415, f"The body must be of the type {Json.media_type}.")
    try:
        return json.loads(body, parse_constant=_no_constant, parse_int=read_integer)
    except ValueError as error:
        raise BadRequestError(f"The body is not JSON: {error}.") from error
    except RecursionError as error:
        raise BadRequestError("The body is not JSON: nested too deep.") from error


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _action_of(actions: Sequence[Change | Action[Any]], name: object) -> Change | Action[Any]:
    for action in actions:
        if action.word == name:
            return action
    raise BadRequestError(f"{_ACTION} must be one of {', '.join(action.word for action in actions)}.")


def resources_of(request: Request) -> Sequence[Resource]:
    """All resources of the dashboard that answers."""
    resources: Sequence[Resource] = request.app.state.resources
    return resources


def addresses_of(request: Request, path: str) -> tuple[str, str]:
    """The addresses of the JSON and of the CSV of the page at ``path``, below the dashboard; empty for none.

    The file has the rows that the filter of the page selects.
    """
    segments = path.split("/")
    if segments[0] == "queues" and len(segments) == 2:
        # The page has the jobs of a queue; the queue itself may be unknown.
        segments.append("jobs")
    readable = [resource for resource in resources_of(request) if resource.read]
    resource = next((one for one in readable if one.names_in(segments) is not None), None)
    if resource is None:
        return "", ""
    in_json = "/".join(["/api", *segments])
    if resource.rows is None:
        return in_json, ""
    filters = {parameter.name for parameter in resource.parameters} - _OF_PAGING
    query = {name: value for name, value in request.query_params.items() if name in filters and value}
    return in_json, f"{in_json}?{urlencode({**query, FORMAT.name: CSV}, errors='surrogateescape')}"


def _resource_at(resources: Iterable[Resource], segments: Sequence[str]) -> tuple[Resource, dict[str, str]]:
    for resource in resources:
        found = resource.names_in(segments)
        if found is not None:
            return resource, found
    raise HTTPException(404, _NO_ADDRESS)


def segments_of(scope: Scope) -> list[str]:
    """The names in the address below ``/api``, encoded as on the pages or with percent signs.

    A slash in a name is ``%2F``, which ``path`` has lost. Servers without ``raw_path`` need ``~2F``.
    """
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    inner = raw.decode("latin-1").split("/")[root_of(scope).count("/") + 2 :]
    found = [names.decode(unquote(segment, errors="surrogateescape")) for segment in inner]
    if not all(map(is_storable, found)):
        raise HTTPException(404, _NO_ADDRESS)
    return found


class Everything(BaseRoute):
    """Takes each address below ``/api``: a Mount would not take one with a line break."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """FULL for an address below ``/api``."""
        root = f"{root_of(scope)}/api"
        is_ours = scope["type"] == "http" and (scope["path"] == root or scope["path"].startswith(f"{root}/"))
        return (Match.FULL if is_ours else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        await api(scope, receive, send)


ROUTES: list[BaseRoute] = [Everything()]
