"""The words between master and fork server: whatever is said is heard, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.ipc import control
from pyworkers.ipc.control import (
    Exited,
    HooksRan,
    Identify,
    LineReader,
    Load,
    Loaded,
    LoadFailed,
    RunHooks,
    Spawn,
    Spawned,
    SpawnFailed,
    Word,
)

WORDS: list[Word] = [
    Load("tasks:worker", ["/srv/ä b", ""], "debug", "console", "host:1:ab", {"timeouts": {"q\n": 1.5}}),
    Load("tasks"),
    Loaded({"queues": {"ü": {"concurrency": None}}, "cron": []}, ["Thread-1"], 12),
    LoadFailed("import", "SyntaxError: bad\nline", 'Traceback\n  "quoted"\n'),
    Spawn(1, "a queue"),
    Spawned(1, 4_194_304),
    SpawnFailed(2, "[Errno 11] Resource temporarily unavailable"),
    Exited(1, 7, 35_584, 123_456),
    RunHooks("during_drain"),
    Identify("host:1:x"),
    HooksRan("during_drain"),
]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: type(word).__name__)
def test_a_word_is_one_line(word: Word) -> None:
    line = control.dump(word)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert LineReader().feed(line) == [word]


@given(st.lists(st.sampled_from(WORDS), max_size=5), st.lists(st.integers(1, 60)))
def test_any_chunking_gives_the_same_words(said: list[Word], sizes: list[int]) -> None:
    stream = b"".join(map(control.dump, said))
    reader, heard = LineReader(), []
    for size in [*sizes, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        heard += reader.feed(chunk)
    heard += reader.feed(stream)
    assert heard == said


def test_every_kind_of_word_is_tried_here() -> None:
    assert {type(word) for word in WORDS} == set(control._WORDS.values())
