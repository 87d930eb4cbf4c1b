"""Test support for applications: enqueue without Redis, and run the enqueued jobs.

Runs in the test's process. ``fake`` collects the jobs that any client of this process pushes, in any thread;
``inline`` runs them at once. Jobs go through JSON and through the whole middleware chain, as in production,
but nothing is retried: ``drain``, or the enqueue call under ``inline``, raises the error of a job.

    with fake() as queue:
        sign_up("ann@example.org")
        queue.assert_enqueued(send_mail, "ann@example.org")
        queue.drain()
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from pyworkers.app import Worker
from pyworkers.encryption import hand_over
from pyworkers.enqueueing.interception import Transport, intercept
from pyworkers.protocol.sealing import KEY_BYTES, Keyring
from pyworkers.testing.fakes import Fake, Inline
from pyworkers.testing.jobs import EnqueuedJob, run

__all__ = ["EnqueuedJob", "Fake", "Inline", "fake", "inline", "run"]


@contextmanager
def fake(worker: Worker | None = None) -> Iterator[Fake]:
    """Collect the jobs that this process enqueues, instead of sending them to Redis.

    ``worker`` runs the jobs that a Client enqueues, or another Worker without a handler for them.
    """
    collected = Fake(worker)
    with _intercepted(collected):
        yield collected


@contextmanager
def inline(worker: Worker | None = None) -> Iterator[Inline]:
    """Run each job when it is enqueued, even if it is scheduled, or if a limit would postpone it.

    The enqueue call raises the job's exception.

    ``worker``: as in ``fake``.
    """
    running = Inline(worker)
    with _intercepted(running):
        yield running


@contextmanager
def _intercepted(transport: Transport) -> Iterator[None]:
    previous, keys = intercept(transport), hand_over(_keys_of_tests)
    try:
        yield
    finally:
        hand_over(keys)
        intercept(previous)


@cache
def _keys_of_tests() -> Keyring:
    """Keys for encrypted jobs, which a test needs not configure."""
    return Keyring([os.urandom(KEY_BYTES)])
