"""Certificates: looks at the files of TLS, and logs their renewal, and files that do not fit together.

Runs in the master's event loop, if connections are by TLS. Connections read the files by themselves; without
this part, an error in new files would be noticed only when the next connection is opened.
"""

from __future__ import annotations

from pyworkers import logs
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.store.transport.tls import Contexts

# Files that are written one after the other fit together long before the second look.
_LOOK_S = 5.0

log = logs.get_logger()


class Certificates(Part):
    """Says once that new files are not used, and when files have been renewed."""

    name = "certificates"

    def __init__(self, contexts: Contexts, health: Health) -> None:
        super().__init__(health)
        self._contexts = contexts
        self._used: object = None
        self._suspected = self._logged = False

    async def look(self) -> float:
        """Compare the files with those in use."""
        state = self._contexts.look()
        if self._used not in (None, state.context):
            log.info("certificates.renewed", files=self._contexts.tls.places)
        self._used = state.context
        if not state.fault:
            self._suspected = self._logged = False
        elif not self._suspected:
            self._suspected = True
        elif not self._logged:
            self._logged = True
            log.warning("certificates.kept", error=state.fault, hint="the earlier files stay in use")
        return _LOOK_S
