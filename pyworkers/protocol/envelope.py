"""Envelope: a job as JSON text; builds it, and changes single fields without touching the others.

Pure; used by producers, workers and the master. A field that is not changed is never re-encoded: a number of
40 digits, ``1.50`` or a field of a later Sidekiq keeps its text (protocol.md, Envelope). The text between the
members may change: blanks are removed, and of several members with the same name the last is kept.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import simplejson
from simplejson.encoder import encode_basestring

from pyworkers.errors import BadArgumentError, BadMessageError

# Sidekiq's readers compare bytes that Ruby generates: compact, raw UTF-8 (protocol.md, Envelope).
_FORM: dict[str, Any] = {
    "separators": (",", ":"),
    "ensure_ascii": False,
    "allow_nan": False,
    "encoding": None,  # bytes are an error, not text
    "namedtuple_as_object": False,
    "use_decimal": False,
}
_ENCODER = simplejson.JSONEncoder(**_FORM)
_DECODER = simplejson.JSONDecoder()
_WHITESPACE = " \t\n\r"
# Finds most members in a fifth of the time that the decoder takes: a name without escapes and, optionally, a
# text without escapes, a number, true, false or null. The decoder reads any other member.
_PLAIN_MEMBER = re.compile(
    r'"([^"\\\x00-\x1f]*)":'
    r'(?:("[^"\\\x00-\x1f]*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?=[,}]))?'
)

PLAIN_ID = "[A-Za-z0-9_.:-]"
"""A regular expression: a character of an id that every program stores without escapes."""
_PLAIN_IDS = re.compile(f"{PLAIN_ID}+")

# Far below the 512 MiB that Redis can store in a value: a larger job is surely a mistake.
MAX_BYTES = 128 * 1024 * 1024
MAX_DEPTH = 500
"""Levels of lists and objects below an argument."""
# Two more for the list of arguments and the envelope, and a few more for the jobs of other producers.
_MAX_LEVELS = MAX_DEPTH + 10
# Python reads and writes integers of at most 4,300 digits, unless a program asks for more.
_MOST_DIGITS = 4300
_TOO_LARGE = 10**_MOST_DIGITS
# To count a byte takes 16 times as long as to search for it; of a shorter text, the search takes no less.
_LONG = 64 * 1024

# Where a value is: (the name,) or (way of the container, key or index). Only an error needs its text: to
# build one for each value would be slow below a long key.
_Way: TypeAlias = tuple[Any, ...]


class Rng(Protocol):
    """The methods of ``random.Random`` that are used."""

    def randrange(self, stop: int, /) -> int:
        """An integer from 0 to stop - 1."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """An integer of k random bits."""
        ...


encode_text: Callable[[str], str] = encode_basestring
"""As ``encode``, for a text."""


def encode(value: Any) -> str:
    """Compact JSON text. Raises ValueError for NaN and infinity, TypeError for a type that JSON lacks."""
    return _ENCODER.encode(value)


# Encoders for the types of most arguments; for a list of these, simplejson takes five times as long.
_SCALARS: Mapping[type, Callable[[Any], str]] = {
    str: encode_text,
    int: repr,
    float: encode,
    bool: {True: "true", False: "false"}.__getitem__,
    type(None): {None: "null"}.__getitem__,
}


def encode_args(args: Sequence[Any], path: str) -> str:
    """As ``encode``; raises also what ``check_value`` raises for values in lists and objects.

    A lone surrogate may remain in the text: UnicodeEncodeError is raised when the text becomes bytes.
    """
    try:
        return f"[{','.join([_SCALARS[type(arg)](arg) for arg in args])}]"
    except KeyError:
        check_value(args, path)
        return encode(args)


def read_integer(digits: str) -> int:
    """An integer of a JSON text of a person or a program. Raises ValueError if it has too many digits."""
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise ValueError("an integer of more than 4,300 digits; pass it as a text")
    return int(digits)


def decode(raw: bytes) -> dict[str, Any]:
    """The envelope as plain Python values. Raises BadMessageError for anything but a JSON object."""
    text = _text(raw)
    try:
        # Nearly all jobs are read by the scanner: called directly, it takes half the decoder's time.
        data, end = _DECODER.scan_once(text, 0) if text[:1] == "{" else (None, -1)
        if end != len(text):
            data = _DECODER.decode(text)
    except RecursionError as error:
        raise BadMessageError("nested too deep") from error
    except ValueError as error:
        raise BadMessageError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadMessageError(f"not a JSON object but {type(data).__name__}")
    if len(raw) > _MAX_LEVELS and _may_be_deep(raw) and _is_deep(data):
        raise BadMessageError(f"nested deeper than {MAX_DEPTH} levels")
    return data


def jid_of(raw: bytes) -> str:
    """The id of a stored job; empty if it has none."""
    try:
        jid = decode(raw).get("jid")
    except BadMessageError:
        return ""
    return jid if isinstance(jid, str) else ""


def _may_be_deep(raw: bytes) -> bool:
    """True if the text has more brackets than the levels that a value may have."""
    if len(raw) < _LONG:
        return raw.count(b"[") + raw.count(b"{") > _MAX_LEVELS
    left = _MAX_LEVELS
    for bracket in (b"[", b"{"):
        at = raw.find(bracket)
        while at >= 0:
            if left == 0:
                return True
            left -= 1
            at = raw.find(bracket, at + 1)
    return False


def _is_deep(data: dict[str, Any]) -> bool:
    """True if ``splice``, which is called with more of the stack in use, might fail to decode the value."""
    level: list[Any] = [data]
    for _ in range(_MAX_LEVELS):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _text(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise BadMessageError(f"{len(raw)} bytes are more than the limit of {MAX_BYTES}")
    try:
        return str(raw.removeprefix(codecs.BOM_UTF8), "utf-8")
    except UnicodeDecodeError as error:
        raise BadMessageError(f"not UTF-8: {error.reason} at byte {error.start}") from error


class Members:
    """A stored object whose members can be read, and set or removed without touching other values."""

    def __init__(self, raw: bytes) -> None:
        """Raises BadMessageError unless ``raw`` is an object."""
        self._data = decode(raw)
        self._raw = raw

    def get(self, name: str) -> Any:
        """The value of a member; None if there is none."""
        return self._data.get(name)

    def splice(self, changes: Mapping[str, Any], remove: Iterable[str] = ()) -> bytes:
        """The object with members set or removed; the text of every other name and value stays as it was.

        Changed members keep their place, new ones are appended. If a member is changed or removed, blanks
        between members are removed, and several members with the same name become one, with the last value at
        the first place.
        """
        new = {name: f"{encode(name)}:{encode(value)}" for name, value in changes.items()}
        if self._data and new and self._data.keys().isdisjoint((*new, *remove)):
            texts = [_text(self._raw).rstrip(_WHITESPACE)[:-1], *new.values()]
            return _wire(",".join(texts) + "}")
        members = _members(_text(self._raw))
        for name in remove:
            members.pop(name, None)
        return _wire("{" + ",".join((members | new).values()) + "}")


def _wire(text: str) -> bytes:
    # A lone surrogate can only occur in a string, where the backslash form is its JSON escape, too.
    return text.encode(errors="backslashreplace")


def splice(raw: bytes, changes: Mapping[str, Any], remove: Iterable[str] = ()) -> bytes:
    """As ``Members.splice``. Raises BadMessageError unless ``raw`` is an object."""
    return Members(raw).splice(changes, remove)


def _members(text: str) -> dict[str, str]:
    """The members of an object, each as its source text; of equal names the last one."""
    members: dict[str, str] = {}
    try:
        position = _skip(text, _expect(text, _skip(text, 0), "{"))
        while text[position] != "}":
            name, member, end = _member(text, position)
            members[name] = member
            position = _skip(text, end)
            if text[position] == ",":
                position = _skip(text, position + 1)
    except (ValueError, IndexError, RecursionError) as error:
        raise BadMessageError(f"not a JSON object: {error}") from error
    return members


def _member(text: str, position: int) -> tuple[str, str, int]:
    """The member that begins here: its name, its text without blanks around the colon, and where it ends."""
    plain = _PLAIN_MEMBER.match(text, position)
    if plain is not None and plain[2] is not None:
        return plain[1], plain[0], plain.end()
    if plain is not None:
        key, key_end = plain[1], plain.end() - 1
    else:
        _expect(text, position, '"')
        key, key_end = _DECODER.raw_decode(text, position)
    value_start = _skip(text, _expect(text, _skip(text, key_end), ":"))
    _, end = _DECODER.raw_decode(text, value_start)
    return key, f"{text[position:key_end]}:{text[value_start:end]}", end


def _skip(text: str, position: int) -> int:
    while text[position] in _WHITESPACE:
        position += 1
    return position


def _expect(text: str, position: int, char: str) -> int:
    if text[position] != char:
        raise ValueError(f"{char!r} expected at character {position}")
    return position + 1


def new_jid(rng: Rng) -> str:
    """Twelve random bytes as hex, as Sidekiq and go-workers make them."""
    return f"{rng.getrandbits(96):024x}"


def is_plain_id(jid: str) -> bool:
    """True for an id that every program stores without escapes: the bytes of its job contain it."""
    return _PLAIN_IDS.fullmatch(jid) is not None


def check_value(value: Any, path: str) -> None:
    """Raise BadArgumentError, with the value's path, for a value that JSON does not carry unchanged."""
    _check(value, (path,), 0)


def _check(value: Any, way: _Way, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value, way)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _bad(f"is {value!r}, which is not a JSON number", way)
    elif isinstance(value, int):
        if abs(value) >= _TOO_LARGE:
            raise _bad("is an integer of more than 4,300 digits", way, "pass it as a text: hex(value)")
    elif isinstance(value, list | tuple):
        _check_depth(depth, way)
        for index, item in enumerate(value):
            _check(item, (way, index), depth + 1)
    elif isinstance(value, dict):
        _check_depth(depth, way)
        for key, item in value.items():
            if not isinstance(key, str):
                raise _bad(f"has the key {key!r}; JSON keys are strings", way)
            _check_text(key, way, key)
            _check(item, (way, key), depth + 1)
    elif not (value is None or isinstance(value, bool | int)):
        raise _bad(f"is of type {type(value).__name__}, which JSON does not carry", way, _hint(value))


# By the names of classes, because most of their modules are not loaded.
_FIXES = {
    **dict.fromkeys(("date", "time"), "pass its text: value.isoformat()"),
    "timedelta": "pass its seconds: value.total_seconds()",
    **dict.fromkeys(("UUID", "Decimal", "Fraction", "PurePath"), "pass its text: str(value)"),
    "Enum": "pass value.value",
    **dict.fromkeys(("set", "frozenset", "range", "deque", "generator"), "pass a list: list(value)"),
    **dict.fromkeys(("dict_keys", "dict_values"), "pass a list: list(value)"),
    **dict.fromkeys(("bytes", "bytearray", "memoryview"), "pass a text: value.decode(), or base64"),
    "Model": "pass its primary key, value.pk, and load it in the job",
    "BaseModel": 'pass value.model_dump(mode="json")',
    "generic": "pass value.item()",
    "ndarray": "pass value.tolist()",
    **dict.fromkeys(("function", "method", "builtin_function_or_method"), "call it, and pass the result"),
    "Placeholder": "RESULT and RESULTS are for calls of a chain: chain(first.call(), step.call(RESULT))",
    "coroutine": "await it, and pass the result",
}


def _hint(value: Any) -> str:
    """How to pass a value that JSON does not carry."""
    names = (kind.__name__ for kind in type(value).__mro__)
    found = next((_FIXES[name] for name in names if name in _FIXES), "")
    if not found and hasattr(type(value), "__dataclass_fields__"):
        found = "pass dataclasses.asdict(value)"
    return found or "JSON carries None, bool, int, float, str, list and dict"


def _check_depth(depth: int, way: _Way) -> None:
    if depth > MAX_DEPTH:
        path = _path(way)
        message = f"{path[:60]}… is nested deeper than {MAX_DEPTH} levels"
        raise BadArgumentError(message, field=_field(path))


def _check_text(text: str, way: _Way, key: str | None = None) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        inner = "" if key is None else f"key {key!r} "
        raise _bad(f"{inner}holds a lone surrogate at character {error.start}", way) from error


def _bad(text: str, way: _Way, hint: str = "") -> BadArgumentError:
    path = _path(way)
    return BadArgumentError(f"{path} {text}", hint=hint, field=_field(path))


def _path(way: _Way) -> str:
    parts: list[str] = []
    while len(way) == 2:
        way, part = way
        parts.append(f"[{part!r}]")
    return "".join([way[0], *reversed(parts)])


def _field(path: str) -> str:
    """``args`` of the path ``args[0]['a']``."""
    return path.partition("[")[0].partition(" ")[0]
