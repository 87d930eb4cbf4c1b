"""Signatures: the parameters with which a function of the application is called.

Runs in producers, the fork server and workers. It never evaluates an annotation that only type checkers can.
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable
from types import FunctionType
from typing import Any, Concatenate

try:
    # Python 3.14 evaluates annotations when they are read: a name may be missing, or defined later.
    from annotationlib import Format  # type: ignore[import-not-found, unused-ignore]

    _FORMATS: tuple[dict[str, Any], ...] = (
        {"annotation_format": Format.FORWARDREF},
        {"annotation_format": Format.STRING},
    )
except ImportError:
    _FORMATS = ({},)

_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def signature_of(function: Callable[..., object]) -> inspect.Signature | None:
    """The signature by which a call is bound; None for a function that is written in C, without one.

    A wrapper made with ``functools.wraps`` has the signature of the function inside it, unless it has
    its own parameters, or its decorator is annotated with ``Concatenate``.
    """
    try:
        return _signature(function)
    except (ValueError, TypeError):
        return None


def passes_on(function: Any) -> bool:
    """True for a wrapper that passes its arguments to the function inside it, as far as can be seen."""
    return (
        isinstance(function, FunctionType)
        and hasattr(function, "__wrapped__")
        and not hasattr(function, "__signature__")
    )


def _signature(function: Any) -> inspect.Signature:
    if not passes_on(function):
        return _read(function)
    own = _read(function, follow_wrapped=False)
    if not any(one.kind is one.VAR_POSITIONAL for one in own.parameters.values()):
        return own
    within = _signature(function.__wrapped__)
    taken, added = _by_decorator(function)
    if not taken and not added:
        return within
    places = [one for one in within.parameters.values() if one.kind in _PLACES]
    rest = [one for one in within.parameters.values() if one not in places[:taken]]
    return within.replace(parameters=[*list(own.parameters.values())[:added], *rest])


def _read(function: Any, **options: Any) -> inspect.Signature:
    for form in _FORMATS[:-1]:
        try:
            return inspect.signature(function, **form, **options)
        except Exception:  # an annotation is an expression of the application's, which may raise anything
            continue
    return inspect.signature(function, **_FORMATS[-1], **options)


def _by_decorator(wrapper: FunctionType) -> tuple[int, int]:
    """The numbers of arguments that the decorator of a wrapper passes itself, and that it asks for itself.

    By its annotations, which are what a type checker goes by. A decorator that is made by a function cannot
    be found by its name.
    """
    decorator: Any = wrapper.__globals__
    for name in wrapper.__code__.co_qualname.split(".<locals>.")[:-1]:
        decorator = decorator.get(name) if isinstance(decorator, dict) else None
    if not isinstance(decorator, FunctionType):
        return 0, 0
    signature = _read(decorator)
    first = next(iter(signature.parameters.values()), None)
    return _concatenated(first.annotation if first else None), _concatenated(signature.return_annotation)


def _concatenated(annotation: Any) -> int:
    """The number of arguments in front of the ``ParamSpec`` in an annotation such as
    ``Callable[Concatenate[Session, P], R]``."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _concatenated_text(annotation)
    parts = typing.get_args(annotation)[:1]
    if parts and typing.get_origin(parts[0]) is Concatenate:
        return len(typing.get_args(parts[0])) - 1
    return 0


def _concatenated_text(annotation: str) -> int:
    try:
        tree = ast.parse(annotation.strip(), mode="eval")
    except SyntaxError:
        return 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("Concatenate"):
            return len(node.slice.elts) - 1 if isinstance(node.slice, ast.Tuple) else 0
    return 0
