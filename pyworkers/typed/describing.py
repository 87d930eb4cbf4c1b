"""Describing: the jobs of an application with JSON schemas of their parameters, for other languages.

Runs in the process that has imported the application. Needs pydantic (extra ``types``), as typed arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from pyworkers.errors import BadArgumentError, ConfigError
from pyworkers.protocol.envelope import check_value
from pyworkers.typed.annotations import Unresolved, evaluated
from pyworkers.typed.arguments import INSTALL, type_codec
from pyworkers.typed.signatures import signature_of

_REF = "#/$defs/{model}"
_Mode = Literal["validation", "serialization"]
_KINDS: Mapping[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "place",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "place",
    inspect.Parameter.VAR_POSITIONAL: "rest",
}


class _WantedSchema(NamedTuple):
    """A schema that is wanted: where it goes, of which TypeAdapter, and for arguments or for results."""

    target: dict[str, Any]
    adapter: Any
    mode: _Mode


def described(functions: Sequence[tuple[str, str, Callable[..., object]]]) -> dict[str, Any]:
    """The jobs, each with name, queue and function: ``{"jobs": [...], "$defs": {...}}``.

    A job has ``name``, ``queue``, ``about``, ``parameters`` (each with its name, its kind, ``place`` or
    ``rest``, its schema, whether it is required, and its default if that is JSON) and ``result``. The schema
    is empty, for any value, if there is no annotation, or one that cannot be used. Raises ConfigError without
    pydantic.
    """
    if find_spec("pydantic") is None:
        raise ConfigError("describing jobs needs pydantic", hint=INSTALL)
    asked: list[_WantedSchema] = []
    jobs = [_job(name, queue, function, asked) for name, queue, function in functions]
    return {"jobs": jobs, "$defs": _filled(asked)}


def _job(
    name: str, queue: str, function: Callable[..., object], asked: list[_WantedSchema]
) -> dict[str, Any]:
    about = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    signature = signature_of(function)
    parameters = list(signature.parameters.values()) if signature else []
    found = list(_parameters(parameters, function, asked))
    result: dict[str, Any] = {}
    if signature is not None and signature.return_annotation is not inspect.Signature.empty:
        returned = type(None) if signature.return_annotation is None else signature.return_annotation
        _ask(result, returned, function, "serialization", asked)
    if signature is None:
        # Written in C: any arguments.
        found = [{"name": "args", "kind": "rest", "required": False, "schema": {}}]
    return {"name": name, "queue": queue, "about": about, "parameters": found, "result": result}


def _parameters(
    parameters: Sequence[inspect.Parameter],
    function: Callable[..., object],
    asked: list[_WantedSchema],
) -> Iterator[dict[str, Any]]:
    for one in parameters:
        kind = _KINDS.get(one.kind)
        if kind is None:
            # A message has places alone.
            continue
        schema: dict[str, Any] = {}
        if one.annotation is not one.empty:
            _ask(schema, one.annotation, function, "validation", asked, one.default is None)
        required = kind == "place" and one.default is one.empty
        about = {"name": one.name, "kind": kind, "required": required, "schema": schema}
        yield about if required or kind == "rest" else {**about, **_default(one.default)}


def _default(value: Any) -> dict[str, Any]:
    """The default of a parameter, if it is plain JSON."""
    try:
        check_value(value, "default")
    except BadArgumentError:
        return {}
    return {"default": value}


def _ask(
    target: dict[str, Any],
    annotation: Any,
    function: Callable[..., object],
    mode: _Mode,
    asked: list[_WantedSchema],
    optional: bool = False,
) -> None:
    """Have the schema of an annotation put into ``target``; for one that cannot be used, none."""
    try:
        found = annotation if annotation is type(None) else evaluated(annotation, function)
        found = found | None if optional else found
        type_codec(found)
    except (Unresolved, TypeError):
        # The fork server has logged it (types.ignored).
        return
    if (adapter := _adapter(found, mode)) is not None:
        asked.append(_WantedSchema(target, adapter, mode))


def _adapter(annotation: Any, mode: _Mode) -> Any:
    """The TypeAdapter of a tuple with this one; None if JSON Schema cannot say it, e.g. a callable."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    try:
        # In a tuple, because a class may not have a configuration from here.
        alone: Any = tuple.__class_getitem__((annotation,))
        adapter: TypeAdapter[Any] = TypeAdapter(alone, config=config)
        adapter.json_schema(mode=mode)
    except PydanticUserError:
        return None
    return adapter


def _filled(asked: Sequence[_WantedSchema]) -> dict[str, Any]:
    """Fill the targets, and return the definitions to which they refer."""
    from pydantic import TypeAdapter

    wanted: list[tuple[int, _Mode, TypeAdapter[Any]]] = [
        (number, one.mode, one.adapter) for number, one in enumerate(asked)
    ]
    schemas, common = TypeAdapter.json_schemas(wanted, ref_template=_REF)
    definitions: dict[str, Any] = common.get("$defs", {})
    for (number, _), schema in schemas.items():
        [item] = _resolved(schema, definitions)["prefixItems"]
        asked[number].target.update(item)
    return definitions


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found
