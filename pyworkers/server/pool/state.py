"""State: the states of a worker, with the table of transitions, and what is shown of one.

Pure; used by the worker and its pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    """The state of a worker; ``_NEXT`` has the transitions."""

    BOOTING = auto()
    SERVING = auto()
    """Takes jobs from the job socket."""
    LEAVING = auto()
    """Takes no more jobs; it exits when its jobs have ended."""
    GONE = auto()
    """Its process has ended; every descriptor is closed."""

    def to(self, state: State) -> State:
        """The next state. Raises RuntimeError if the table does not have this transition."""
        if state not in _NEXT[self]:
            raise RuntimeError(f"a worker that is {self.name} cannot become {state.name}")
        return state


_NEXT = {
    State.BOOTING: {State.SERVING, State.LEAVING, State.GONE},
    State.SERVING: {State.LEAVING, State.GONE},
    State.LEAVING: {State.LEAVING, State.GONE},
    State.GONE: set(),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """One worker process: its ``state`` is a word for the log, ``started_at`` is in epoch seconds."""

    group: str
    pid: int
    state: str
    started_at: float
    jobs_done: int
