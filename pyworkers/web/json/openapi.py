"""OpenAPI: the description of all resources, version 3.1, from their table.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyworkers.api.actions import Action
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import COUNT, TEXT, Schema, record
from pyworkers.version import __version__
from pyworkers.web.json.resources import Change, Creation, Resource

_ERROR = record("Error", {"error": TEXT})
_DONE = record("Done", {"action": TEXT, "done": COUNT}, {"task": TEXT})
_ABOUT = (
    "What the dashboard shows and does, for programs. Times are epoch seconds. A name in an address is "
    "encoded with percent signs, or as on the pages: each byte but A-Z a-z 0-9 _ - . is ~ and two "
    "hexadecimal digits. A number that JSON lacks is a text, an invalid byte in a text is \\xff."
)
_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "NAME:PASSWORD of a user of the dashboard's file (--auth).",
}
_CSRF = {
    "type": "apiKey",
    "in": "header",
    "name": "X-CSRF-Token",
    "description": "For actions without a bearer token: the member csrf of the root address, sent with the "
    "cookies of that answer.",
}
_ERRORS = {
    "400": "A parameter or the body is invalid.",
    "401": "The token is missing or wrong.",
    "403": "The role does not allow it.",
    "404": "It does not exist.",
    "405": "The address has no such method.",
    "409": "It has just gone, or does not allow the change: nothing was changed.",
    "413": "The body is too large.",
    "415": "The body is not of the type application/json.",
    "429": "Too many wrong tokens; Retry-After says when to try again.",
    "503": "Redis does not answer; Retry-After says when to ask again.",
}
_OF_READING = ("400", "401", "403", "404", "429", "503")
_OF_ACTING = tuple(_ERRORS)
_OF_CREATING = ("400", "401", "403", "413", "415", "429", "503")


def document(resources: Iterable[Resource], root: str) -> dict[str, Any]:
    """The description of these resources, whose addresses begin with ``root``."""
    named: dict[str, Any] = {}
    paths = {resource.path: _path(resource, named) for resource in resources}
    return {
        "openapi": "3.1.0",
        "info": {"title": "pyworkers", "version": __version__, "description": _ABOUT},
        "servers": [{"url": root}],
        "security": [{"bearer": []}, {"csrf": []}, {}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(named.items())),
            "securitySchemes": {"bearer": _BEARER, "csrf": _CSRF},
        },
    }


def _path(resource: Resource, named: dict[str, Any]) -> dict[str, Any]:
    reading: dict[str, Any] = {
        "operationId": _id("read", resource),
        "summary": resource.about,
        "parameters": [_parameter(parameter) for parameter in resource.known],
        "responses": _responses(resource.schema, _OF_READING, named),
    }
    if resource.rows is not None:
        reading["responses"]["200"]["content"]["text/csv"] = {"schema": TEXT}
    found: dict[str, Any] = {"get": reading} if resource.read is not None else {}
    names = [name.strip("{}") for name in resource.segments if name[0] == "{"]
    if names:
        text = {"type": "string"}
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": text} for name in names
        ]
    if resource.actions:
        bodies = [_body(resource, action) for action in resource.actions]
        schema = bodies[0] if len(bodies) == 1 else {"oneOf": bodies}
        found["post"] = {
            "operationId": _id("change", resource),
            "summary": "; ".join(action.about.rstrip(".") for action in resource.actions) + ".",
            "requestBody": {"required": True, "content": _json(schema)},
            "responses": _responses(_DONE, _OF_ACTING, named),
        }
    if resource.creation is not None:
        found["post"] = _creation(resource, resource.creation, named)
    return found


def _creation(resource: Resource, creation: Creation, named: dict[str, Any]) -> dict[str, Any]:
    error = _json(_referring(_ERROR, named))
    refused = {status: {"description": _ERRORS[status], "content": error} for status in _OF_CREATING}
    answers = {
        status: {"description": about, "content": _json(_referring(schema, named))}
        for status, (about, schema) in creation.answers.items()
    }
    return {
        "operationId": _id("create", resource),
        "summary": creation.about,
        "security": [{"bearer": []}],
        "parameters": [_parameter(parameter) | {"in": "header"} for parameter in creation.headers],
        "requestBody": {"required": True, "content": _json(_referring(creation.body, named))},
        "responses": dict(sorted({**refused, **answers}.items())),
    }


def _id(verb: str, resource: Resource) -> str:
    return "_".join([verb, *(segment.strip("{}") for segment in resource.segments)])


def _parameter(parameter: Parameter) -> dict[str, Any]:
    about: dict[str, Any] = {"name": parameter.name, "in": "query", "description": parameter.about}
    style = {"style": "form", "explode": False} if parameter.kind == "array" else {}
    schema = {name: value for name, value in parameter.schema().items() if name != "description"}
    return {**about, "required": parameter.required, **style, "schema": schema}


def _body(resource: Resource, action: Change | Action[Any]) -> dict[str, Any]:
    fields = resource.fields_of(action)
    properties = {field.name: field.schema() for field in fields}
    required = [field.name for field in fields if field.required]
    return {
        "type": "object",
        "description": action.about,
        "required": ["action", *required],
        "properties": {"action": {"const": action.word}, **properties},
        "additionalProperties": False,
    }


def _responses(schema: Schema, errors: Iterable[str], named: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "The answer.", "content": _json(_referring(schema, named))}
    error = _json(_referring(_ERROR, named))
    refused = {status: {"description": _ERRORS[status], "content": error} for status in errors}
    return {"200": answer, **refused}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _referring(schema: Any, named: dict[str, Any]) -> Any:
    """The schema with a reference for each part with a title, which moves into ``named``."""
    if isinstance(schema, list | tuple):
        return [_referring(part, named) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    copied = {name: _referring(part, named) for name, part in schema.items()}
    title = copied.get("title")
    if not isinstance(title, str):
        return copied
    named[title] = copied
    return {"$ref": f"#/components/schemas/{title}"}
