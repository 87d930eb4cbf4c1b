"""Binder: turns the arguments of a call into the list that a job carries.

Pure; used in programs that enqueue.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyworkers.functions import positional
from pyworkers.protocol.call import BATCH_ID
from pyworkers.protocol.options import JobOverrides, suggestion
from pyworkers.typed.signatures import passes_on, signature_of

_METHODS = {
    **dict.fromkeys(("delay", "countdown", "_defer_by"), "enqueue_in(seconds, …)"),
    **dict.fromkeys(("at", "eta", "_defer_until"), "enqueue_at(when, …)"),
    **dict.fromkeys(("args", "kwargs"), "enqueue(…), with the arguments as in a call of the function"),
}

_INJECTED = (
    "; if its decorator passes arguments itself, annotate the decorator with Concatenate, or set "
    "__signature__ of the wrapper"
)


class Binder:
    """Binds arguments to the signature of one function. Raises TypeError, as a call would."""

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._name = name
        self._signature = signature_of(function) or inspect.signature(lambda *args: None)
        self._parameters = positional(self._signature, name)
        required = [p for p in self._parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
        open_ended = any(p.kind is p.VAR_POSITIONAL for p in self._parameters)
        self._least = len(required)
        self._injected = _INJECTED if passes_on(function) else ""
        self._most = None if open_ended else len(self._parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The arguments in the order of the parameters."""
        if not kwargs and self._least <= len(args) and (self._most is None or len(args) <= self._most):
            return args
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}{self._hint(kwargs)}{self._injected}") from None
        self._refuse_unsendable(given)
        return self._listed(given)

    def bind_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """As ``bind``; a parameter ``batch_id`` that is not given by name is not asked for."""
        others = [p for p in self._signature.parameters.values() if p.name != "batch_id"]
        if "batch_id" in kwargs or len(others) == len(self._signature.parameters):
            return self.bind(args, kwargs)
        try:
            given = self._signature.replace(parameters=others).bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self._name}(): {error}{self._hint(kwargs)}") from None
        self._refuse_unsendable(given)
        return self._listed({**given, "batch_id": BATCH_ID})

    def _hint(self, given: Mapping[str, Any]) -> str:
        """The parameter, or the option, that a keyword without a parameter may mean."""
        known = self._signature.parameters
        name = next((name for name in given if name not in known), None)
        if name is None:
            return ""
        if name in _METHODS:
            return f"; use {self._name}.{_METHODS[name]}"
        near, option = suggestion(name, known), suggestion(name, JobOverrides.__annotations__)
        if near and name not in JobOverrides.__annotations__:
            return f"; {near}"
        if option:
            word = option.removeprefix("did you mean ").removesuffix("?")
            return f"; {word} is an option: {self._name}.options({word}=…).enqueue(…)"
        return ""

    def _refuse_unsendable(self, given: Mapping[str, Any]) -> None:
        sendable = {parameter.name for parameter in self._parameters}
        if unsendable := [name for name in given if name not in sendable]:
            raise TypeError(
                f"{self._name}(): {unsendable[0]!r} can only be given by name, and a job "
                "carries its arguments as a list, without names"
            )

    def _listed(self, given: Mapping[str, Any]) -> list[Any]:
        """All arguments up to the last one that was given; one that is missing before it has its default."""
        listed: list[Any] = []
        last = max((i for i, p in enumerate(self._parameters) if p.name in given), default=-1)
        for parameter in self._parameters[: last + 1]:
            if parameter.kind is parameter.VAR_POSITIONAL:
                listed += given.get(parameter.name, ())
            else:
                listed.append(given.get(parameter.name, parameter.default))
        return listed
