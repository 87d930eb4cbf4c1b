"""All peers by name, pyworkers first."""

from __future__ import annotations

from contrib.bench.peer import Peer
from contrib.bench.peers import arq, celery, dramatiq, go, huey, pyworkers, rq, saq, sidekiq, taskiq

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        pyworkers.PYWORKERS,
        pyworkers.PYWORKERS_UVLOOP,
        pyworkers.PYWORKERS_ASYNC,
        pyworkers.PYWORKERS_THREAD,
        go.GO_WORKERS,
        go.GO_WORKERS2,
        go.GO_PYWORKERS,
        sidekiq.SIDEKIQ,
        sidekiq.SIDEKIQ_TWO,
        huey.HUEY,
        taskiq.TASKIQ,
        taskiq.TASKIQ_STREAM,
        saq.SAQ,
        dramatiq.DRAMATIQ,
        celery.CELERY,
        celery.CELERY_LATE,
        celery.CELERY_THREADS,
        celery.CELERY_GEVENT,
        arq.ARQ,
        rq.RQ,
        rq.RQ_SIMPLE,
    )
}
