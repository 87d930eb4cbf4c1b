"""Merging: the JSON in a dashboard of several Redis servers: lists of all, one thing and changes at any.

Runs in the event loop of the dashboard. The Redis servers are asked as for the pages (``several.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request

from pyworkers.api.actions import Given
from pyworkers.api.columns import REDIS
from pyworkers.api.parameters import BadRequestError, Parameter, values_of_query
from pyworkers.api.schemas import TEXT, Schema, array, by_name, more, record
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.web.json.resources import AWAY, CheckedRequest, Resource
from pyworkers.web.navigation import OF_FIRST
from pyworkers.web.several import away_of, merged, sites_of
from pyworkers.web.site import site_of

_CURSOR = Parameter("cursor", "Where the list goes on in each Redis: the cursor of the answer before.")
# Where the list of one Redis goes on; in the cursor of all with its name, as first.archive=50.
_PLACES = ("cursor", "after", "first")
_FROM = Parameter(REDIS.name, "The Redis at which a search goes on: redis of the answer before.")
# Between the names of Redis servers, which do not have it, and a cursor.
_MISSED = "~"
# Where the search for one job goes on.
_GOES_ON = ("place", "at", "cursor")
_QUEUES = "queues"
# Things with names that several Redis servers may have; the others have ids.
_NAMED = (_QUEUES, "cron", "limits")


def of_all(resource: Resource) -> Resource:
    """A list with the rows of all Redis servers, one thing of any of them, or an answer about all of them.

    Changes are done at any of them.
    """
    if resource.actions and resource.segments[0] not in OF_FIRST:
        resource = replace(resource, choose=partial(_choose, resource))
    if resource.order is not None:
        return _Merged(resource).resource()
    if resource.whole is not None:
        schema = more(resource.whole, f"{resource.schema['title']}Sum", {AWAY: by_name(TEXT)})
        return replace(resource, about=_of_all(resource), read=partial(_read_whole, resource), schema=schema)
    if not resource.sought:
        return resource
    parameters = [*resource.parameters, _FROM] if _goes_on(resource) else resource.parameters
    return replace(
        resource, parameters=parameters, read=partial(_seek, resource), schema=with_redis(resource.schema)
    )


def _goes_on(one: Resource) -> bool:
    """True if the search for one thing may take several requests."""
    return not one.rows and any(parameter.name == "cursor" for parameter in one.parameters)


async def _choose(one: Resource, ask: CheckedRequest) -> None:
    """Have a change done at the Redis that it names, or else at the one that has the thing.

    Raises BadRequestError, and RedisUnavailableError if one that is away may have it.
    """
    sites = sites_of(ask.request).by_name
    name = ask.given[REDIS.name] or await _having(one, ask)
    if name not in sites:
        raise BadRequestError(f"redis must be one of {', '.join(sites)}.")
    ask.request.scope["state"]["site"] = sites[name]


async def _having(one: Resource, ask: CheckedRequest) -> str:
    """The name of the Redis that has a thing; of the first one if none has it."""
    sites = sites_of(ask.request)
    if "jid" in ask.names:
        return await sites.that_knows(ask.names["jid"])
    ask = replace(ask, given=values_of_query(one.parameters, ()))
    if one.segments[0] in _NAMED:
        return _home_of(one, ask) or await _only(one, ask)
    try:
        found = await _seek(one, ask)
    except HTTPException:
        return sites.own
    return str(found[REDIS.name])


def _home_of(one: Resource, ask: CheckedRequest) -> str:
    """The other Redis that the configuration names for a queue; empty for none."""
    return ask.site.settings.elsewhere(ask.names["name"]) if one.segments[0] == _QUEUES else ""


async def _only(one: Resource, ask: CheckedRequest) -> str:
    """The name of the only Redis that has a thing of this name; of the first one if none has it.

    A queue that the configuration puts nowhere else is the one of the first, if that has it.
    """
    sites, read = sites_of(ask.request), one.read

    async def has(at: Request) -> bool:
        try:
            assert read is not None
            await read(CheckedRequest(at, ask.names, ask.given))
        except HTTPException as error:
            if error.status_code != 404:
                raise
            return False
        return True

    having = [name for name, found in (await sites.each(ask.request, has)).items() if found]
    if one.segments[0] == _QUEUES and ask.site.settings.stores is not None and sites.own in having:
        return sites.own
    if away := away_of(ask.request):
        raise RedisUnavailableError(f"these Redis servers are unreachable: {', '.join(away)}")
    if len(having) > 1:
        raise BadRequestError(f"redis is missing: {' and '.join(having)} have this name.")
    return having[0] if having else sites.own


def _of_all(resource: Resource) -> str:
    return f"{resource.about} Of all Redis servers."


async def _read_whole(one: Resource, ask: CheckedRequest) -> dict[str, Any]:
    assert one.read is not None
    found = await one.read(ask)
    return {**found, AWAY: {name: str(error) for name, error in away_of(ask.request).items()}}


def with_redis(schema: Schema) -> Schema:
    """A record, or each one of an array, that has the name of its Redis; any other value as it is."""
    if "anyOf" in schema:
        return {"anyOf": [with_redis(one) for one in schema["anyOf"]]}
    if "items" in schema:
        return {**schema, "items": with_redis(schema["items"])}
    if "title" not in schema:
        return schema
    return {
        **schema,
        "title": f"{schema['title']}OfAll",
        "required": [REDIS.name, *schema["required"]],
        "properties": {REDIS.name: TEXT, **schema["properties"]},
    }


async def _seek(one: Resource, ask: CheckedRequest) -> dict[str, Any]:
    """What the first Redis has that knows a thing; of a search that goes on, if no other one knows it.

    The configured one of a queue is the first.

    Raises HTTPException (404) if none knows it, and RedisUnavailableError if one of those is away.
    """
    names = sorted(sites_of(ask.request).by_name, key=lambda name: name != _home_of(one, ask))
    ask, left = _missed(ask)
    unknown = HTTPException(404)
    away: PyworkersError | None = None
    begun: dict[str, Any] | None = None
    unsearched: list[str] = []
    for name in _order_of(names, ask, left):
        try:
            found = await _read_at(one, ask, name)
        except HTTPException as error:
            if error.status_code != 404:
                raise
            unknown = error
        except (RedisUnavailableError, StoreError) as error:
            away = RedisUnavailableError(f"the Redis {name} is unreachable: {error.message}")
            unsearched.append(name)
        else:
            if not found.get("further"):
                return {REDIS.name: name, **found}
            begun = begun or {REDIS.name: name, **found}
            unsearched.append(name)
        if _goes_on(one) and ask.given["cursor"] is not None:
            # It goes on at the first of them; at the others, it begins.
            ask = replace(ask, given={**ask.given, **dict.fromkeys(_GOES_ON)})
    if begun is None:
        raise away or unknown
    before = names[: names.index(begun[REDIS.name])]
    return _with_missed(begun, [name for name in unsearched if name in before])


def _order_of(names: Sequence[str], ask: CheckedRequest, left: Sequence[str]) -> list[str]:
    """The Redis servers that are asked for a thing, from the one at which a search goes on.

    Those before it were searched, but for those that are ``left``, which come last.
    """
    first = ask.given.get(REDIS.name)
    if first is None:
        return [*names]
    if first not in names:
        raise BadRequestError(f"redis must be one of {', '.join(names)}.")
    place = names.index(first)
    return [*names[place:], *(name for name in names[:place] if name in left)]


def _missed(ask: CheckedRequest) -> tuple[CheckedRequest, list[str]]:
    """A request, and the names that ``_with_missed`` has put before its cursor."""
    before, mark, cursor = (ask.given.get("cursor") or "").rpartition(_MISSED)
    return (replace(ask, given={**ask.given, "cursor": cursor}) if mark else ask), before.split(",")


def _with_missed(answer: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """An answer whose cursor says which Redis servers before it are not searched: they were away."""
    if not names:
        return answer
    further = answer["further"]
    return {**answer, "further": {**further, "cursor": f"{','.join(names)}{_MISSED}{further['cursor']}"}}


async def _read_at(one: Resource, ask: CheckedRequest, name: str) -> Any:
    assert one.read is not None
    return await one.read(CheckedRequest(sites_of(ask.request).at(ask.request, name), ask.names, ask.given))


@dataclass(frozen=True, slots=True)
class _Merged:
    """A list of all Redis servers, read from the same list of each ``one``."""

    one: Resource

    @property
    def _rows(self) -> str:
        """The member with the rows: a bare array gets a name, because the answer says what is away, too."""
        return self.one.rows or self.one.segments[-1]

    @property
    def _places(self) -> Mapping[str, Parameter]:
        return {parameter.name: parameter for parameter in self.one.parameters if parameter.name in _PLACES}

    @property
    def _others(self) -> Mapping[str, Schema]:
        """The members of an answer about its list as a whole."""
        members = self.one.schema.get("properties", {})
        own = (self.one.rows, "first", "cursor", "next")
        return {name: schema for name, schema in members.items() if name not in own}

    def resource(self) -> Resource:
        """The list, for the dashboard of all."""
        places = self._places
        kept = [parameter for parameter in self.one.parameters if parameter.name not in places]
        return replace(
            self.one,
            about=_of_all(self.one),
            read=self._read,
            schema=self._schema(),
            parameters=[*kept, _CURSOR] if places else kept,
            rows=self._rows,
        )

    def _schema(self) -> Schema:
        one, row = self.one.schema, with_redis(self.one.row_schema)
        required = {name: schema for name, schema in self._others.items() if name in one["required"]}
        optional = {name: schema for name, schema in self._others.items() if name not in required}
        cursor = {"cursor": TEXT} if self._places else {}
        members = {**required, self._rows: array(row), AWAY: by_name(TEXT), **cursor}
        return record(f"{one['title']}OfAll" if "title" in one else f"{row['title']}List", members, optional)

    async def _read(self, ask: CheckedRequest) -> dict[str, Any]:
        """What each Redis has next. Lists with ranks are in one order, and have ``count`` rows in all."""
        sites, read_one = sites_of(ask.request), self.one.read
        asked = self._asked(ask.given, sites.by_name)

        async def read(at: Request) -> Any:
            name = site_of(at).settings.name
            if read_one is None or name not in asked:
                return None
            return await read_one(CheckedRequest(at, ask.names, asked[name]))

        # A file has several pages in one request.
        known = dict(away_of(ask.request))
        answers = await sites.each(ask.request, read)
        pages = {name: page for name, page in answers.items() if page is not None}
        away = {name: str(error) for name, error in away_of(ask.request).items() if name not in known}
        return {**self._answer(asked, pages), AWAY: away}

    def _asked(self, given: Given, redis: Collection[str]) -> dict[str, dict[str, Any]]:
        """The parameters of the list of each Redis that has more rows. Raises BadRequestError."""
        places = self._places
        names = [parameter.name for parameter in self.one.parameters if parameter.name not in places]
        begin = {name: given[name] for name in names}
        begin |= {name: parameter.default for name, parameter in places.items()}
        if not places or not given["cursor"]:
            return dict.fromkeys(redis, begin)
        asked: dict[str, dict[str, Any]] = {}
        for key, text in parse_qsl(given["cursor"], keep_blank_values=True, errors="surrogateescape"):
            place, _, name = key.partition(".")
            if place not in places or name not in redis:
                raise BadRequestError("cursor must be the cursor of an earlier answer.")
            asked[name] = {**begin, place: places[place].of_text(text)}
        return asked

    def _answer(self, asked: Mapping[str, dict[str, Any]], pages: Mapping[str, Any]) -> dict[str, Any]:
        """The pages as one."""
        found = {name: page[self.one.rows] if self.one.rows else page for name, page in pages.items()}
        has_ranks = "first" in self._places and not any("cursor" in page for page in pages.values())
        count = max(asked[name]["count"] for name in pages) if has_ranks and pages else None
        assert self.one.order is not None
        rows = [{REDIS.name: name, **row} for name, row in islice(merged(found, self.one.order), count)]
        kept = Counter(row[REDIS.name] for row in rows)
        following: dict[str, Given | None] = {}
        for name, page in pages.items():
            following[name] = self.one.following(asked[name], page, kept[name])
            if kept[name] < len(found[name]):
                following[name] = {**asked[name], "first": asked[name]["first"] + kept[name]}
        cursor = {"cursor": _cursor(following)} if self._places else {}
        parts = {name: [page[name] for page in pages.values() if name in page] for name in self._others}
        others = {name: _sum(values) for name, values in parts.items() if values}
        return {**others, self._rows: rows, **cursor}


def _cursor(following: Mapping[str, Given | None]) -> str:
    """Where the list goes on in each Redis, as a text; empty at the end of all."""
    places: dict[str, Any] = {}
    for name, asked in following.items():
        if asked is not None:
            place = next((place for place in ("cursor", "after") if asked.get(place)), "first")
            places[f"{place}.{name}"] = asked[place]
    return urlencode(places, errors="surrogateescape")


def _sum(values: Sequence[Any]) -> Any:
    """One value for all Redis servers: a sum, all items, whether all are true, or the latest time."""
    if isinstance(values[0], bool):
        return all(values)
    if isinstance(values[0], int):
        return sum(values)
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    return max(values)
