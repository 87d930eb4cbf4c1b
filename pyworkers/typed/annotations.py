"""Annotations: the annotations of a function, evaluated, and which of them need more than JSON.

Runs in producers and workers, at the first use of a job and in the fork server. It never imports pydantic:
an application whose annotations are plain JSON types never loads it.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import operator
import re
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Final, Literal, NotRequired, Required, TypeVar, Union

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
_OTHER_KEYS = re.compile(r"dict\[\s*(?!str\b)")
_CONTAINERS = (
    list, dict, abc.Sequence, abc.Mapping, abc.Iterable, abc.Collection, Union, types.UnionType, Final
)  # fmt: skip
# What JSON carries as it is, and what a job cannot be given as JSON: neither needs a codec.
_PLAIN = frozenset((int, str, float, bool, type(None), Any, object, *_CONTAINERS, type, abc.Callable))
_NOT_SENT = (type, abc.Callable, abc.Iterator, abc.Generator, abc.AsyncIterator, abc.Awaitable)
# Metadata of Annotated that pydantic applies.
_PYDANTIC = ("pydantic", "annotated_types")
_DEEPEST = 20


class Unresolved(Exception):
    """An annotation that cannot be evaluated, with the reason."""


def may_be_typed(annotation: object) -> bool:
    """False if the annotation is surely of plain JSON types; evaluates nothing."""
    if isinstance(annotation, str):
        plain = _PLAIN_NAMES.issuperset(re.split(r"\W+", annotation))
        return not plain or _OTHER_KEYS.search(annotation) is not None
    return is_typed(annotation) or _has_forward_reference(annotation)


def is_typed(annotation: object, depth: int = 0) -> bool:
    """True if the annotation holds a type that JSON does not carry: pydantic knows whether it converts it."""
    if depth > _DEEPEST:
        return False
    inner = functools.partial(is_typed, depth=depth + 1)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return inner(args[0]) or any(type(one).__module__.startswith(_PYDANTIC) for one in args[1:])
    if origin in _CONTAINERS:
        return any(map(inner, args)) or (origin in (dict, abc.Mapping) and _is_number(args[0]))
    if origin is Literal:
        return any(isinstance(one, Enum | bytes) for one in args)
    if origin is not None:
        return isinstance(origin, type) and origin not in _NOT_SENT
    if isinstance(annotation, TypeVar):
        return any(map(inner, (annotation.__bound__, *annotation.__constraints__)))
    # NewType, and the aliases of Python 3.12.
    alias = getattr(annotation, "__supertype__", None) or getattr(annotation, "__value__", None)
    if alias is not None and not isinstance(annotation, type):
        return inner(alias)
    return _is_typed_class(annotation)


def _is_number(key: object) -> bool:
    """True for the keys of a dict that JSON would carry as text: numbers, bool and None."""
    alias = getattr(key, "__supertype__", None) or getattr(key, "__value__", None)
    parts = () if alias is None else (alias,)
    if typing.get_origin(key) in (Annotated, Union, types.UnionType):
        parts = typing.get_args(key)
    return key in (int, float, bool, type(None)) or any(map(_is_number, parts))


def _is_typed_class(cls: object) -> bool:
    return isinstance(cls, type) and not any(cls is one for one in (*_PLAIN, *_NOT_SENT))


def _is_typed_dict(cls: object) -> bool:
    # Not is_typeddict: it knows only the TypedDicts of its module, typing or typing_extensions.
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
        hints = typing.get_type_hints(holder, _globals_of(function), include_extras=True)
        found = _adapted(hints["it"])
    except (
        Exception
    ) as error:  # the annotation is an expression of the application's, which may raise anything
        raise Unresolved(f"{type(error).__name__}: {error}") from error
    return _for_pydantic(found) if sys.version_info < (3, 12) else found


def is_frozen() -> bool:
    """True while a test has replaced the classes of ``datetime``: what is made of them is not kept."""
    return datetime.date.__module__ != "datetime"


@contextlib.contextmanager
def unfrozen() -> Iterator[None]:
    """A block in which ``datetime`` has its own classes: pydantic compares an annotation with them."""
    replaced = {name: getattr(datetime, name) for name in ("date", "datetime")} if is_frozen() else {}
    for name, cls in replaced.items():
        setattr(datetime, name, _unfrozen(cls))
    try:
        yield
    finally:
        for name, cls in replaced.items():
            setattr(datetime, name, cls)


def _adapted(annotation: Any, depth: int = 0) -> Any:
    """The annotation in the words of pydantic: no Final, a Sequence for an Iterable, the real classes of a
    frozen clock.
    """
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if depth > _DEEPEST or origin is Literal:
        return annotation
    if origin is Final:
        return _adapted(args[0], depth + 1)
    if isinstance(annotation, TypeVar):
        return _adapted(annotation.__bound__ or Union[annotation.__constraints__ or Any], depth + 1)  # noqa: UP007
    if annotation is abc.Iterable or (origin is abc.Iterable and not args):
        return abc.Sequence[Any]
    if origin is None:
        return _unfrozen(annotation) if isinstance(annotation, type) else annotation
    if origin is Annotated:
        inner = _adapted(args[0], depth + 1)
        return annotation if inner is args[0] else Annotated[(inner, *args[1:])]
    if not args:
        return annotation
    changed = tuple(_adapted(one, depth + 1) for one in args)
    if origin is abc.Iterable:
        # pydantic's own value for it reads the items when it is iterated.
        return abc.Sequence[changed[0]]  # type: ignore[valid-type]
    if all(one is other for one, other in zip(changed, args, strict=True)):
        return annotation
    return functools.reduce(operator.or_, changed) if origin in (Union, types.UnionType) else origin[changed]


def _unfrozen(cls: type) -> type:
    """The class of ``datetime`` that freezegun's replaces; another class itself."""
    if not cls.__module__.startswith("freezegun"):
        return cls
    return next((base for base in cls.__mro__ if base.__module__ == "datetime"), cls)


def literals_of(annotation: object, depth: int = 0) -> Iterator[Any]:
    """The Literals in an annotation whose values are members of an Enum."""
    if depth <= _DEEPEST:
        args = typing.get_args(annotation)
        if typing.get_origin(annotation) is Literal:
            if any(isinstance(one, Enum) for one in args):
                yield annotation
        else:
            for one in args:
                yield from literals_of(one, depth + 1)


def _globals_of(function: Callable[..., object]) -> dict[str, Any]:
    """The names that the annotations of a function were written with."""
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not hasattr(inner, "__globals__"):
        inner = getattr(type(inner), "__call__", None)  # noqa: B004 - the method itself is wanted
    return getattr(inner, "__globals__", {})


def _for_pydantic(annotation: Any, depth: int = 0) -> Any:
    """The annotation with each TypedDict of ``typing`` as one of typing_extensions.

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
