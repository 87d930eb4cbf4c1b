"""Signatures: what a call of a decorated function takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from pyworkers import Worker
from pyworkers.testing import fake

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    pass


def with_session(function: Callable[Concatenate[Session, P], R]) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(Session(), *args, **kwargs)

    return call


def with_note(function: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[str, P], R]:
    """Passes one argument, and asks for another one."""

    @wraps(function)
    def call(note: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(Session(), *args, **kwargs)

    return call


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return call


def only_the_user(function: Callable[[Session, int], R]) -> Callable[[int], R]:
    @wraps(function)
    def call(user: int) -> R:
        return function(Session(), user)

    return call


def in_a_factory() -> Callable[[Callable[..., R]], Callable[..., R]]:
    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            return function(Session(), *args, **kwargs)

        return call

    return decorate


def seen(session: Session, user: int, word: str = "hello") -> Any:
    assert isinstance(session, Session)
    return [user, word]


def pair(session: Session, user: int) -> Any:
    return [session.__class__.__name__, user]


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "sent"),
    [
        (with_session(seen), (7,), {}, [7]),
        (with_session(seen), (7, "bye"), {}, [7, "bye"]),
        (with_session(seen), (), {"word": "bye", "user": 7}, [7, "bye"]),
        (logged(with_session(seen)), (), {"user": 7}, [7]),
        (with_session(logged(seen)), (7,), {}, [7]),
        (with_note(seen), ("note", 7), {}, ["note", 7]),
        (only_the_user(pair), (), {"user": 7}, [7]),
    ],
)
def test_a_decorator_may_pass_an_argument_itself(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], sent: list[Any]
) -> None:
    worker = Worker()
    job = worker.job(function)
    with fake(worker) as jobs:
        job.enqueue(*args, **kwargs)
        assert jobs.jobs[0].args == sent
        jobs.drain()
        with pytest.raises(TypeError, match="missing"):
            job.enqueue()


def test_an_unseen_argument_of_a_decorator_is_named() -> None:
    job = Worker().job(in_a_factory()(seen))
    with pytest.raises(TypeError, match=r"'user'; if its decorator .*, annotate .*__signature__"):
        job.enqueue(7)
