"""Webshared: what a dashboard has from the store: the secret for signatures and the ended sessions, which all
its processes share, and the texts of the scripts.
"""

from pyworkers.store.scripts import keep as keep_scripts
from pyworkers.store.sessions import end as end_session
from pyworkers.store.sessions import has_ended as read_session_ended
from pyworkers.store.sessions import shared_secret as read_web_secret

__all__ = ["end_session", "keep_scripts", "read_session_ended", "read_web_secret"]
