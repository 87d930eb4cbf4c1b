"""Control messages: what is sent is received, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.ipc import control
from pyworkers.ipc.control import (
    ControlMessage,
    Exited,
    HooksRan,
    Identify,
    LineReader,
    Load,
    Loaded,
    LoadFailed,
    Manifest,
    RunHooks,
    Spawn,
    Spawned,
    SpawnFailed,
)

MANIFEST: Manifest = {
    "queues": {"ü": {"kind": "job", "concurrency": None, "processes": 2, "mode": "async", "is_async": True}},
    "groups": {"web": {"queues": {"a\n": 5}, "concurrency": 20, "processes": None, "mode": None}},
    "jobs": {},
    "handlers": ["ü"],
    "cron": [],
    "hooks": {},
}

MESSAGES: list[ControlMessage] = [
    Load("tasks:worker", ["/srv/ä b", ""], "debug", "console", "host:1:ab", {"timeouts": {"q\n": 1.5}}),
    Load("tasks"),
    Loaded(MANIFEST, ["Thread-1"], 12),
    LoadFailed("import", "SyntaxError: bad\nline", 'Traceback\n  "quoted"\n'),
    Spawn(1, "a queue", 3, 50),
    Spawned(1, 4_194_304),
    SpawnFailed(2, "[Errno 11] Resource temporarily unavailable"),
    Exited(1, 7, 35_584, 123_456),
    RunHooks("during_drain"),
    Identify("host:1:x"),
    HooksRan("during_drain"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line(message: ControlMessage) -> None:
    line = control.dump(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert LineReader().feed(line) == [message]


@given(st.lists(st.sampled_from(MESSAGES), max_size=5), st.lists(st.integers(1, 60)))
def test_any_chunking_gives_the_same_messages(sent: list[ControlMessage], sizes: list[int]) -> None:
    stream = b"".join(map(control.dump, sent))
    reader, received = LineReader(), []
    for size in [*sizes, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        received += reader.feed(chunk)
    received += reader.feed(stream)
    assert received == sent


def test_every_kind_of_message_is_tried_here() -> None:
    assert {type(message) for message in MESSAGES} == set(control._KINDS.values())
