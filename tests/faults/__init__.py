"""The fault suite: every fault of the table, made to happen, seen to have happened, and survived.

``ledger`` is what producers and jobs write down outside of Redis, ``invariants`` what must hold between that
and Redis afterwards. The nemesis is ``helpers/proxy`` (a network that misbehaves), ``helpers/redises``
(servers to kill, stop and fail over), signals, and the failpoints of the server (``pyworkers.failpoints``).
``fleet`` runs several servers with one ledger. A test that proves a row of the table says so with
``@pytest.mark.fault("W1")``; some of those live in tests/system. ``make faults`` runs them all, ``make soak``
a random schedule.
"""
