"""Parameters: what a request or an action may be given by name, checked, and described for OpenAPI.

Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Redis takes indexes of 64 bits.
_MOST_INDEX = 10**12

Kind = Literal["string", "integer", "number", "boolean", "array", "list"]


class BadRequestError(ValueError):
    """A parameter or a body that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an address, or one field of an action. An array has texts, a list any values."""

    name: str
    about: str
    kind: Kind = "string"
    default: Any = None
    least: float | None = None
    most: float | None = None
    longest: int | None = None
    """The most characters of a text."""
    choices: tuple[str, ...] = ()
    required: bool = False
    argument: str = ""
    """Its name in a command, if it has another one there."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the value."""
        limits = {
            "minimum": self.least,
            "maximum": self.most,
            "maxLength": self.longest,
            "enum": list(self.choices) or None,
        }
        items = {"items": {"type": "string"}} if self.kind == "array" else {}
        said = {name: value for name, value in limits.items() if value is not None}
        default = {} if self.default is None else {"default": self.default}
        kind = "array" if self.kind == "list" else self.kind
        return {"type": kind, "description": self.about, **items, **said, **default}

    def of_text(self, text: str) -> Any:
        """The value in an address. Raises BadRequestError."""
        try:
            return self.check(_READERS[self.kind](text))
        except ValueError as error:
            raise BadRequestError(
                str(error) if isinstance(error, BadRequestError) else self._rule()
            ) from error

    def check(self, value: Any) -> Any:
        """A value of JSON, if it suits. Raises BadRequestError."""
        if not _is(self.kind, value):
            raise BadRequestError(self._rule())
        too_small = self.least is not None and value < self.least
        if too_small or (self.most is not None and value > self.most):
            raise BadRequestError(self._rule())
        if self.longest is not None and len(value) > self.longest:
            raise BadRequestError(self._rule())
        if self.choices and value not in self.choices:
            raise BadRequestError(self._rule())
        return value

    def _rule(self) -> str:
        if self.choices:
            return f"{self.name} must be one of {', '.join(self.choices)}."
        kind = {"array": "array of strings", "list": "array"}.get(self.kind, self.kind)
        article = "an" if kind[0] in "ia" else "a"
        bounds = (("from", self.least), ("to", self.most))
        said = "".join(f" {word} {value:g}" for word, value in bounds if value is not None)
        if self.longest is not None:
            said += f" of at most {self.longest} characters"
        return f"{self.name} must be {article} {kind}{said}."


def paging() -> list[Parameter]:
    """The parameters of a page."""
    return [
        Parameter("first", "The index of the first row.", "integer", 0, 0, _MOST_INDEX),
        Parameter("count", "How many rows at most.", "integer", 50, 1, 200),
    ]


def by_cursor() -> list[Parameter]:
    """The parameters of a page of a list without an order."""
    return [
        Parameter("cursor", "The cursor of the answer before.", "integer", 0, 0, 2**63),
        Parameter("count", "About how many.", "integer", 50, 1, 200),
    ]


def is_storable(text: object) -> bool:
    """True for a text that can be sent to Redis: it has no lone surrogates, but perhaps bytes."""
    if not isinstance(text, str):
        return False
    try:
        text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def values_of_query(known: Iterable[Parameter], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The values of an address by name, with defaults. Raises BadRequestError."""
    by_name = {parameter.name: parameter for parameter in known}
    found: dict[str, Any] = {}
    for name, text in query:
        found[name] = _known(by_name, name).of_text(text)
    return _complete(by_name, found)


def values_of_body(known: Iterable[Parameter], body: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields of a JSON object. Raises BadRequestError."""
    by_name = {parameter.name: parameter for parameter in known}
    found = {name: _known(by_name, name).check(value) for name, value in body.items() if value is not None}
    return _complete(by_name, found)


def _known(by_name: Mapping[str, Parameter], name: str) -> Parameter:
    if name not in by_name:
        known = f"known are {', '.join(by_name)}" if by_name else "there are none"
        raise BadRequestError(f"The parameter {name[:100]!r} is unknown: {known}.")
    return by_name[name]


def _complete(by_name: Mapping[str, Parameter], found: Mapping[str, Any]) -> dict[str, Any]:
    for name, parameter in by_name.items():
        if parameter.required and name not in found:
            raise BadRequestError(f"{name} is missing.")
    return {name: parameter.default for name, parameter in by_name.items()} | dict(found)


def _is(kind: Kind, value: Any) -> bool:
    match kind:
        case "string":
            return is_storable(value)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            return is_integer or (isinstance(value, float) and math.isfinite(value))
        case "array":
            return isinstance(value, list) and all(map(is_storable, value))
        case "list":
            return isinstance(value, list)


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READERS: Mapping[Kind, Callable[[str], Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": _boolean,
    "array": lambda text: text.split(","),
    "list": json.loads,
}
