"""The dashboard: pages on what is in Redis, for people, as an ASGI application.

``pyworkers web`` serves it in its own process; any ASGI application can mount it. It is never in a
master. Needs the extra ``web``.
"""

try:
    from pyworkers.web.application import app
except ModuleNotFoundError as error:
    if (error.name or "").startswith("pyworkers"):
        raise
    raise ModuleNotFoundError(
        "the dashboard needs the extra web: pip install 'pyworkers-server[web]'", name=error.name
    ) from error

__all__ = ["app"]
