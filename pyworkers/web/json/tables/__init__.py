"""The tables of all resources, by what they are about."""

from pyworkers.web.json.tables import batches, cron, job, jobs, limits, metrics, queues, servers

RESOURCES = (
    *queues.RESOURCES,
    *jobs.RESOURCES,
    *job.RESOURCES,
    *servers.RESOURCES,
    *batches.RESOURCES,
    *limits.RESOURCES,
    *cron.RESOURCES,
    *metrics.RESOURCES,
)
"""All resources, in the order of the documents."""
