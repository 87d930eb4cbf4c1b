"""Security: who looks, with which role, and whether a request really comes from a page of ours."""

from pyworkers.config.rights import Role
from pyworkers.web.security.access import Authorize, Viewer, is_by_bearer
from pyworkers.web.security.bodies import Form
from pyworkers.web.security.guard import Guard, body_of, csrf_token, form_of, has_session, viewer_of

__all__ = [
    "Authorize",
    "Form",
    "Guard",
    "Role",
    "Viewer",
    "body_of",
    "csrf_token",
    "form_of",
    "has_session",
    "is_by_bearer",
    "viewer_of",
]
