"""The configuration: built once from file, environment and command line, and shown as TOML.

Run by the command line, before any other process exists. Reading the file is the only I/O; nothing here
imports the application, connects to Redis, or reads the process's own environment. The keys are
defined in ``fields``, their sources in ``sources``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain
from types import MappingProxyType
from typing import Any

from pyworkers.config import sources
from pyworkers.config.alarming import check_alarm
from pyworkers.config.checks import check_slot
from pyworkers.config.fields import (
    AlarmConfig,
    Config,
    CronConfig,
    GroupConfig,
    OidcConfig,
    QueueConfig,
    RedisConfig,
)
from pyworkers.config.groups import parse_queues
from pyworkers.config.options import LISTS, SECTIONS, KeyPath, Option, describe
from pyworkers.config.stores import DEFAULT, Stores, check_on_one
from pyworkers.errors import ConfigError

_NO_OVERRIDES: Mapping[str, object] = MappingProxyType({})
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "table": (dict,),
    "integer or string": (int, str),
    "array or table": (list, dict),
}
_BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(
    ("false", "no", "off", "0"), False
)

# All numbers with a fraction are seconds. This is 31 years; no clock of the system refuses it.
_LONGEST_S = 1e9

_Sections = dict[KeyPath, dict[str, Any]]
_Places = dict[KeyPath, Callable[[], str]]


def load(
    path: sources.Place | None, *, env: Mapping[str, str], overrides: Mapping[str, object] = _NO_OVERRIDES
) -> Config:
    """Build the configuration. Precedence: ``overrides``, ``env``, the file at ``path``, the defaults.

    ``overrides`` maps dotted keys to values, as the command line has them; None means not given. From ``env``
    are read ``PYWORKERS_APP``, ``PYWORKERS_SECTION__KEY``, and ``REDIS_URL`` unless a variable of pyworkers
    or an override sets ``redis.url``. Raises ConfigError for the first error; the file is checked first.
    """
    options = {option.path: option for option in describe()}
    document = sources.read(path)
    given = {key: value for key, value in overrides.items() if value is not None}
    sections: _Sections = {}
    places: _Places = {}
    for setting in chain(
        sources.from_file(document, options),
        sources.from_redis_url(env, given),
        sources.from_env(env, document, options),
        sources.from_overrides(given, options),
    ):
        option = options[sources.pattern_of(setting.path)]
        sections.setdefault(setting.path[:-1], {})[option.attribute] = _checked(setting, option)
        places[setting.path] = setting.locate
    config = _build(document, sections)
    _check_slots(config, places)
    _check_oidc(config.web.oidc, places)
    if config.other_redis or any(path[2:] == ("redis",) for path in places):
        _check_stores(config, places)
    return config


def render(config: Config, mask: bool = True) -> str:
    """The configuration in effect as TOML. Unless ``mask`` is off, passwords are shown as ``***``."""
    options = list(describe())
    lines: list[str] = []
    for header, section, part in _parts(config):
        lines += ["", header] if header else []
        for option in options:
            value = getattr(part, option.attribute) if option.path[:-1] == section else None
            if value is not None:
                shown = option.mask(value) if mask and option.mask else value
                lines.append(f"{option.path[-1]} = {toml_value(shown)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _checked(setting: sources.ConfiguredValue, option: Option) -> object:
    """The value in the option's type. Raises ConfigError for an invalid value."""
    try:
        value = _parsed(str(setting.value), option) if setting.is_text else _typed(setting.value, option)
        _check_range(value, option)
        if option.check:
            option.check(value)
    except (ValueError, OverflowError) as exc:  # OverflowError: a number with hundreds of digits
        raise ConfigError(f"{setting.label}: {exc}", location=setting.locate()) from exc
    return value


def _parsed(text: str, option: Option) -> object:
    readers: Mapping[str, Callable[[str], object]] = {
        "integer": int,
        "number": float,
        "boolean": lambda word: _BOOLEANS[word.lower()],
    }
    if option.type == "array or table":
        return parse_queues(text)
    if option.type == "table":
        raise ValueError("is read from the file only")
    if option.type == "integer or string":
        return int(text) if text.isdecimal() else text
    if option.type == "array":
        return tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        return readers.get(option.type, str)(text)
    except (ValueError, KeyError):
        raise ValueError(f"must be {_an(option.type)}, not {text!r}") from None


def _typed(value: object, option: Option) -> object:
    fits = isinstance(value, _PYTHON_TYPES[option.type])
    if not fits or (isinstance(value, bool) and option.type != "boolean"):
        raise ValueError(f"must be {_an(option.type)}, not {_type_name(value)}")
    if isinstance(value, list):
        return tuple(value)
    return float(value) if isinstance(value, int) and option.type == "number" else value


def _check_range(value: object, option: Option) -> None:
    if isinstance(value, str):
        value.encode()  # a variable may hold bytes that are not text; UnicodeEncodeError is a ValueError
    if option.choices and value not in option.choices:
        raise ValueError(f"must be one of {', '.join(option.choices)}, not {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"must be finite, not {value}")
    if option.minimum is not None and isinstance(value, int | float) and value < option.minimum:
        raise ValueError(f"must be at least {option.minimum}, not {value}")
    if isinstance(value, float) and value > _LONGEST_S:
        raise ValueError(f"must be at most {_LONGEST_S:,.0f} seconds, not {value}")


def _type_name(value: object) -> str:
    names = (name for name, types in _PYTHON_TYPES.items() if type(value) in types)
    return _an(next(names, "date or time"))


def _an(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _build(document: sources.Document, found: _Sections) -> Config:
    entries = _entries("cron", document, found)
    _check_entries("cron", document, entries, _check_cron)
    alarms = _entries("alarm", document, found)
    _check_entries("alarm", document, alarms, check_alarm)
    sections = {path[0]: cls(**found.get(path, {})) for path, cls in SECTIONS if len(path) == 1}
    sections["web"] = replace(sections["web"], oidc=OidcConfig(**found.get(("web", "oidc"), {})))
    return Config(
        **found.get((), {}),
        **sections,
        other_redis=_other_redis(document, found),
        queues={
            name: QueueConfig(**found.get(("queues", name), {})) for name in _names("queues", document, found)
        },
        groups={
            name: GroupConfig(**found.get(("groups", name), {})) for name in _names("groups", document, found)
        },
        cron=tuple(CronConfig(**entry) for entry in entries),
        alarm=tuple(AlarmConfig(**entry) for entry in alarms),
        path=document.path,
    )


def _other_redis(document: sources.Document, found: _Sections) -> dict[str, RedisConfig]:
    """The tables ``[redis.NAME]``. Raises ConfigError for one without a URL."""
    tables = (name for name, value in document.data.get("redis", {}).items() if isinstance(value, dict))
    named = (path[1] for path in found if path[:1] == ("redis",) and len(path) == 2)
    others: dict[str, RedisConfig] = {}
    for name in dict.fromkeys([*tables, *named]):
        values = found.get(("redis", name), {})
        if "url" not in values:
            message, hint = f"redis.{name}.url: is missing", f"set the URL of this Redis in [redis.{name}]"
            raise ConfigError(message, hint=hint, location=document.location(("redis", name)))
        others[name] = RedisConfig(**values)
    return others


def _check_slots(config: Config, places: _Places) -> None:
    """Raise ConfigError for a cluster with a namespace whose keys are in several slots."""
    sections: dict[KeyPath, RedisConfig] = {("redis",): config.redis}
    sections |= {("redis", name): other for name, other in config.other_redis.items()}
    for path, redis in sections.items():
        try:
            check_slot(redis.url, redis.namespace)
        except ValueError as error:
            location = places.get((*path, "namespace"), places[*path, "url"])()
            raise ConfigError(f"{'.'.join(path)}.namespace: {error}", location=location) from error


def _check_oidc(oidc: OidcConfig, places: _Places) -> None:
    """Raise ConfigError for a provider of which only a part is given."""
    given = [path for path in places if path[:2] == ("web", "oidc")]
    default = OidcConfig()
    set_here = [path for path in given if getattr(oidc, path[2]) != getattr(default, path[2])]
    for key, hint in _OIDC_NEEDS.items() if set_here else ():
        if not getattr(oidc, key):
            raise ConfigError(f"web.oidc.{key}: is missing", hint=hint, location=places[set_here[0]]())


# The secret may be in the environment of the dashboard alone: the server reads the same file.
_OIDC_NEEDS = {
    "issuer": "set it to the URL of the provider, or leave out [web.oidc]",
    "client_id": "set it to the id that the provider has given to the dashboard",
    "groups": 'write [web.oidc.groups], and in it lines such as platform = "operate"',
}


def _check_stores(config: Config, places: _Places) -> None:
    """Raise ConfigError for a Redis that does not exist or is there twice, and for a group on two of them."""
    stores = Stores.of(config)
    for kind, named in (("queues", config.queues), ("groups", config.groups)):
        for name, part in named.items():
            if part.redis is not None and part.redis not in stores.by_name:
                known = ", ".join(stores.by_name)
                hint = f"write a table [redis.{part.redis}] with its url; known here: {known}"
                message = f"{kind}.{name}.redis: there is no Redis {part.redis!r}"
                raise ConfigError(message, hint=hint, location=places[kind, name, "redis"]())
    for name, group in config.groups.items():
        if group.redis not in (None, DEFAULT) and not group.queues:
            message = f"groups.{name}.redis: the queues of the group are not in the configuration"
            hint = f"write queues = […] into [groups.{name}]: programs that enqueue find their Redis by it"
            raise ConfigError(message, hint=hint, location=places["groups", name, "redis"]())
        if group.queues:
            check_on_one(stores, name, group.queues, group.redis, places["groups", name, "queues"]())
    for one, other in stores.same():
        message = f"redis.{other}: is the same Redis with the same namespace as {one}"
        raise ConfigError(
            message, hint="give it another url or namespace", location=places["redis", other, "url"]()
        )


def _names(kind: str, document: sources.Document, found: _Sections) -> dict[str, None]:
    """The queues or groups that have a section; an empty one, too: the application must have this queue."""
    named = (path[1] for path in found if path[:1] == (kind,))
    return dict.fromkeys([*document.data.get(kind, ()), *named])


def _entries(kind: str, document: sources.Document, found: _Sections) -> list[dict[str, Any]]:
    """The tables of a list, ``[[cron]]``, by attributes."""
    return [found.get((kind, str(number)), {}) for number in range(len(document.data.get(kind, ())))]


Flaw = tuple[str, str, str]
"""What is wrong in more than one value: the key, what it is, and the fix."""


def _check_entries(
    kind: str,
    document: sources.Document,
    entries: list[dict[str, Any]],
    check: Callable[[dict[str, Any]], Flaw | None],
) -> None:
    """Raise ConfigError for an error in more than one value: a missing key, a name that occurs twice."""
    required = [option for option in describe() if option.path[0] == kind and option.required]
    names: set[str] = set()
    for number, entry in enumerate(entries):
        path = (kind, str(number))
        for option in required:
            if option.attribute not in entry:
                message = f"{document.label((*path, option.path[-1]))}: is missing"
                raise ConfigError(message, location=document.location(path))
        if flaw := check(entry):
            key, fault, hint = flaw
            message = f"{document.label((*path, key))}: {fault}"
            raise ConfigError(message, hint=hint, location=document.location(path))
        if entry["name"] in names:
            message = f"{document.label((*path, 'name'))}: another {_NOUNS[kind]} has this name"
            raise ConfigError(message, location=document.location((*path, "name")))
        names.add(entry["name"])


_NOUNS = {"cron": "cron entry", "alarm": "alarm"}


def _check_cron(entry: dict[str, Any]) -> Flaw | None:
    if ("schedule" in entry) != ("every" in entry):
        return None
    hint = 'an entry has either a schedule = "0 3 * * *" or an every = "30s"'
    return ("every", "excludes schedule", hint) if "every" in entry else ("schedule", "is missing", hint)


def _parts(config: Config) -> Iterator[tuple[str, KeyPath, object]]:
    """The dataclasses in the configuration, each with its header in the file and its path of options."""
    for path, _ in SECTIONS:
        if path in (("redis", "*"), ("queues", "*"), ("groups", "*")):
            named: Mapping[str, object] = (
                config.other_redis if path[0] == "redis" else getattr(config, path[0])
            )
            yield from ((f"[{path[0]}.{_toml_key(name)}]", path, part) for name, part in named.items())
        elif path and path[0] in LISTS:
            yield from ((f"[[{path[0]}]]", path, part) for part in getattr(config, path[0]))
        elif path:
            yield f"[{'.'.join(path)}]", path, reduce(getattr, path, config)
        else:
            yield "", path, config


def toml_value(value: object) -> str:
    """A value as TOML."""
    if isinstance(value, str):
        # JSON's escapes are valid in TOML, which also requires an escape for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml_key(key)} = {toml_value(item)}' for key, item in value.items())}}}"
    return repr(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)
