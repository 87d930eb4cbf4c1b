"""Which jobs shall not run: found by their id, wherever it is in the bytes, and nothing else."""

from __future__ import annotations

import tracemalloc

import pytest

from pyworkers.server.cancellations import Cancellations


def noted(*jids: str) -> Cancellations:
    cancellations = Cancellations()
    cancellations.use(jids)
    return cancellations


@pytest.mark.parametrize(
    ("raw", "jid"),
    [
        (b'{"class":"A","args":[],"jid":"a"}', "a"),
        (b'{ "jid" : "a" }', "a"),
        (b'{"jid":"\\u0061"}', "a"),
        ('{"jid":"é \\" x"}'.encode(), 'é " x'),
        (b'{"jid":"b"}', ""),
        (b'{"jid":"aa"}', ""),
        (b'{"args":[{"jid":"a"}],"jid":"b"}', ""),
        (b'{"args":["\\"jid\\":\\"a\\""],"jid":"b"}', ""),
        (b'{"args":[{"jid":"x"}],"jid":"a"}', "a"),
        (b'{"jid":"b","jid":"a"}', "a"),
        (b'{"jid":"a","jid":"b"}', ""),
        (b'{"jid":"a"', ""),
        (b'{"jid":17}', ""),
        (b'\xff "jid":"a"', ""),
        (b'"jid":"a"', ""),
        (b"", ""),
    ],
)
def test_a_job_is_known_by_its_id(raw: bytes, jid: str) -> None:
    assert noted("a", 'é " x').jid_of(raw) == jid


@pytest.mark.parametrize(("part", "end"), [(b"x", b'"}'), (rb"\\", b'"}'), (b"x", b"")])
def test_a_job_with_a_long_text_takes_little_memory(part: bytes, end: bytes) -> None:
    raw = b'{"jid":"a","batch":"' + part * 500_000 + end
    tracemalloc.start()
    try:
        noted("other").jid_of(raw)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_note_that_has_done_its_work_goes() -> None:
    cancellations = noted("a", "b")
    cancellations.settle("a")
    assert cancellations.noted == {"b"}
    assert cancellations.take_settled() == ["a"]
    # Read before it was removed.
    cancellations.use(["a", "b", "c"])
    assert cancellations.noted == {"b", "c"}
    cancellations.removed(["a"])
    assert cancellations.take_settled() == []
    cancellations.use(["a"])
    assert cancellations.noted == {"a"}
