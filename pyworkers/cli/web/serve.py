"""``pyworkers web``: serves the dashboard. Run by people, and by service managers."""

from __future__ import annotations

import click

from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.web import need_extra
from pyworkers.config.fields import LOG_FORMATS, LOG_LEVELS


@click.command()
@click.option("--bind", metavar="ADDRESS", help="HOST:PORT or unix:PATH.  [default: 127.0.0.1:7440]")
@click.option("--auth", metavar="FILE", help="File of users; required if other machines can connect.")
@click.option("--no-token", is_flag=True, help="Without users: require no token of this start.")
@click.option("--alarms", is_flag=True, help="Also send the alarms of the configuration.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Lowest level to log.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Format of the log lines.")
@click.option("--json", "as_json", is_flag=True, help="Log in JSON: --log-format json.")
@config_options
def web(
    source: ConfigOptions,
    bind: str | None,
    auth: str | None,
    no_token: bool,
    alarms: bool,
    log_level: str | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Serve the dashboard until a signal stops it.

    Without users, it listens only on this machine, and everyone with the token of this start may change
    things: the printed URL has it, and the browser keeps it in a cookie. With --no-token, every user of this
    machine may do so, and everyone who comes through a proxy on it. The file of --auth has one line for each
    user, as `pyworkers web-user` prints it; a changed file is read again. With [web.oidc], people log in by a
    provider of OpenID Connect, with or without a file. Names under which browsers reach the dashboard, apart
    from the address itself, are in hosts in [web].

    Exit codes: 0 stopped by TERM or INT, 1 unexpected error, 2 configuration, an address that is in use, or
    one that other machines could reach without users.

    \b
    Example: pyworkers web --bind 127.0.0.1:7440 --config workers.toml
    """
    need_extra()
    # Imported here, because help is shown without the extra.
    from pyworkers.web.serving import serve

    given = {"web.bind": bind, "web.auth": auth, "log.level": log_level}
    config = source.load({**given, "log.format": "json" if as_json else log_format})
    serve(config, with_token=not no_token, alarms=alarms)
