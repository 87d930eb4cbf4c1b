"""Resources: an address of the JSON with what is read there and what can be done there.

Pure. All of them (``RESOURCES`` of the pages) are the only source of the routes, of OpenAPI and of tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pyworkers.api.actions import Action, Given
from pyworkers.api.columns import REDIS
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import Schema
from pyworkers.api.target import Admin
from pyworkers.protocol.keys import Keys
from pyworkers.web.acting import carry_out
from pyworkers.web.security import Role
from pyworkers.web.site import Site, site_of

T = TypeVar("T")
CSV = "csv"
AWAY = "away"
"""The member of a list of all Redis servers that says why one is away, by its name; its column in a file."""
FORMAT = Parameter(
    "format",
    "csv: the rows as a file for spreadsheets, without count the rows of all pages.",
    default="json",
    choices=("json", CSV),
)
_AT = Parameter(
    REDIS.name, "The Redis at which it is done. Needed in a list; one thing is found in the one that has it."
)
Changed = int | Mapping[str, Any]
"""How many things an action has changed, or ``done`` with more members of the answer."""


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A request: the names in its address, and its parameters or the fields of its action, all checked."""

    request: Request
    names: Mapping[str, str]
    given: Mapping[str, Any]

    @property
    def site(self) -> Site:
        """The dashboard that answers."""
        return site_of(self.request)

    @property
    def admin(self) -> Admin:
        """The blocking connection, for the objects of ``api``."""
        return self.site.admin

    @property
    def keys(self) -> Keys:
        """The names of the keys."""
        return self.site.keys


@dataclass(frozen=True, slots=True)
class Change:
    """A change that a resource offers: the field ``action`` of a request names it."""

    word: str
    about: str
    change: Callable[[CheckedRequest], Awaitable[Changed]]
    fields: Sequence[Parameter] = ()


class Refused(Exception):
    """A request that is refused with these members in its answer; ``error`` is one of them."""

    def __init__(
        self, status: int, facts: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(facts["error"])
        self.status = status
        self.facts = facts
        self.headers = headers


class Created(NamedTuple):
    """The answer to a request that has made something."""

    value: Mapping[str, Any]
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Creation:
    """What is made by a POST to an address, whose body is that thing. It needs a bearer token."""

    about: str
    create: Callable[[Request, Any], Awaitable[Created]]
    """Gets the JSON of the body. Raises Refused."""
    body: Schema
    answers: Mapping[str, tuple[str, Schema]]
    """By status: what it means, and the schema of its JSON."""
    headers: Sequence[Parameter] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """One address. ``path`` has its names in braces; ``schema`` is the schema of the answer."""

    path: str
    about: str
    read: Callable[[CheckedRequest], Awaitable[Any]] | None
    """None for an address that is not read."""
    schema: Schema
    parameters: Sequence[Parameter] = ()
    actions: Sequence[Change | Action[Any]] = field(default=())
    creation: Creation | None = None
    readers: Collection[Role] = ("read", "operate")
    """The roles that may read it."""
    rows: str | None = None
    """The member of the answer with the rows of a list, also read as CSV. Empty: the answer itself."""
    order: Callable[[Any], Any] | None = None
    """What the rows of several Redis servers are sorted by in one list; None for no such list."""
    sought: bool = False
    """True for one thing: if a Redis does not know it (404), the others of several are asked."""
    whole: Schema | None = None
    """The schema of one answer about several Redis servers, if ``read`` asks each; else None."""
    choose: Callable[[CheckedRequest], Awaitable[None]] | None = None
    """Has a change done at the Redis that it names, or that has the thing. Raises BadRequestError."""

    @property
    def methods(self) -> str:
        """The methods that it has, as in the header ``Allow``."""
        reading = ("GET", "HEAD") if self.read is not None else ()
        writing = ("POST",) if self.actions or self.creation is not None else ()
        return ", ".join(reading + writing)

    @property
    def known(self) -> Sequence[Parameter]:
        """The parameters of its address."""
        return self.parameters if self.rows is None else [*self.parameters, FORMAT]

    @property
    def widest(self) -> Given:
        """The parameters of a page with as many rows as it may have."""
        return {parameter.name: parameter.most for parameter in self.parameters if parameter.name == "count"}

    @property
    def row_schema(self) -> Schema:
        """The schema of a row of a list."""
        rows = self.schema["properties"][self.rows] if self.rows else self.schema
        schema: Schema = rows["items"]
        return schema

    def following(self, asked: Given, page: Any, rows: int) -> Given | None:
        """The parameters of the page behind this one, which has this many rows; None at the end."""
        names = {parameter.name for parameter in self.parameters}
        if not isinstance(page, Mapping):
            return None
        if "cursor" in page:
            return {**asked, "cursor": page["cursor"]} if page["cursor"] else None
        if "next" in page:
            return {**asked, "after": page["next"]} if page["next"] else None
        if "first" in names and rows and asked["first"] + rows < page["total"]:
            return {**asked, "first": asked["first"] + rows}
        return None

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.strip("/").split("/"))

    def fields_of(self, action: Change | Action[Any]) -> list[Parameter]:
        """The fields of an action that its address does not have."""
        own = [field for field in action.fields if f"{{{field.name}}}" not in self.segments]
        return own if self.choose is None else [*own, replace(_AT, required=not self.sought)]

    def names_in(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The names in an address of this form; None for an address of another form."""
        if len(segments) != len(self.segments):
            return None
        pairs = list(zip(self.segments, segments, strict=True))
        if any(own != asked for own, asked in pairs if own[0] != "{"):
            return None
        return {own.strip("{}"): asked for own, asked in pairs if own[0] == "{"}


def found(thing: T | None, what: str) -> T:
    """The thing; 404 for None."""
    if thing is None:
        raise HTTPException(404, f"There is no such {what}.")
    return thing


async def number_done(request: Request, action: Action[Any], given: Given) -> int:
    """Do an action: how many things it has changed; 409 if what should be changed has gone."""
    fields = [field.name for field in action.fields if given.get(field.name) is not None]
    outcome = await carry_out(request, action, {name: given[name] for name in fields})
    if outcome.failed and action.conflict:
        raise HTTPException(409, outcome.conflict)
    return outcome.number
