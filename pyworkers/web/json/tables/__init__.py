"""The resources of all subjects, in the order of the documents."""

from pyworkers.web.json.tables import cron, job, jobs, servers
from pyworkers.web.pages import batches, limits, locks, metrics, overview, queues

RESOURCES = (
    *overview.RESOURCES,
    *queues.RESOURCES,
    *jobs.RESOURCES,
    *job.RESOURCES,
    *servers.RESOURCES,
    *batches.RESOURCES,
    *limits.RESOURCES,
    *locks.RESOURCES,
    *cron.RESOURCES,
    *metrics.RESOURCES,
)
