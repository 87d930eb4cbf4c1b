"""Annotations: the annotations of a function, evaluated, and which of them need more than JSON.

Runs in producers and workers, at the first use of a job and in the fork server. It never imports pydantic:
an application whose annotations are plain JSON types never loads it.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, Union

# Names of which an annotation in quotes, or under the future import, can be made without being evaluated.
_PLAIN_NAMES = frozenset(
    (
        "int",
        "str",
        "float",
        "bool",
        "list",
        "dict",
        "None",
        "Any",
        "object",
        "Optional",
        "Union",
        "typing",
        "",
    )
)
# By name, so that a program without typed jobs need not import their modules.
_TYPES = {
    "datetime": ("datetime", "date", "time", "timedelta"),
    "decimal": ("Decimal",),
    "uuid": ("UUID",),
    "builtins": ("tuple", "set", "frozenset", "bytes"),
}
_CONTAINERS = (list, dict, abc.Sequence, abc.Mapping, Union, types.UnionType)
# Metadata of Annotated that pydantic applies.
_PYDANTIC = ("pydantic", "annotated_types")
_DEEPEST = 20


class Unresolved(Exception):
    """An annotation that cannot be evaluated, with the reason."""


def may_be_typed(annotation: object) -> bool:
    """False if the annotation is surely of plain JSON types; evaluates nothing."""
    if isinstance(annotation, str):
        return not _PLAIN_NAMES.issuperset(re.split(r"\W+", annotation))
    return is_typed(annotation) or _has_forward_reference(annotation)


def is_typed(annotation: object, depth: int = 0) -> bool:
    """True if the annotation holds a type that JSON does not carry, and that pydantic converts."""
    if depth > _DEEPEST:
        return False
    inner = functools.partial(is_typed, depth=depth + 1)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return inner(args[0]) or any(type(one).__module__.startswith(_PYDANTIC) for one in args[1:])
    if origin in _CONTAINERS:
        return any(map(inner, args))
    if origin is not None:
        return _is_typed_class(origin)
    # NewType, and the aliases of Python 3.12.
    alias = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
    if alias is not None and not isinstance(annotation, type):
        return inner(alias)
    return _is_typed_class(annotation)


def _is_typed_class(cls: object) -> bool:
    if not isinstance(cls, type):
        return False
    named = cls.__qualname__ in _TYPES.get(cls.__module__, ()) or cls in (abc.Set, abc.MutableSet)
    if named or is_dataclass(cls) or _is_typed_dict(cls) or issubclass(cls, Enum):
        return True
    named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return named_tuple or hasattr(cls, "__get_pydantic_core_schema__")


def _is_typed_dict(cls: object) -> bool:
    # Not is_typeddict, which knows those of its own module alone, typing or typing_extensions.
    return hasattr(cls, "__required_keys__") and hasattr(cls, "__total__")


def _has_forward_reference(annotation: object, depth: int = 0) -> bool:
    if isinstance(annotation, str | typing.ForwardRef):
        return True
    args = () if depth > _DEEPEST else typing.get_args(annotation)
    return any(
        _has_forward_reference(one, depth + 1) for one in args if typing.get_origin(annotation) != Literal
    )


def evaluated(annotation: object, function: Callable[..., object]) -> Any:
    """The annotation of a parameter of ``function`` as an object. Raises Unresolved."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        found = typing.get_type_hints(holder, _globals_of(function), include_extras=True)["it"]
    except (
        Exception
    ) as error:  # the annotation is an expression of the application's, which may raise anything
        raise Unresolved(f"{type(error).__name__}: {error}") from error
    return _for_pydantic(found) if sys.version_info < (3, 12) else found


def _globals_of(function: Callable[..., object]) -> dict[str, Any]:
    """The names that the annotations of a function were written with."""
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not hasattr(inner, "__globals__"):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - the method itself is wanted
    return getattr(inner, "__globals__", {})


def _for_pydantic(annotation: Any, depth: int = 0) -> Any:
    """The annotation with the TypedDicts of ``typing`` as those of typing_extensions.

    Before Python 3.12, pydantic accepts no others, because ``typing`` loses which keys are required.
    """
    if depth > _DEEPEST:
        return annotation
    if _is_typed_dict(annotation):
        return _typed_dict(annotation, depth) if type(annotation).__module__ == "typing" else annotation
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (None, Literal) or (isinstance(annotation, type) and not args):
        return annotation
    if origin is Annotated:
        return Annotated[(_for_pydantic(args[0], depth + 1), *args[1:])]
    changed = tuple(_for_pydantic(one, depth + 1) for one in args)
    if changed == args:
        return annotation
    return functools.reduce(operator.or_, changed) if origin is types.UnionType else origin[changed]


def _typed_dict(cls: Any, depth: int) -> Any:
    # Installed with pydantic; without it, the class stays, and is never converted.
    try:
        from typing_extensions import TypedDict
    except ImportError:
        return cls
    hints: Mapping[str, Any] = typing.get_type_hints(cls, include_extras=True)
    members = {
        name: (Required if _is_required(name, hint, cls) else NotRequired)[
            _for_pydantic(_bare(hint), depth + 1)
        ]
        for name, hint in hints.items()
    }
    return TypedDict(cls.__name__, members)  # type: ignore[operator]


def _is_required(name: str, hint: object, cls: Any) -> bool:
    # Under the future import, a class does not know that a key is marked; its hints do.
    marker = typing.get_origin(hint)
    return name in cls.__required_keys__ if marker not in (Required, NotRequired) else marker is Required


def _bare(hint: Any) -> Any:
    """The type inside Required and NotRequired."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) in (Required, NotRequired) else hint
