"""Wire: the versions of the contract between producers, servers and their Redis (contrib/docs/wire.md).

Pure. Fields, keys and scripts of a version are read for two minor releases after the next one appears.
"""

from __future__ import annotations

VERSION = 1
"""The version that the producers of this release speak."""
SPOKEN = (VERSION,)
"""The versions that its servers speak."""
NOTED_S = 60.0
"""How often a server notes them in Redis."""
LIFE_S = 150
"""How long a note counts."""
