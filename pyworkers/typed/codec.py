"""Codecs: one annotated value as JSON, and JSON as that value again.

Runs in producers and workers. pydantic is imported when the first codec is made. A value that would arrive as
another one is refused. No error text quotes a value: arguments are never logged.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, get_args

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.envelope import check_value, encode
from pyworkers.typed.annotations import unfrozen

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter, ValidationError


class Codec(Protocol):
    """Converts the values of one annotation. Both methods raise BadArgumentError, which names ``path``."""

    def to_json(self, value: Any, path: str) -> Any:
        """The value as JSON values."""
        ...

    def from_json(self, value: Any, path: str) -> Any:
        """The value of the JSON values."""
        ...


class Unchanged:
    """The codec of an annotation that cannot be used: values are sent as they are. ``hint`` is the reason."""

    def __init__(self, hint: str) -> None:
        self._hint = hint

    def to_json(self, value: Any, path: str) -> Any:
        """The value itself."""
        try:
            check_value(value, path)
        except BadArgumentError as error:
            raise BadArgumentError(error.message, hint=self._hint) from None
        return value

    def from_json(self, value: Any, path: str) -> Any:
        """The value itself."""
        return value


class TypeCodec:
    """The codec of one annotation, by pydantic."""

    def __init__(self, annotation: Any) -> None:
        """Raises pydantic's errors for an annotation that it cannot use, and ImportError without pydantic."""
        with unfrozen():
            # Imported under a frozen clock, pydantic would know its classes alone from then on.
            from pydantic import ConfigDict, TypeAdapter

            # In a tuple, because a model may not have a configuration from here, but the types around it may.
            config = ConfigDict(
                ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants"
            )
            self._adapter: TypeAdapter[tuple[Any]] = TypeAdapter(tuple[annotation], config=config)
        if not self._adapter.pydantic_complete:
            # A class inside it has an annotation that cannot be evaluated: an error now, not at first use.
            self._adapter.rebuild(raise_errors=True)
        is_class = isinstance(annotation, type) and not get_args(annotation)
        self._name = annotation.__name__ if is_class else str(annotation)

    def to_json(self, value: Any, path: str) -> Any:
        """The value as JSON values: it is of the annotated type, or the JSON for one.

        Anything else that pydantic takes for the type is converted first, e.g. a list to a tuple.
        """
        written = self._dumped(value)
        if written is None:
            return self._converted(value, path)
        check_value(written[0], path)
        _refuse_flaw(value, self._parsed(encode(written), path), path, self._name)
        return _ordered(value, written[0])

    def from_json(self, value: Any, path: str) -> Any:
        """The value of the annotated type."""
        try:
            text = encode([value])
        except (TypeError, ValueError):
            # An argument that an ActiveJob's serializer has made a Python value already.
            return self._validated(value, path)
        found = self._parsed(text, path)
        _refuse_flaw(found, found, path, self._name)
        return found

    def _converted(self, value: Any, path: str) -> Any:
        if _is_json(value, path):
            found = self._parsed(encode([value]), path)
            _refuse_flaw(found, found, path, self._name)
            return value
        found = self._validated(value, path)
        # Without warnings, so that the parser names the place of a field that has not its type.
        written = self._dumped(found, warnings="none")
        if written is None:
            raise BadArgumentError(f"{path} cannot be written as JSON by its type {self._name}")
        check_value(written[0], path)
        _refuse_flaw(found, self._parsed(encode(written), path), path, self._name)
        return _ordered(found, written[0])

    def _dumped(self, value: Any, warnings: Literal["error", "none"] = "error") -> list[Any] | None:
        """The value as JSON values, in a list; None if it is not of the annotated type."""
        try:
            found = self._adapter.dump_python(
                (value,), mode="json", by_alias=True, round_trip=True, warnings=warnings
            )
        except Exception:  # pydantic's errors, and errors of the application's serializers
            return None
        return list(found)

    def _parsed(self, text: str, path: str) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)[0]
        except ValidationError as error:
            _refuse(error, path, self._name)
        except UnicodeEncodeError as error:
            raise BadArgumentError(f"{path} cannot be read as {self._name}: {error.reason}") from None

    def _validated(self, value: Any, path: str) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python((value,))[0]
        except ValidationError as error:
            _refuse(error, path, self._name)


def _is_json(value: Any, path: str) -> bool:
    try:
        check_value(value, path)
    except BadArgumentError:
        return False
    return True


def _refuse(error: ValidationError, path: str, name: str) -> NoReturn:
    """Raise BadArgumentError with the place of the first error, and without its input."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # The first part is the place in the tuple around the value.
    place = "".join(f"[{part!r}]" for part in first["loc"][1:])
    raise BadArgumentError(f"{path}{place} does not fit {name}: {first['msg']}") from None


def _refuse_flaw(sent: Any, got: Any, path: str, name: str) -> None:
    for place, flaw in _flaws(sent, got, path):
        raise BadArgumentError(f"{place} {flaw} ({path} is annotated as {name})")


def _flaws(sent: Any, got: Any, path: str) -> Iterator[tuple[str, str]]:
    """The places below ``path`` where a value is a naive datetime, or arrives as another value."""
    parts = _parts(sent, got)
    if isinstance(got, datetime) and got.tzinfo is None:
        yield path, "is a datetime without a time zone"
    elif parts is None:
        yield path, "would arrive as another value"
    else:
        for place, sent_part, got_part in parts:
            yield from _flaws(sent_part, got_part, f"{path}{place}")


def _parts(sent: Any, got: Any) -> Iterable[tuple[str, Any, Any]] | None:
    """The parts of both values, with their places; None for values that differ however equal their parts."""
    if isinstance(got, datetime):
        # Not ``==``, which is never true between two zones in an hour that the clock shows twice (PEP 495).
        return () if isinstance(sent, datetime) and _same_instant(sent, got) else None
    if isinstance(got, list | tuple | deque):
        # A Sequence arrives as a list.
        fits = isinstance(sent, list | tuple | deque if type(got) is list else type(got))
        if not fits or len(sent) != len(got):
            return None
        return ((f"[{index}]", *pair) for index, pair in enumerate(zip(sent, got, strict=True)))
    if isinstance(got, dict):
        if not isinstance(sent, Mapping) or sent.keys() != got.keys():
            return None
        return ((f"[{key!r}]", sent[key], value) for key, value in got.items())
    if (members := _members(got)) is not None:
        if not isinstance(sent, type(got)):
            return None
        return ((f".{name}", getattr(sent, name, None), getattr(got, name, None)) for name in members)
    return None if sent is not got and sent != got and _is_comparable(got) else ()


def _ordered(value: Any, written: Any) -> Any:
    """The JSON of a value with its sets in order, so that equal sets have equal keys of unique jobs."""
    if getattr(value, "__pydantic_root_model__", False):
        return _ordered(value.root, written)
    if isinstance(written, list) and isinstance(value, Sequence | Set) and len(written) == len(value):
        inner = list(map(_ordered, value, written))
        return sorted(inner, key=encode) if isinstance(value, Set) else inner
    if isinstance(written, dict) and isinstance(value, Mapping) and len(written) == len(value):
        return dict(zip(written, map(_ordered, value.values(), written.values()), strict=True))
    if isinstance(written, dict) and (members := _members(value)) is not None:
        named = {_alias(value, name): getattr(value, name, None) for name in members}
        named |= getattr(value, "__pydantic_extra__", None) or {}
        return {name: _ordered(named.get(name), inner) for name, inner in written.items()}
    return written


def _alias(value: Any, member: str) -> str:
    """The name in JSON of a field of a dataclass or a model."""
    about = getattr(type(value), "__pydantic_fields__", {}).get(member)
    return (about and (about.serialization_alias or about.alias)) or member


def _is_comparable(value: object) -> bool:
    """False for an object of a class without ``==``, of which a copy is never equal."""
    return "__eq__" in {name for cls in type(value).__mro__[:-1] for name in vars(cls)}


def _same_instant(sent: datetime, got: datetime) -> bool:
    return sent.utcoffset() == got.utcoffset() and sent.replace(tzinfo=None) == got.replace(tzinfo=None)


def _members(value: Any) -> list[str] | None:
    """The names of the fields that are sent of a dataclass or a model; None for any other value."""
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.init]
    kind: type[BaseModel] = type(value)
    if not hasattr(kind, "model_fields"):
        return None
    return [name for name, field in kind.model_fields.items() if not field.exclude]
