"""The graph of a batch: a picture with room for its words."""

from __future__ import annotations

from pyworkers.api.batches import BatchNode
from pyworkers.protocol.flow.plans import BatchStatus
from pyworkers.web.graphing import picture


def test_a_frame_is_as_wide_as_the_words_of_its_state() -> None:
    status = BatchStatus("b1", "import", "batch", False, 10_000_000, 9_000_000, 1_000_000, 0, 0, 1.0)
    drawn = picture(BatchNode(status), 2401.0, lambda place, name: f"/{place}/{name}")
    words = "running, 1,000,000 of 10,000,000, for 40 min"
    assert f">{words}<" in drawn
    width = int(drawn.partition('width="')[2].partition('"')[0])
    # Of a character of 12 pixels, on average.
    assert width > 6 * len(words)
