"""The group of all commands: what loads when, how errors end, and what the help says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from pyworkers.cli import main
from pyworkers.cli import run as run_command
from pyworkers.cli.setup.foreign import OF_RUN
from pyworkers.errors import AppImportError, ConfigError, PyworkersError, RedisUnavailableError
from pyworkers.version import __version__
from tests.helpers.support import ROOT


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
    """The modules in memory after the command, in a new Python."""
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
    shared = {
        "pyworkers.cli.output",
        "pyworkers.cli.output.records",
        "pyworkers.cli.setup",
        "pyworkers.cli.setup.foreign",
    }
    assert {name for name in loaded if name.startswith("pyworkers.cli.")} == {
        "pyworkers.cli.version",
        *shared,
    }
    assert "redis" not in loaded


@pytest.mark.parametrize("command", ["queues", "stats"])
def test_a_command_that_reads_loads_nothing_that_makes_or_ends_jobs(command: str) -> None:
    loaded = modules_after(command, "--help")
    assert "pyworkers.store.stats" in loaded
    protocol, store = "pyworkers.protocol", "pyworkers.store"
    assert loaded & {f"{protocol}.effects", f"{protocol}.draft", f"{protocol}.flow.rules"} == set()
    assert loaded & {f"{store}.producer", f"{store}.queues", f"{store}.sets", "pyworkers.client"} == set()


def test_no_garbage_is_collected_at_the_exit_of_the_program() -> None:
    code = """
import sys
class Cycle:
    def __del__(self, print=print): print("collected")
kept = Cycle()
kept.itself = kept
from pyworkers.__main__ import main, run
sys.argv = ["pyworkers", "version", "--json"]
"""
    program, call = (
        subprocess.run([sys.executable, "-c", code + last], capture_output=True, text=True, check=True).stdout
        for last in ("run()", "main()")
    )
    assert "redis" in program and "collected" not in program
    # A program of a user's that calls a command ends as it would without it.
    assert call == f"{program}collected\n"


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


@pytest.mark.parametrize("code", ["UNREACHABLE", "DNS"])
def test_an_address_without_redis_has_its_fix(code: str, ending_with: EndingWith) -> None:
    first, fix = ending_with(RedisUnavailableError("nothing there", code=code)).stderr.splitlines()
    assert first == "Error: nothing there"
    assert fix.startswith("Start Redis, or name another address: --url, REDIS_URL")


def test_a_mend_of_the_error_itself_stands_alone(ending_with: EndingWith) -> None:
    error = RedisUnavailableError("no embedded server", code="UNREACHABLE", hint="Start it.")
    assert ending_with(error).stderr == "Error: no embedded server\nStart it.\n"
    assert ending_with(RedisUnavailableError("late", code="TIMEOUT")).stderr == "Error: late\n"


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


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("worker", "run"),
        ("start", "run"),
        ("purge", "jobs QUEUE clear"),
        ("failed", "dead"),
        ("flower", "web"),
        ("help", "--help"),
    ],
)
def test_a_command_of_another_library_is_an_error_that_names_ours(name: str, ours: str) -> None:
    result = run(name, "--loglevel", "info")
    assert result.exit_code == 2
    assert f"Error: No such command {name!r}: use pyworkers {ours}\n" in result.stderr
    assert run(*ours.replace("QUEUE", "mail").split(), "--help").exit_code == 0


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("-A tasks", "No such option '-A': use --app MODULE:NAME"),
        ("-Q mail,web", "No such option '-Q': use --queue NAME, once for each queue"),
        ("--queues=mail", "No such option '--queues': use --queue NAME, once for each queue"),
        (
            "--concurrency 4",
            "No such option '--concurrency': use --queue NAME=CONCURRENCY, or concurrency in",
        ),
        ("--loglevel=info", "No such option '--loglevel': use --log-level LEVEL"),
        ("-B", "No such option '-B': each server fires the cron entries"),
        ("-c 4", "-c is --config: no such file '4'; a concurrency is -q NAME=4"),
        ("tasks:worker", "Got unexpected extra argument 'tasks:worker': use --app tasks:worker"),
        ("high low", "argument 'high': use --app MODULE:NAME for the application, --queue NAME for a queue"),
        ("--app tasks:worker --ap x", "No such option '--ap'. (Did you mean one of: '--app', '--help'?)"),
    ],
)
def test_an_option_of_another_library_is_an_error_that_names_ours(words: str, hint: str) -> None:
    result = run("run", *words.split())
    assert result.exit_code == 2
    assert hint in result.stderr


def test_each_option_of_another_library_is_none_of_ours() -> None:
    ours = {name for parameter in run_command.run.params for name in parameter.opts}
    assert ours & set(OF_RUN) == set()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("-A tasks worker", "No such option '-A': use pyworkers run --app MODULE:NAME"),
        ("--url redis://h stats", "'--url': it belongs after the command, as in pyworkers stats --url"),
        ("--verbsoe stats", "No such option '--verbsoe'."),
    ],
)
def test_an_option_before_the_command_is_an_error_that_says_where_it_stands(words: str, hint: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert hint in result.stderr


# What the help says


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_mentions_every_option_with_a_sentence(option: str) -> None:
    for name, command in _leaves(main):
        result = run(*name.replace("jobs ", "jobs mail ").split(), option)
        assert result.exit_code == 0, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (name, parameter.name)
                assert all(option in result.output for option in parameter.opts), name
            else:
                assert parameter.make_metavar(click.Context(command)) in result.output, name


def test_the_help_of_every_command_has_one_line_of_summary_and_an_example() -> None:
    for name, command in _leaves(main):
        summary = (command.help or "").split("\n\n")[0]
        assert "\n" not in summary.strip(), name
        assert len(summary) <= 90, name
        if name not in ("run", "init", "completion"):
            assert "Example" in (command.help or ""), name


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


# JSON


def _leaves(command: click.Command, *path: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _leaves(found, *path, name)


def test_every_command_takes_json() -> None:
    leaves = dict(_leaves(main))
    assert len(leaves) > 40
    with_json = {
        name for name, command in leaves.items() if any("--json" in option.opts for option in command.params)
    }
    assert with_json == leaves.keys()


@pytest.mark.parametrize(
    "words", [["version"], ["config", "check"], ["config", "show"], ["completion", "fish"]]
)
def test_the_commands_without_a_redis_print_an_object(words: list[str]) -> None:
    result = run(*words, "--json")
    assert result.exit_code == 0
    assert isinstance(json.loads(result.output), dict)


def test_run_logs_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    formats: list[str] = []
    monkeypatch.setattr(run_command, "serve", lambda config, *_, **__: formats.append(config.log.format))
    assert [run("run", "--app", "tasks:worker", *words).exit_code for words in ([], ["--json"])] == [0, 0]
    assert formats == ["auto", "json"]


def test_init_as_json_names_the_files(tmp_path: Path) -> None:
    result = run("init", str(tmp_path / "shop"), "--json")
    written = [str(tmp_path / "shop" / name) for name in ("tasks.py", "workers.toml")]
    assert json.loads(result.output) == {"action": "init", "done": 2, "written": written}
    assert all(Path(path).exists() for path in written)


def test_the_configuration_as_json_has_its_types_and_no_password() -> None:
    result = run("config", "show", "--json", "--url", "redis://:hunter2@127.0.0.1/3")
    shown = json.loads(result.stdout)
    assert shown["server"]["shutdown_timeout"] == 25.0
    assert shown["retry"] == {"max": 25, "backtrace": 20, "drain_goretry": False}
    assert "hunter2" not in result.output
