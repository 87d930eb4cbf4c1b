"""Webshared: the secret for signatures and the ended sessions, which all processes of a dashboard share."""

from pyworkers.store.sessions import end as end_session
from pyworkers.store.sessions import has_ended as read_session_ended
from pyworkers.store.sessions import shared_secret as read_web_secret

__all__ = ["end_session", "read_session_ended", "read_web_secret"]
