"""``pyworkers config``: checks the configuration, or prints the values in effect.

Run by people and by deployments, before the server. Connects to nothing and imports no application.
"""

from __future__ import annotations

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.config.loading import render


@click.group()
def config() -> None:
    """Check the configuration, or show the values in effect.

    The command line overrides the environment (PYWORKERS_SECTION__KEY, REDIS_URL), which overrides the file.
    """


@config.command()
@config_options
def check(source: Source) -> None:
    """Print ok, or the first error with its line; exit code 2.

    \b
    Example: pyworkers config check --config conf/workers.toml
    """
    source.load()
    click.echo(f"ok: {source.path or 'no file, only environment and defaults'}")


@config.command()
@config_options
def show(source: Source) -> None:
    """Print the configuration in effect as TOML, with *** for passwords."""
    click.echo(render(source.load()), nl=False)
