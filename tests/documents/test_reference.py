"""What is made from the code is current: the reference misses nothing, and so do the files of the wire."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator

import click
import pytest

import pyworkers.api
import pyworkers.errors
import pyworkers.testing
from contrib.clients import wire
from contrib.reference import PAGES, api, commands, configuration, errors, events, joboptions, metrics
from pyworkers import Client
from pyworkers.cli import main
from pyworkers.config.options import describe
from pyworkers.groups import GroupOptions
from pyworkers.handler import CronOptions, HandlerOptions, JobOptions
from pyworkers.protocol.options import EnqueueOptions, JobOverrides
from tests.helpers.support import ROOT

pytestmark = pytest.mark.usefixtures("syntax_trees")


@pytest.mark.parametrize("module", [pyworkers, pyworkers.api, pyworkers.testing])
def test_every_public_name_has_its_directive(module: object) -> None:
    name, exported = module.__name__, module.__all__  # type: ignore[attr-defined]
    listed = re.findall(rf"^::: {re.escape(name)}\.(\w+)$", api.page(name), re.MULTILINE)
    assert sorted(listed) == sorted(exported)


def test_every_integration_has_its_directives() -> None:
    page = api.page("pyworkers.integrations")
    files = {path.stem for path in (ROOT / "pyworkers/integrations").iterdir() if path.name[0] != "_"}
    assert files == {line.split(".")[2] for line in page.splitlines() if line.startswith("::: ")}
    assert "::: pyworkers.integrations.sqlalchemy.enqueue_after_commit\n" in page


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (pyworkers.Worker.process, HandlerOptions),
        (pyworkers.Worker.job, JobOptions),
        (pyworkers.Worker.group, GroupOptions),
        (pyworkers.Worker.cron, CronOptions),
    ],
)
def test_the_docstring_of_a_decorator_lists_its_options(method: object, options: type[object]) -> None:
    listed = re.findall(r"^ {2,}(\w+)=", inspect.getdoc(method) or "", re.MULTILINE)
    differ = sorted(set(listed) ^ set(options.__annotations__))
    assert not differ, f"the docstring of {method} has one line for each option, NAME=DEFAULT and its meaning"
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Client.enqueue, EnqueueOptions.__annotations__),
        (pyworkers.Job.options, JobOverrides.__annotations__.keys() - EnqueueOptions.__annotations__),
    ],
)
def test_the_docstring_of_a_call_names_its_options(method: object, options: Iterable[str]) -> None:
    named = re.findall(r"``(\w+)", inspect.getdoc(method) or "")
    assert not set(options) - set(named), f"the docstring of {method} names each option: ``NAME``"


def test_every_option_of_a_job_is_listed() -> None:
    page = joboptions.page()
    for kind in (HandlerOptions, JobOptions, EnqueueOptions, JobOverrides):
        described = joboptions.options_of(kind.__name__)
        assert set(described) == set(kind.__annotations__)
        assert [name for name in described if f"| `{name}` |" not in page] == []
        assert [name for name, option in described.items() if not option.meaning] == []


def test_every_public_name_has_a_docstring() -> None:
    assert list(api.undocumented()) == []


def test_every_command_and_option_is_listed() -> None:
    page = commands.page()
    for path, command in _commands(main, "pyworkers"):
        section = re.search(rf"^##+ {re.escape(path)}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, path
        for param in command.params:
            for name in param.opts if isinstance(param, click.Option) else ():
                assert f"`{name}`" in section[1], (path, name)


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.commands:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def test_every_key_of_the_configuration_is_listed() -> None:
    page = configuration.page()
    for option in describe():
        assert f"| `{option.path[-1]}` {option.type} | " in page, option.key


def test_every_metric_is_listed() -> None:
    source = (ROOT / "pyworkers/server/http/prometheus.py").read_text()
    named = set(re.findall(r'"(pyworkers_[a-z_]+)"', source)) | {"pyworkers_ready_redis"}
    assert named <= {metric.name for metric, _ in metrics.metrics()}
    assert "| `pyworkers_jobs_failed_total` | counter | `job_class` |" in metrics.page()
    monitoring = (ROOT / "contrib/docs/monitoring.md").read_text()
    assert [metric.name for metric, _ in metrics.metrics() if f"`{metric.name}" not in monitoring] == []


def test_every_log_event_is_listed_and_has_a_meaning() -> None:
    page = events.page()
    sources = [path.read_text() for path in (ROOT / "pyworkers").rglob("*.py")]
    named = {name for text in sources for name in re.findall(r'log\.\w+\(\s*"([a-z]+\.[a-z_]+)"', text)}
    assert len(named) > 50
    assert [name for name in named if f"| `{name}` |" not in page] == []
    missing = sorted(set(events.events()) - set(events.MEANINGS))
    assert missing == [], "contrib/reference/meanings.toml has a sentence for each event"


def test_events_that_are_chosen_at_run_time_are_found() -> None:
    assert {"redis.down", "queue.mended", "job.timeout", "queue.paused"} <= set(events.events())


def test_every_error_class_is_listed_with_its_messages() -> None:
    tree = ast.parse((ROOT / "pyworkers/errors.py").read_text())
    page = errors.page()
    assert [found.__name__ for found in errors.classes()] == [
        node.name for node in tree.body if isinstance(node, ast.ClassDef)
    ]
    for found in errors.classes():
        assert f"\n## {found.__name__}\n" in page
    assert '| no application | set app = "module:attribute" in the configuration' in page


def test_a_message_with_parts_of_run_time_is_a_template() -> None:
    texts = {(message.error, message.text) for message in errors.messages()}
    assert ("DeclarationError", "two jobs are named …, at … and …") in texts


def test_the_pages_are_markdown_of_their_own() -> None:
    for name, write in PAGES.items():
        assert write().startswith("# "), name


@pytest.mark.parametrize("name", [*wire.files(), *wire.copies()])
def test_a_published_file_is_current(name: str) -> None:
    current = {**wire.files(), **wire.copies()}[name]
    assert (wire.FOLDER / name).read_text() == current, "write it: python -m contrib.clients.wire"
