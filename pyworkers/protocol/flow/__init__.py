"""Flow: the effects that the end of a job has, by the fields of its envelope (rules.py).

Pure. Each feature has a module with its rule; the other modules serve several.
"""

from __future__ import annotations

VERSION = 2
"""The version of the effects that this program knows, which servers show in their heartbeat.

It grows when an end of a job gets another effect on a lock, a batch or a limit: a server with a lower one
leaves that effect out.
"""
