"""Actions: what people do to queues, servers, limits and the like, declared once.

The button of a page with its question, the change by JSON, the command, the words after it and its line in
the audit are made from the same declaration. Pure; nothing here knows HTML, HTTP or a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pyworkers.api.parameters import Parameter
from pyworkers.errors import BadArgumentError
from pyworkers.store.admin import Admin
from pyworkers.text import counted

R = TypeVar("R")


class AbsentError(BadArgumentError):
    """What an action names is not there; ``noun`` is what it is, as ``server``."""

    def __init__(self, noun: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.noun = noun


Given = Mapping[str, Any]
"""The values of the fields of an action, by name."""


class Acted(NamedTuple):
    """How many jobs were moved or removed, and how many cannot be; ``reason``: why the last one cannot."""

    done: int = 0
    refused: int = 0
    reason: str = ""
    undo: str = ""
    """The id of the deletion with which the jobs can be put back."""

    def __str__(self) -> str:
        return f"{self.done or 'nothing changed'}{f', refused: {self.reason}' if self.refused else ''}"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a person is asked before an action."""

    title: str
    text: str
    answer: str = ""
    """The words of the button, as ``Clear 3 jobs``; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True)
class Action(Generic[R]):
    """One thing that people do. ``R`` is what a row of a page shows, as ``QueueStats``."""

    name: str
    """Its name in the audit, ``queue.pause``. What follows the dot is its word in JSON and forms."""
    about: str
    """What it does, in one sentence for OpenAPI."""
    fields: Sequence[Parameter]
    """What it is given. The first one names the thing, unless ``target`` is another."""
    do: Callable[..., Any]
    """Does it, with an Admin and the fields by name.

    Returns what changed: a bool, a number, a value, or what became of several jobs (``Acted``).
    """
    _: KW_ONLY
    done: str | Mapping[Any, str] | Callable[[Performed], str]
    """The words after it; by result if they depend on it; from all that is known about it.

    In braces: a field, ``result``, or ``count``, the result with its noun.
    """
    unchanged: str | Mapping[Any, str] = ""
    """The words if nothing was changed."""
    nothing: Sequence[Any] = (False,)
    """The results with which nothing was changed; 0 is one."""
    counts: str = ""
    """The noun of what the result counts."""
    missing: str = ""
    """The noun of what was not there if nothing was changed: then a command exits with 1."""
    conflict: bool = True
    """False if the answer of the JSON to ``missing`` is ``done: 0``, not 409."""
    target: str = ""
    """Its target in the audit, with fields in braces, of a list the length; by default the first field."""
    label: str = ""
    """The text of its button; by default its word."""
    dangerous: bool = False
    asks: Callable[..., Confirmation] | None = None
    """The question before it, with an Admin and the fields by name; None: it does not ask."""
    offered: Callable[[R], bool] = lambda _row: True
    """True for a row that has its button."""
    command: str = ""
    """The help of its command, with an example; empty: it has none."""
    several: str = ""
    """Set if its command takes several things: the member of its JSON with those that were changed."""
    returns: str = ""
    """The name of its result in the JSON of its command, which otherwise prints it alone."""
    queues: Callable[[Admin, Given], Iterable[str] | None] | None = None
    """The queues that it changes, for people who may act on some alone; None: no such person may do it."""

    @property
    def word(self) -> str:
        """``pause`` of ``queue.pause``."""
        return self.name.partition(".")[2]

    @property
    def text(self) -> str:
        """The text of its button; with dots if it asks."""
        return f"{self.label or self.word.capitalize()}{' …' if self.asks else ''}"

    def target_of(self, given: Given) -> str:
        """Its target in the audit."""
        form = self.target or f"{{{self.fields[0].name}}}"
        return form.format(**self.texts(given)).strip()

    def texts(self, given: Given) -> dict[str, str]:
        """The fields as texts; a missing one is empty, and a list is its length."""
        values = {field.name: given.get(field.name, "") for field in self.fields}
        return {name: str(len(value) if isinstance(value, list) else value) for name, value in values.items()}

    def perform(self, admin: Admin, given: Given) -> Performed:
        """Do it. Raises PyworkersError, and ValueError for a value that cannot be used."""
        return Performed(self, given, self.do(admin, **given))


@dataclass(frozen=True, slots=True)
class Performed:
    """What became of an action."""

    action: Action[Any]
    given: Given
    result: Any

    @property
    def nothing(self) -> bool:
        """True if nothing was changed."""
        return not self.result.done if isinstance(self.result, Acted) else self.result in self.action.nothing

    @property
    def failed(self) -> bool:
        """True if what should be changed was not there."""
        return bool(self.action.missing) and self.nothing

    @property
    def number(self) -> int:
        """How many things were changed."""
        if isinstance(self.result, Acted):
            return self.result.done
        return 0 if self.nothing else int(self.result) if isinstance(self.result, int) else 1

    @property
    def conflict(self) -> str:
        """Why nothing was changed, for a program whose action has failed."""
        reason = self.result.reason if isinstance(self.result, Acted) else ""
        return reason or f"The {self.action.missing} has just gone: nothing was changed."

    def words(self, shown: Callable[[str], str]) -> str:
        """The words after it, without their full stop; ``shown`` makes a text of a stranger safe."""
        if callable(self.action.done):
            return self.action.done(self)
        words = self.action.unchanged if self.nothing else self.action.done
        form = words if isinstance(words, str) else words[self.result]
        texts = {name: shown(text) for name, text in self.action.texts(self.given).items()}
        count = counted(self.number, self.action.counts)
        return form.format(**texts, result=shown(str(self.result)), count=count)

    def __str__(self) -> str:
        """The result in the audit."""
        return result_of(self.result)


def result_of(result: object) -> str:
    """A result in the words of the audit: ``done``, ``nothing changed``, a number of things, or its text."""
    if result is None or result is True:
        return "done"
    if result is False or result == 0:
        return "nothing changed"
    return str(result) if isinstance(result, int | str | Acted) else "done"
