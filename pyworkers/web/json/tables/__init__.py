"""The resources of all subjects, in the order of the documents."""

from pyworkers.web.json.tables import cron
from pyworkers.web.pages import (
    audit,
    batches,
    job,
    jobs,
    limits,
    locks,
    metrics,
    overview,
    queues,
    running,
    servers,
    tasks,
)

RESOURCES = (
    *overview.RESOURCES,
    *queues.RESOURCES,
    *jobs.RESOURCES,
    *job.RESOURCES,
    *tasks.RESOURCES,
    *running.RESOURCES,
    *servers.RESOURCES,
    *audit.RESOURCES,
    *batches.RESOURCES,
    *limits.RESOURCES,
    *locks.RESOURCES,
    *cron.RESOURCES,
    *metrics.RESOURCES,
)
