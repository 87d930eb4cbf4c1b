"""State: the states of a worker, with the table of transitions.

Pure; used by the worker and its pool.
"""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """The state of a worker; ``_NEXT`` has the transitions."""

    BOOTING = auto()
    IDLE = auto()
    BUSY = auto()
    LEAVING = auto()
    """Takes no more jobs; its job pipe is closed as soon as it is idle."""
    GONE = auto()
    """Its process has ended; every descriptor is closed."""

    def to(self, state: State) -> State:
        """The next state. Raises RuntimeError if the table does not have this transition."""
        if state not in _NEXT[self]:
            raise self.forbidden(state)
        return state

    def forbidden(self, state: State) -> RuntimeError:
        """The error for a transition that the table does not have."""
        return RuntimeError(f"a worker that is {self.name} cannot become {state.name}")


_NEXT = {
    State.BOOTING: {State.IDLE, State.LEAVING, State.GONE},
    State.IDLE: {State.BUSY, State.LEAVING, State.GONE},
    State.BUSY: {State.IDLE, State.LEAVING, State.GONE},
    State.LEAVING: {State.LEAVING, State.GONE},
    State.GONE: set(),
}
