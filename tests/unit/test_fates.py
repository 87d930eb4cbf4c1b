"""The fate of a failed job by the class of its exception: which list counts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pyworkers.app import Worker
from pyworkers.errors import (
    BadArgumentError,
    DeclarationError,
    Discard,
    Interrupted,
    JobCancelled,
    JobTimeout,
    Retry,
    WorkerLost,
)
from pyworkers.protocol.fates import Fates
from pyworkers.protocol.outcome import Fate


class Trouble(Exception):
    pass


class Passing(Trouble):
    pass


class Lasting(Trouble):
    pass


class PassingFirst(Passing, Lasting):
    pass


class LastingFirst(Lasting, Passing):
    pass


class Child(LastingFirst):
    pass


class Hidden(type):
    """A metaclass that does not show the bases of its classes."""

    @property
    def __mro__(cls) -> tuple[type, ...]:
        raise ValueError


class Unseen(Exception, metaclass=Hidden):
    pass


BOTH = Fates(retry=[Passing], discard=[Trouble], dead=[Lasting])


@pytest.mark.parametrize(
    ("fates", "kind", "fate"),
    [
        (Fates(), ValueError, None),
        (BOTH, Passing, None),
        (BOTH, Trouble, Fate.DISCARD),
        (BOTH, Lasting, Fate.DEAD),
        # Of two bases, neither counts, unless the class is listed itself, or the lists agree.
        (BOTH, PassingFirst, None),
        (BOTH, LastingFirst, None),
        (Fates(retry=[Passing], dead=[Lasting, LastingFirst]), Child, Fate.DEAD),
        (Fates(dead=[Passing, Lasting]), LastingFirst, Fate.DEAD),
        # With retry_on, no other exception is retried; without it, all others are.
        (BOTH, ValueError, Fate.DEAD),
        (Fates(retry=[Passing]), ValueError, Fate.DEAD),
        (Fates(discard=[Passing]), ValueError, None),
        (Fates(retry=[Exception]), SystemExit, Fate.DEAD),
        # The exceptions of pyworkers itself are retried unless they are listed.
        (Fates(retry=[Passing]), JobTimeout, None),
        (Fates(retry=[Passing]), BadArgumentError, None),
        (Fates(dead=[JobTimeout]), JobTimeout, Fate.DEAD),
        (Fates(discard=[Exception]), JobTimeout, Fate.DISCARD),
        (Fates(discard=[Unseen]), Unseen, Fate.DISCARD),
    ],
)
def test_the_most_specific_class_counts(fates: Fates, kind: type[BaseException], fate: Fate | None) -> None:
    assert fates.of(kind) == fate


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retry_on": [Trouble], "dead_on": [Trouble]}, "Trouble is in retry_on and in dead_on"),
        ({"discard_on": [Trouble], "dead_on": [Trouble]}, "Trouble is in discard_on and in dead_on"),
        ({"dead_on": Trouble}, r"dead_on must be a list of exceptions, not .*\ndead_on=\(ValueError,\)"),
        ({"dead_on": ["Trouble"]}, "dead_on must be a list of exceptions, but has 'Trouble'"),
        ({"dead_on": [int]}, "dead_on must be a list of exceptions, but has <class 'int'>"),
        ({"dead_on": None}, "dead_on must be a list of exceptions, not None"),
        *(({"discard_on": [kind]}, "its meaning is fixed") for kind in (Discard, Retry, Interrupted)),
        *(({"discard_on": [kind]}, "its meaning is fixed") for kind in (JobCancelled, WorkerLost)),
        ({"retry_on": [Trouble], "retry": False}, "retry_on has no effect with retry=False"),
        ({"retry_on": [Trouble], "retry": 0}, "retry_on has no effect with retry=0"),
    ],
)
def test_what_cannot_be_declared(options: dict[str, Any], message: str) -> None:
    worker = Worker()
    with pytest.raises(DeclarationError, match=message):
        worker.job(name="x", **options)
    with pytest.raises(DeclarationError, match=message):
        worker.process("x", **options)


@pytest.mark.parametrize(
    ("kind", "tied"), [(LastingFirst, ["Lasting", "Passing"]), (Child, ["Lasting", "Passing"]), (Passing, [])]
)
def test_a_tie_names_the_listed_classes(kind: type[BaseException], tied: list[str]) -> None:
    assert BOTH.tie(kind) == tied


def test_one_class_twice_in_one_list_is_no_contradiction() -> None:
    Worker().job(name="x", dead_on=[Trouble, Trouble])(lambda: None)


def test_what_is_retried_has_retries() -> None:
    worker = Worker()
    worker.process("asked", retry_on=[Trouble])(lambda message: None)
    worker.process("twice", retry_on=[Trouble], retry=2)(lambda message: None)
    assert [worker.lookup(queue, "x").policy.retry for queue in ("asked", "twice")] == [True, 2]


def test_the_manifest_says_what_becomes_of_an_overdue_job() -> None:
    worker = Worker()
    worker.job(name="dead", dead_on=[JobTimeout])(lambda: None)
    worker.job(name="dropped", discard_on=[Exception])(lambda: None)
    worker.job(name="retried", retry_on=[JobTimeout, Trouble], retry_for=60)(lambda: None)
    jobs = worker.manifest()["jobs"]
    assert [jobs[name].get("overdue") for name in ("dead", "dropped", "retried")] == [2, 3, None]
    assert [jobs[name].get("retry_for") for name in ("dead", "retried")] == [None, 60]
