"""Whether the system may have killed a process for want of memory. Run by the master; only reads ``/proc``.

Linux counts such kills, of the whole machine and of every memory cgroup alike, in ``oom_kill`` of
``/proc/vmstat`` (since 4.13; the kernel's mm/oom_kill.c). While that number stands still, a SIGKILL came from
somebody else.
"""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")


def kills() -> int | None:
    """How many processes the kernel has killed since the machine started; None if it does not tell."""
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


_AT_START = kills()


def may_have_killed() -> bool:
    """True if the kernel has killed a process since this one started, or if nobody knows."""
    found = kills()
    return found is None or found != _AT_START
