"""``pyworkers config``: checks the configuration, or prints the values in effect.

Run by people and by deployments, before the server. Connects to nothing. Only ``show --chain`` imports the
application, in its own process.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.config.loading import render
from pyworkers.config.stores import Stores
from pyworkers.text import printable

if TYPE_CHECKING:
    from pyworkers.ipc.control import HandlerChain


@click.group()
def config() -> None:
    """Check the configuration, or show the values in effect.

    The command line overrides the environment (PYWORKERS_SECTION__KEY, REDIS_URL), which overrides the file.
    """


@config.command()
@json_option
@config_options
def check(source: ConfigOptions, as_json: bool) -> None:
    """Print ok, or the first error with its line; exit code 2.

    \b
    Example: pyworkers config check --config workers.toml
    """
    config = source.load()
    # Imported here: the other commands of this group need no client of Redis.
    from pyworkers.store.transport.connections import connect

    for redis in Stores.of(config).by_name.values():
        # It opens no connection, and refuses options of the URL that none can use.
        connect(redis).close()
    if as_json:
        print_json({"ok": True, "source": source.name})
    else:
        click.echo(f"ok: {source.name}")


@config.command()
@click.option(
    "--chain",
    "show_chain",
    is_flag=True,
    help="Instead, print the steps through which the jobs of each handler go.",
)
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker of --chain, e.g. tasks:worker.")
@json_option
@config_options
def show(source: ConfigOptions, show_chain: bool, app: str | None, as_json: bool) -> None:
    """Print the configuration in effect as TOML, with *** for passwords.

    \b
    Example: pyworkers config show --chain --app tasks:worker
    """
    config = source.load({"app": app})
    if not show_chain:
        if as_json:
            print_json(tomllib.loads(render(config)))
        else:
            click.echo(render(config), nl=False)
        return
    # This imports the server's modules, which takes as long as the rest of the command.
    from pyworkers.server import rehearse

    loaded = rehearse(config)
    if as_json:
        clients = [["application", name] for name in loaded.client_links]
        handlers = [dict(chain) for chain in loaded.chains]
        print_json({"handlers": handlers, "enqueueing": clients})
        return
    texts = [_chain_text(chain) for chain in loaded.chains]
    if loaded.client_links:
        texts.append(_text("enqueueing", (("application", name) for name in loaded.client_links)))
    click.echo("\n\n".join(texts))


def _chain_text(chain: HandlerChain) -> str:
    """One handler, and below it the steps in the order in which a job passes them."""
    return _text(f"{chain['handler']} (queue {chain['queue']})", chain["links"])


def _text(title: str, links: Iterable[tuple[str, str]]) -> str:
    rows = (f"    {owner:<11}  {name}" for owner, name in links)
    return "\n".join(map(printable, (title, *rows)))
