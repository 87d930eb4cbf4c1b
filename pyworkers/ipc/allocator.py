"""Allocator: has the C library keep the memory of a large job for the next one.

Used by both sides, once a process has had a large job. glibc gives the free end of the heap back to the
kernel, which clears each page that it hands out: 0.9 ms for a job of 1 MB, a fifth of its CPU time. Does
nothing where the C library has no such setting.
"""

from __future__ import annotations

from functools import cache

# glibc's first M_MMAP_THRESHOLD: what is smaller stays in the heap.
_LARGE = 128 * 1024
# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# A worker holds a job three times: its bytes, its text and its arguments. What glibc keeps by itself depends
# on the largest block so far, and is up to 64 MB.
_KEPT = 16 * 1024 * 1024
_LARGEST_BLOCK = _KEPT // 2


def keep_memory_of(job: bytes) -> None:
    """Keep up to 16 MB of free memory from now on, if the job is large."""
    if len(job) > _LARGE:
        _keep()


@cache
def _keep() -> None:
    # Imported here: only large jobs need it.
    try:
        from ctypes import CDLL

        mallopt = CDLL(None).mallopt
    except (ImportError, OSError, AttributeError):
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
    mallopt(_M_MMAP_THRESHOLD, _LARGEST_BLOCK)
