"""Call: a job with its arguments that will be enqueued later: a callback of a batch, a step of a chain.

Pure; made by ``Job.call`` and checked like an enqueue call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.draft import Draft


class Awaited(dict[str, str]):
    """A placeholder in the arguments of a call, known by its class: a user's dict may be equal to it.

    ``mark``: makes its JSON, an object, different from everything that a user has.
    """

    def __init__(self, name: str, mark: str = "") -> None:
        super().__init__(pyworkers=name + mark)
        self.name = name

    def __repr__(self) -> str:
        return self.name


class Placeholder:
    """Replaces an argument that is known later. Not JSON: only a call takes it (``admitted``)."""

    def __init__(self, name: str) -> None:
        self.awaited = Awaited(name)

    def __repr__(self) -> str:
        return repr(self.awaited)


RESULT: Any = Placeholder("RESULT")
"""In a step of a chain: the result of the step before."""
RESULTS: Any = Placeholder("RESULTS")
"""In the job after a group: the list of the results, in the order of the group."""
BATCH_ID: Any = Awaited("BATCH_ID")
"""The id of the batch."""


@dataclass(frozen=True, slots=True)
class Call:
    """A job that will be enqueued later, with its arguments; ``job.call(7)`` makes it."""

    draft: Draft = field(repr=False)
    name: str
    args: Sequence[Any]
    clients: Any = field(repr=False)
    """The clients of the application (job.py)."""

    def __repr__(self) -> str:
        return f"{self.name}.call({', '.join(map(repr, self.args))})"

    def holds(self, placeholder: Placeholder) -> bool:
        """True if an argument is the placeholder, or contains it."""
        return contains(self.args, placeholder)

    def filled(self, batch: str, known: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """The arguments for the batch that this call belongs to, with what else is ``known``, by name."""
        return [fill(arg, {"BATCH_ID": batch, **(known or {})}) for arg in self.args]


def admitted(args: Sequence[Any]) -> Sequence[Any]:
    """The arguments with each placeholder as the object that represents it in JSON.

    Raises BadArgumentError for those that are nested too deep.
    """
    try:
        return [_admitted(arg) for arg in args]
    except RecursionError as error:
        raise BadArgumentError("the arguments of a call are nested too deep") from error


def _admitted(value: Any) -> Any:
    if isinstance(value, Placeholder):
        return value.awaited
    if isinstance(value, Awaited):
        return value
    if isinstance(value, dict):
        return {key: _admitted(item) for key, item in value.items()}
    return [_admitted(item) for item in value] if isinstance(value, list | tuple) else value


def contains(value: Any, placeholder: Placeholder) -> bool:
    """True if the value is the placeholder, or contains it."""
    if isinstance(value, Awaited):
        return value.name == placeholder.awaited.name
    if isinstance(value, dict):
        return any(contains(item, placeholder) for item in value.values())
    return isinstance(value, list | tuple) and any(contains(item, placeholder) for item in value)


def fill(value: Any, known: Mapping[str, Any]) -> Any:
    """The value with its placeholders replaced, by their names; others stay."""
    if isinstance(value, Awaited):
        return known.get(value.name, value)
    if isinstance(value, dict):
        return {key: fill(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, known) for item in value]
    return value
