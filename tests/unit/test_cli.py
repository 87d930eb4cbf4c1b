"""The group of all commands: what loads when, how errors end, and what the help says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from pyworkers.cli import main
from pyworkers.errors import AppImportError, ConfigError, PyworkersError, RedisUnavailableError
from pyworkers.version import __version__
from tests.helpers.support import ROOT

COMMANDS = [
    *([name] for name in ("run", "enqueue", "stats", "queues", "version", "top", "processes", "workers")),
    *([name] for name in ("quiet", "stop", "pause", "resume", "check")),
    ["config", "check"],
    ["config", "show"],
    *(["jobs", name] for name in ("list", "show", "kill", "delete", "clear")),
    *([group, name] for group in ("scheduled", "retries") for name in ("list", "show", "retry", "kill")),
    *(["batches", name] for name in ("list", "show", "delete")),
    *(["locks", name] for name in ("list", "release")),
    *(["limits", name] for name in ("list", "reset")),
    *(["cron", name] for name in ("list", "add", "pause", "resume", "remove", "trigger", "next")),
    *(["dead", name] for name in ("list", "show", "retry", "delete", "clear")),
]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, prog_name="pyworkers")


EndingWith = Callable[[BaseException], Result]


@pytest.fixture
def ending_with(monkeypatch: pytest.MonkeyPatch) -> EndingWith:
    """Run a command that raises this."""

    def end(error: BaseException) -> Result:
        @click.command()
        def version() -> None:
            raise error

        monkeypatch.setattr("pyworkers.cli.version.version", version)
        return run("version")

    return end


# What loads


def modules_after(*words: str) -> set[str]:
    """The modules in memory after the command, in a Python of its own."""
    code = "import sys; from pyworkers.cli import main; main(standalone_mode=False); print(*sys.modules)"
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_help_imports_no_command_and_none_of_their_libraries() -> None:
    loaded = modules_after("--help")
    assert "click" in loaded
    heavy = {
        "redis",
        "structlog",
        "simplejson",
        "croniter",
        "asyncio",
        "pyworkers.config.loading",
        "pyworkers.cli.run",
    }
    assert loaded & heavy == set()


def test_a_command_imports_no_other_command() -> None:
    loaded = modules_after("version")
    assert {name for name in loaded if name.startswith("pyworkers.cli.")} == {"pyworkers.cli.version"}
    assert "redis" not in loaded


# How errors end


def test_an_error_of_ours_is_a_sentence_with_its_place_and_hint_and_its_exit_code(
    ending_with: EndingWith,
) -> None:
    result = ending_with(ConfigError("unknown key redis.ulr", hint="did you mean url?", location="w.toml:3"))
    assert result.exit_code == 2
    assert result.stderr == "Error: w.toml:3: unknown key redis.ulr\ndid you mean url?\n"
    assert result.stdout == ""


@pytest.mark.parametrize(("error", "code"), [(PyworkersError("x"), 1), (RedisUnavailableError("x"), 4)])
def test_each_error_has_its_exit_code(error: PyworkersError, code: int, ending_with: EndingWith) -> None:
    assert ending_with(error).exit_code == code


def test_an_application_that_fails_to_import_shows_its_traceback_and_then_the_message(
    ending_with: EndingWith,
) -> None:
    result = ending_with(AppImportError("tasks cannot be imported", traceback="Traceback …\nNameError: a\n"))
    assert result.exit_code == 3
    assert result.stderr == "Traceback …\nNameError: a\nError: tasks cannot be imported\n"


def test_control_c_ends_quietly_with_the_code_of_an_interrupted_program(ending_with: EndingWith) -> None:
    result = ending_with(KeyboardInterrupt())
    assert (result.exit_code, result.output) == (130, "")


def test_an_unexpected_error_is_not_hidden(ending_with: EndingWith) -> None:
    assert isinstance(ending_with(ZeroDivisionError()).exception, ZeroDivisionError)


def test_an_unknown_command_is_a_usage_error_with_a_suggestion() -> None:
    result = run("enqueu")
    assert result.exit_code == 2
    assert "No such command 'enqueu'" in result.stderr
    assert "enqueue" in result.stderr.replace("'enqueu'", "")


# What the help says


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_mentions_every_option_with_a_sentence(path: list[str], option: str) -> None:
    words = ["jobs", "mail", *path[1:]] if path[0] == "jobs" else path
    result = run(*words, option)
    assert result.exit_code == 0
    for parameter in _command(path).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert all(name in result.output for name in parameter.opts)
        else:
            assert parameter.make_metavar(click.Context(_command(path))) in result.output


def _command(path: list[str]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    return command


def test_the_table_of_commands_says_what_each_command_says_of_itself() -> None:
    assert isinstance(main, click.Group)
    lines = run("--help").output.split("Commands:\n")[1].splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    own = {name: _command([name]).get_short_help_str(200) for name in main.list_commands(click.Context(main))}
    assert shown == {name: f"{sentence.rstrip('.')}." for name, sentence in own.items()}


def test_without_a_command_the_help_is_shown() -> None:
    assert "Commands:" in run().output


def test_versions_of_everything_a_bug_report_needs() -> None:
    result = run("version")
    assert result.exit_code == 0
    versions = dict(line.split() for line in result.output.splitlines())
    assert versions["pyworkers"] == __version__
    assert versions["Python"] == "{}.{}.{}".format(*sys.version_info)
    assert list(versions) == ["pyworkers", "Python", "redis-py", "hiredis"]


def test_a_package_that_is_missing_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyworkers.cli import version

    monkeypatch.setattr(version, "version_of", _raise_not_found)
    assert "hiredis    not installed\n" in run("version").output


def _raise_not_found(package: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(package)
