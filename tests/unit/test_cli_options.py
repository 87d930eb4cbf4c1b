"""The shared options: where the configuration comes from, and what the ``config`` commands say of it."""

from __future__ import annotations

import socket
import threading
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pyworkers.cli import main
from pyworkers.cli.options import ConfigOptions
from pyworkers.config.fields import RedisConfig
from pyworkers.config.loading import render
from pyworkers.embedded import answers
from pyworkers.errors import ConfigError, RedisUnavailableError

pytestmark = pytest.mark.usefixtures("no_redis_in_environment")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "workers.toml"
    path.write_text('[redis]\nurl = "redis://file:6379/0"\nnamespace = "file:"\n')
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def shown(*words: str) -> RedisConfig:
    """``[redis]`` as ``config show`` prints it."""
    result = run("config", "show", *words)
    assert result.exit_code == 0, result.stderr
    return RedisConfig(**tomllib.loads(result.output)["redis"])


@pytest.mark.parametrize("option", ["-c", "--config"])
def test_the_file_is_given_by_option(option: str, file: Path) -> None:
    assert shown(option, str(file)) == RedisConfig(url="redis://file:6379/0", namespace="file:")


def test_the_file_is_given_by_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYWORKERS_CONFIG", str(file))
    assert shown() == RedisConfig(url="redis://file:6379/0", namespace="file:")


def test_options_win_over_the_environment_and_that_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYWORKERS_REDIS__URL", "redis://env:6379/0")
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", "env:")
    found = shown("-c", str(file), "--url", "redis://option:6379/0")
    assert found == RedisConfig(url="redis://option:6379/0", namespace="env:")
    assert shown("-c", str(file), "--namespace", "option:").namespace == "option:"


def test_a_command_may_override_further_keys(file: Path) -> None:
    config = ConfigOptions(file, None, None).load({"app": "tasks:worker", "log.level": "debug"})
    assert (config.app, config.log.level, config.redis.namespace) == ("tasks:worker", "debug", "file:")


def test_show_prints_all_that_is_in_effect_without_passwords(file: Path) -> None:
    file.write_text(
        '[redis]\nurl = "redis://me:hunter2@file/0"\npassword = "hunter3"\n[queues.a]\nconcurrency = 3\n'
    )
    result = run("config", "show", "-c", str(file))
    assert result.output == render(ConfigOptions(file, None, None).load())
    assert "me:***@file" in result.output
    assert "hunter" not in result.output
    assert tomllib.loads(result.output)["queues"] == {"a": {"concurrency": 3}}


@pytest.mark.parametrize(
    ("url", "times"),
    [
        ("redis://:hunter2@127.0.0.1:1/3", 1),
        ("sentinel://me@127.0.0.1:1/main?sentinel_password=hunter2", 1),
        ("redis://me@127.0.0.1:1/3", 0),
        ("embedded:a:b@c", 0),
    ],
)
@pytest.mark.parametrize("words", [["config", "show"], ["queues"]])
def test_a_password_on_the_command_line_is_warned_of_once(words: list[str], url: str, times: int) -> None:
    result = run(*words, "--url", url)
    assert result.stderr.count("Warning: other users of this machine can read the password") == times
    assert result.stderr.count("set REDIS_URL, PYWORKERS_REDIS__PASSWORD") == times
    assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["enqueue", "q", "C", "--batch", ""], "--batch"),
        (["enqueue", "q", "C", "--tag", "x", "--tag", ""], "--tag"),
        (["jobs", "--redis", "", "q", "list"], "--redis"),
        (["dead", "delete", "--yes", "--error", ""], "--error"),
        (["locks", "list", "--class="], "--class"),
        (["web", "--auth", ""], "--auth"),
    ],
)
def test_an_option_without_a_text_is_refused(words: list[str], option: str) -> None:
    result = run(*words)
    rule = f"Invalid value for '{option}': is empty: give it a value, or leave it out"
    assert (result.exit_code, rule in result.stderr) == (2, True)


def test_a_namespace_may_be_empty(file: Path) -> None:
    assert shown("-c", str(file), "--namespace", "").namespace == ""


def test_check_says_ok_and_which_file(file: Path) -> None:
    result = run("config", "check", "-c", str(file))
    assert (result.exit_code, result.output) == (0, f"ok: {file}\n")


def test_check_without_a_file_says_what_it_has_checked() -> None:
    assert run("config", "check").output == "ok: no file, only environment and defaults\n"


@pytest.mark.parametrize(
    "command", [["config", "check"], ["config", "show"], ["stats"], ["enqueue", "q", "C"]]
)
def test_a_wrong_file_ends_every_command_with_2_and_the_line(command: list[str], file: Path) -> None:
    file.write_text('[redis]\n\nulr = "redis://x"\n')
    result = run(*command, "-c", str(file))
    assert result.exit_code == 2
    assert result.stderr == f"Error: {file}:3: unknown key redis.ulr\ndid you mean redis.url?\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("url", "error"),
    [
        (
            "redis+cluster://h:7,i/1",
            'FILE:2: redis.url: a cluster has no database but 0: write url = "redis+cluster://h:7,i"',
        ),
        (
            "redis+sentinel://h",
            "FILE:2: redis.url: the name of the primary is missing: "
            'write url = "redis+sentinel://h/mymaster"',
        ),
        (
            "redis+sentinel://h/main?ssl=true",
            "the Redis URL 'redis+sentinel://h/main?ssl=true' cannot be used: "
            "unknown option ssl; use rediss+sentinel:// for TLS",
        ),
    ],
)
def test_the_check_refuses_a_url_that_no_command_can_use(url: str, error: str, file: Path) -> None:
    file.write_text(f'[redis]\nurl = "{url}"\nnamespace = "{{x}}:"\n')
    for command in (("config", "check"), ("stats",)):
        result = run(*command, "-c", str(file))
        assert (result.exit_code, result.stderr) == (2, f"Error: {error.replace('FILE', str(file))}\n")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = run("config", "check", "-c", str(tmp_path / "no.toml"))
    assert (result.exit_code, result.stderr) == (2, f"Error: {tmp_path / 'no.toml'}: no such file\n")


def test_a_bad_url_on_the_command_line_is_an_error_of_configuration() -> None:
    with pytest.raises(ConfigError, match=r"command line: redis\.url: 'ftp://x' is not a Redis URL"):
        ConfigOptions(None, "ftp://x", None).redis()


@pytest.mark.parametrize(
    ("reply", "runs"),
    [
        (b"+PONG\r\n", True),
        (b"-MISCONF Errors writing to the AOF file: No space left on device\r\n", True),
        (b"-LOADING Valkey is loading the dataset in memory\r\n", False),
        (b"", False),
    ],
)
def test_an_embedded_server_runs_also_with_a_full_disk(tmp_path: Path, reply: bytes, runs: bool) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(64)
                connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        assert answers(tmp_path / "s") is runs
        thread.join()


def test_an_embedded_server_that_does_not_run_is_reported_with_how_to_start_it(tmp_path: Path) -> None:
    with pytest.raises(RedisUnavailableError) as caught:
        ConfigOptions(None, f"embedded:{tmp_path / 'redis'}", None).redis()
    assert caught.value.message == f"no embedded server answers in {tmp_path / 'redis'}"
    assert "Start `pyworkers run` with the same configuration" in caught.value.hint
    assert not (tmp_path / "redis").exists()
