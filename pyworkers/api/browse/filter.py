"""Filter: the conditions of a search for jobs. Pure.

A condition is compared with what a page shows: hidden arguments match no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from pyworkers.api.browse.masking import masked
from pyworkers.api.record import JobRecord, as_text
from pyworkers.protocol.patterns import is_like

# Stored without escapes by every program, and not shown in another form than it is stored.
_PLAIN = re.compile(r"[A-Za-z0-9_]+")

# The members in which a record finds its class and its error.
_CLASSES, _ERRORS = "class,display_class,wrapped,job_class", "error_class,error_message"
_UNREADABLE = "unreadable: not json object nested too deep"

# What differs between two errors of one cause: quoted values, UUIDs, addresses, hexadecimal ids, numbers. And
# what an address cannot hold as it is (``\\u001b``).
_VARIABLE = re.compile(
    r"""(?<!\w)'[^']*'(?!\w)|"[^"]*"|`[^`]*`"""
    r"|\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0[xX][0-9a-fA-F]+"
    r"|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\b|\\u[0-9a-fA-F]{4}|[0-9]+(?:[.,:][0-9]+)*"
)
_MOST_READ, _LONGEST_FOLDED = 1000, 300


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions that a job meets; an empty one is none. Ages are in seconds.

    ``job_class`` may contain ``*``. ``error`` and ``text`` (in the arguments) are found anywhere, in upper or
    lower case. ``error_like`` is a text that ``folded`` returns: the jobs with this error, with any
    numbers and ids. A job of unknown age is neither older nor younger. ``queues``: names with ``*``, one of
    which is like the queue: the jobs of a person who may act on some queues alone.
    """

    job_class: str = ""
    jid: str = ""
    queue: str = ""
    tag: str = ""
    batch: str = ""
    error: str = ""
    error_like: str = ""
    text: str = ""
    older_s: float | None = None
    younger_s: float | None = None
    queues: tuple[str, ...] = ()

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """A filter from ``as_dict``. Raises ValueError for anything else: without a condition, the filter
        would select more jobs.
        """
        kinds: dict[str, Any] = {
            field.name: (int, float) if field.name.endswith("_s") else str for field in fields(cls)
        }
        kinds["queues"] = list
        for name, value in stored.items():
            if not isinstance(value, kinds.get(name, ())) or isinstance(value, bool):
                raise ValueError(f"{name} is no condition of this value")
        queues = stored.get("queues", [])
        if not all(isinstance(queue, str) for queue in queues) or ("queues" in stored and not queues):
            raise ValueError("queues is no condition of this value")
        ages = {name: float(value) for name, value in stored.items() if name.endswith("_s")}
        return cls(**{**stored, **ages, "queues": tuple(queues)})

    @property
    def empty(self) -> bool:
        """True if every job meets it."""
        return type(self)() == self

    def as_dict(self) -> dict[str, Any]:
        """The conditions that are set, for JSON."""
        found = {name: value for name, value in asdict(self).items() if value not in ("", None, ())}
        return found | ({"queues": list(self.queues)} if self.queues else {})

    def matches(self, job: JobRecord, age_s: float | None, mask: tuple[str, ...] = ()) -> bool:
        """True if a job meets all conditions. ``mask``: the names whose values are hidden."""
        return (
            (not self.job_class or is_like(job.job_class, self.job_class))
            and (not self.jid or job.jid == self.jid)
            and (not self.queue or job.queue == self.queue)
            and (not self.queues or any(is_like(job.queue, queue) for queue in self.queues))
            and (not self.tag or self.tag in job.tags)
            and (not self.batch or job.batch == self.batch)
            and (not self.error or self.error.casefold() in job.error.casefold())
            and (not self.error_like or folded(job.error) == self.error_like)
            and (not self.text or self.text.casefold() in _shown(job, mask))
            and (self.older_s is None or (age_s is not None and age_s > self.older_s))
            and (self.younger_s is None or (age_s is not None and age_s < self.younger_s))
        )

    def literals(self, mask: tuple[str, ...] = ()) -> list[str]:
        """Texts that a job contains if it meets the filter, as ``read_part`` takes them: most jobs lack one.

        Redis compares them with the stored bytes, and how far a search comes in its time shows how many jobs
        have them. So no text may be found in a hidden value: it is searched in the member that its condition
        is about. If names are hidden, the conditions on arguments and tags, which are lists, send none, only
        the name of the tags. (An object that is hidden may have such a member, too: a person who guesses its
        value sees that it is so.)
        """
        # Redis does not hold why a job is unreadable.
        error = "" if self.error.casefold() in _UNREADABLE else self.error
        exact = [(_CLASSES, self.job_class)]
        exact += (("jid", self.jid), ("queue", self.queue), ("batch", self.batch))
        exact += (("queue", queue) for queue in self.queues[: len(self.queues) == 1])
        exact.append((_ERRORS, "" if self.error_like.startswith("unreadable: ") else self.error_like))
        either = [(_ERRORS, error)]
        exact.append(("", self.tag and ("tags" if any(mask) else self.tag)))
        if not any(mask):
            either.append(("", self.text))
        texts = [f"={names}:{_longest(text)}" for names, text in exact if _longest(text)]
        return texts + [f"~{names}:{_longest(text).lower()}" for names, text in either if _longest(text)]

    def sieve(self) -> Callable[[bytes], bool]:
        """A check of stored bytes, which it does not decode.

        False for a job that cannot meet the filter, because it lacks one of the ``literals``.
        """
        texts = [(text[0], text.partition(":")[2].encode()) for text in self.literals()]
        exact = [text for sign, text in texts if sign == "="]
        either = [text for sign, text in texts if sign == "~"]

        def may_meet(raw: bytes) -> bool:
            if not all(text in raw for text in exact):
                return False
            lower = raw.lower() if either else b""
            return all(text in lower for text in either)

        return may_meet

    def but(self, **changes: Any) -> Self:
        """The same filter with other conditions."""
        return replace(self, **changes)


def folded(error: str) -> str:
    """An error with ``#`` instead of its numbers, ids and quoted values, in one line of printable characters.

    Errors of one cause become the same text. It is cut, because some errors have megabytes.
    """
    text = _VARIABLE.sub(_placeholder, error[:_MOST_READ])
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(char if char.isprintable() else "?" for char in line)
    return line[:_LONGEST_FOLDED].strip()


def _placeholder(found: re.Match[str]) -> str:
    quote = found[0][0]
    return f"{quote}#{quote}" if quote in "'\"`" else "#"


def _shown(job: JobRecord, mask: tuple[str, ...]) -> str:
    return as_text(masked(job.args, mask)).casefold()


def _longest(text: str) -> str:
    return max(_PLAIN.findall(text), key=len, default="")
