"""Numbers of more digits than Python reads, in the fields that other programs may write."""

from __future__ import annotations

from pyworkers.protocol.moving import MoveState
from pyworkers.protocol.status import JobState, read_status

HUGE = "9" * 5_000


def test_the_attempt_of_a_status_counts_as_missing() -> None:
    status = read_status(
        [b"running", b"mail", HUGE.encode(), b"[%s]" % HUGE.encode(), HUGE.encode(), None, None]
    )
    assert (status.state, status.queue, status.attempt) == (JobState.RUNNING, "mail", 0)
    assert (status.progress, status.started_at) == (None, None)


def test_a_move_with_such_a_portion_is_none() -> None:
    assert MoveState.parse("mail", f"id {HUGE} archive") is None
