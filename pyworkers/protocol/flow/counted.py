"""Counted: the counters of jobs, from which all that shows them is made.

Pure. Each is a number of all time in Redis, and one for each day (``Keys.stat``). The API, the command line,
the dashboard and both formats of the HTTP endpoint show all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

PROCESSED, FAILED, EXPIRED = "processed", "failed", "expired"
CRASHED, INTERRUPTED, RECOVERED = "crashed", "interrupted", "recovered"
CANCELLED, MISFITS, SUSPECTS = "cancelled", "misfits", "suspects"

COUNTERS: Mapping[str, str] = {
    PROCESSED: "Jobs that ran, failed ones included",
    FAILED: "Jobs that failed",
    EXPIRED: "Jobs that were dropped: they had not started in time",
    CRASHED: "Runs whose worker process ended without an outcome",
    INTERRUPTED: "Jobs that run again after a stop, or because their server or their shared process ended",
    RECOVERED: "Interrupted jobs of servers that were lost, which another server took over",
    CANCELLED: "Jobs that were cancelled",
    MISFITS: "Runs of jobs that did not fit their server: an unknown class, or other arguments",
    SUSPECTS: "Jobs that ran alone, because several of their servers died while they ran",
}
"""What each counter counts, in the order in which they are shown."""
INCIDENTS = tuple(name for name in COUNTERS if name not in (PROCESSED, FAILED, EXPIRED))
"""The counters that are 0 as long as nothing unusual happens."""
