"""Which jobs are looked up among Sidekiq's cancellations: those that run for long, and nothing else."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pyworkers.protocol.keys import Keys
from pyworkers.server.remote import LOOK_S, Iterations, ids_in
from pyworkers.server.running import Running
from pyworkers.store.calls import Request, Steps
from pyworkers.store.store import Store


class Asked:
    """Notes what is asked of Redis."""

    keys = Keys()

    def __init__(self) -> None:
        self.looks: list[list[str]] = []

    async def arun(self, work: Steps[int]) -> int:
        """The ids stand behind the key of the notes, a key for each of them, and the life of a note."""
        call: Request[int] = next(iter(work))
        parts = call.commands[0].parts
        self.looks.append(sorted(jid.decode() for jid in parts[3 + parts[2] + 1 :]))
        return 0


def test_only_jobs_that_ran_at_the_look_before_are_looked_up() -> None:
    asked = Asked()
    jobs: list[Running] = []
    iterations = Iterations(cast(Store, asked), lambda: jobs)

    def look(now: float, *numbers: int) -> list[list[str]]:
        jobs[:] = [Running("q", 1, number, b'{"jid":"%d"}' % number, 0.0) for number in numbers]
        asyncio.run(iterations.look(now))
        looks, asked.looks = asked.looks, []
        return looks

    assert look(100.0) == []
    assert look(100.0 + LOOK_S, 1, 2) == []
    assert look(101.0 + LOOK_S, 1, 2) == [], "it has looked a moment ago"
    assert look(100.0 + 2 * LOOK_S, 2, 3) == [["2"]]
    assert look(100.0 + 3 * LOOK_S, 2, 3, 4) == [["2", "3"]]
    assert look(100.0 + 4 * LOOK_S) == []
    assert look(100.0 + 5 * LOOK_S, 5) == []


@pytest.mark.parametrize(
    ("raw", "ids"),
    [
        (b'{"class":"A","args":[],"jid":"a"}', {"a"}),
        (b'{ "jid" : "b-1.2:c_D" }', {"b-1.2:c_D"}),
        (b'{"args":[{"jid":"x"}],"jid":"a"}', {"a", "x"}),
        (b'{"jid":"a","args":["' + b"x" * 9000 + b'"]}', {"a"}),
        (b'{"args":["' + b"x" * 9000 + b'"],"jid":"a"}', {"a"}),
        (b'{"args":["' + b"x" * 4000 + b'","jid":"no","' + b"x" * 4000 + b'"],"jid":"a"}', {"a"}),
        (b'{"jid":"\\ud800"}', set()),
        (b'{"jid":"' + b"a" * 129 + b'"}', set()),
        (b'{"jid":17}', set()),
        (b"\xff", set()),
        (b"", set()),
    ],
)
def test_ids_are_found_where_producers_put_them(raw: bytes, ids: set[str]) -> None:
    assert set(ids_in(raw)) == ids
