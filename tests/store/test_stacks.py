"""Answers about running jobs: a server writes one, whatever other programs have written in its place."""

from __future__ import annotations

import pytest
import redis

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.stacks import LIFE_S, JobStack
from pyworkers.store.processes import stacks
from tests.store.conftest import Run


@pytest.mark.parametrize(
    "stored", ['{"queue":"\\ud800"}', '{"queue":"\\udcff"}', '{"queue":7}', '{"at":1e400}']
)
def test_a_server_answers_any_request(run_work: Run, db: redis.Redis, keys: Keys, stored: str) -> None:
    db.set(keys.stack("j"), stored, ex=LIFE_S)
    run_work(stacks.answer(keys, JobStack("j", "host:1:x", text="here")))
    found = run_work(stacks.read(keys, "j"))
    assert (found.answered, found.server, found.text) == (True, "host:1:x", "here")


def test_an_id_of_any_bytes_gets_its_answer(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    db.hset(keys.owners, "host:1:x", "[]")
    assert run_work(stacks.ask(keys, JobStack("\udcff", "host:1:x")))
    run_work(stacks.answer(keys, JobStack("\udcff", "host:1:x", text="here")))
    assert run_work(stacks.read(keys, "\udcff")).text == "here"


@pytest.mark.parametrize("stored", ["[]", "\x00", "", '{"at":NaN}', "[" * 100_000])
def test_other_bytes_are_no_request(run_work: Run, db: redis.Redis, keys: Keys, stored: str) -> None:
    db.set(keys.stack("j"), stored)
    run_work(stacks.answer(keys, JobStack("j", "host:1:x")))
    assert db.get(keys.stack("j")) == stored.encode()
