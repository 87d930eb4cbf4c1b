"""The rights of each role: complete for the keys that there are, and safe to paste."""

from __future__ import annotations

import inspect
import re
from fnmatch import fnmatchcase

import pytest
from click.testing import CliRunner

from pyworkers.cli import main
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import GRANTS, Role, Version, commands, line, patterns
from pyworkers.store.scripts import load

# Named by Sidekiq Enterprise alone.
FOREIGN = {"leader"}
EXAMPLES = {
    "identity": "host:1:0123456789ab",
    "zset": "retry",
    "moment": "20261121|7:5",
    "name": "h|C-21-7:5",
    "slot": 7,
    "minute": 29_655_483,
    "minutes": 10,
    "hour": 494_258,
    "date": "20261121",
    "label": "v1.4.2",
    "job_class": "Add",
    "queue": "ledger",
    "task": "0f3a",
    "deletion": "0f3a7c1e5b2d",
    "move": "7c1e",
    "request": "0f3a7c1e",
    "code": "silent",
    "session": "0a1b2c",
    "jid": "b4a577edbccf1d805744efa9",
    "batch": "d2fdc9a9bd80e2f1b0f3c1a7",
    "key": "Add|mail|0123456789abcdef",
}


def all_keys(keys: Keys) -> dict[str, str]:
    """Every key of keys.py with example parts."""
    found = {}
    for name, member in inspect.getmembers(Keys):
        if name.startswith("_") or name == "namespace" or name in FOREIGN:
            continue
        if isinstance(member, property):
            found[name] = getattr(keys, name)
        elif callable(member):
            parts = [p for p in inspect.signature(member).parameters if p not in ("self", "day")]
            values = [EXAMPLES[p] if not (p == "name" and name != "histogram") else "failed" for p in parts]
            found[name] = member(keys, *values)
    return found


def test_a_worker_may_use_every_key() -> None:
    # Python negates with another sign.
    globs = [glob.removeprefix("~").replace("[^", "[!") for glob in patterns(Role.WORKER, "app:")]
    # A server has no business with those of the dashboard.
    of_the_dashboard = {
        "marks",
        "deploy_lock",
        "web_secret",
        "web_ended",
        "web_muted",
        "alarming",
        "alarms",
        "alarms_sent",
        "enqueued",
        "task",
        "task_alive",
    }
    missing = {
        name: key
        for name, key in all_keys(Keys("app:")).items()
        if name not in of_the_dashboard and not any(fnmatchcase(key, glob) for glob in globs)
    }
    assert missing == {}


@pytest.mark.parametrize("role", list(Role))
def test_no_role_may_use_another_namespace(role: Role) -> None:
    globs = [glob.removeprefix("~") for glob in patterns(role, "app:")]
    assert globs
    assert all(glob.startswith("app:") for glob in globs)


def test_the_commands_of_the_servers_scripts_are_a_workers() -> None:
    servers_own = {
        "renew",
        "deregister",
        "recover",
        "exchange",
        "give_back",
        "note_cancelled",
        "promote",
        "cron/fire",
        "cron/claim",
    }
    used = set()
    for name in servers_own:
        used |= {word.lower() for word in re.findall(r"redis\.p?call\('([A-Z]+)'", load(name).text)}
    assert used <= set(commands(Role.WORKER))


def test_reading_changes_nothing() -> None:
    assert not {"eval", "evalsha", "script"} & set(commands(Role.READ_ONLY))
    writing = {"set", "del", "unlink", "expire", "zadd", "zrem", "lpush", "rpush", "sadd", "srem", "hset"}
    assert not writing & set(commands(Role.READ_ONLY))


def test_every_grant_has_a_role() -> None:
    assert all(any(grant.commands(role) for role in Role) for grant in GRANTS)


def test_the_line() -> None:
    words = line(Role.CLIENT, "a*[b]:", "web")
    begin, *selectors = words.split(" (")
    assert begin == "ACL SETUSER web reset on >CHANGE-ME +exec +multi +time"
    assert r"~a\*\[b\]:queue:* +llen +lpush +type)" in selectors
    assert all(selector.endswith(")") for selector in selectors)
    named = {word[1:].rstrip(")") for word in words.split() if word.startswith("+")}
    assert named == set(commands(Role.CLIENT))
    readings = line(Role.READ_ONLY, "app:", "web").split(" (")[1:]
    assert readings and all(selector.startswith("%R~app:") for selector in readings)


def test_the_line_for_redis_without_selectors() -> None:
    words = line(Role.CLIENT, "a*[b]:", "web", Version.SIX).split()
    assert words[:8] == [
        "ACL",
        "SETUSER",
        "web",
        "reset",
        "on",
        ">CHANGE-ME",
        r"~a\*\[b\]:queues",
        r"~a\*\[b\]:queue:*",
    ]
    assert [word[1:] for word in words if word.startswith("+")] == commands(Role.CLIENT)
    assert {word[0] for word in words[6:]} == {"~", "+"}


def test_the_command_prints_the_line() -> None:
    result = CliRunner().invoke(main, ["acl", "--role", "client", "--namespace", "app:"])
    assert result.exit_code == 0
    assert result.stdout == line(Role.CLIENT, "app:", "pyworkers-client") + "\n"
    assert "\nRun it in redis-cli -" in result.stderr
    assert "# It may send scripts, and a script that does not end blocks Redis" in result.stderr
    for role in ("worker", "admin", "read-only"):
        words = ["acl", "--role", role]
        assert "Without a namespace" in CliRunner().invoke(main, words).stderr
        assert "Without a namespace" not in CliRunner().invoke(main, [*words, "--namespace", "a:"]).stderr
    old = CliRunner().invoke(main, ["acl", "--oldest", "6.2", "--namespace", "a:"])
    # Its former name.
    assert CliRunner().invoke(main, ["acl", "--redis", "6.2", "--namespace", "a:"]).stdout == old.stdout
    assert old.stdout == line(Role.WORKER, "a:", "pyworkers-worker", Version.SIX) + "\n"
    assert "# Redis 6.2 grants each of these commands on each of these keys" in old.stderr
    # A connection begins in the database 0.
    other = CliRunner().invoke(main, ["acl", "--url", "redis://127.0.0.1/7", "--namespace", "a:"])
    assert other.stdout == line(Role.WORKER, "a:", "pyworkers-worker", database=7) + "\n"
    assert " +select " in other.stdout and " +select" not in line(Role.WORKER, "a:", "me")
    assert line(Role.WORKER, "", "me") in CliRunner().invoke(main, ["acl", "--user", "me"]).stdout


@pytest.mark.parametrize("name", ["", "a b", "a\tb", 'a"b', "a'b"])
def test_a_name_that_redis_cli_would_split_is_refused(name: str) -> None:
    result = CliRunner().invoke(main, ["acl", "--user", name])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot be a Redis user: use a name without white space and quotes" in " ".join(
        result.stderr.split()
    )


@pytest.mark.parametrize("role", list(Role))
def test_a_hash_tag_adds_what_a_cluster_needs(role: Role) -> None:
    found = line(role, "{app}:", "u")
    assert " +asking " in found and " +cluster|nodes +cluster|slots " in found
    assert re.search(r"\(([^()]* )?(%R)?~\{app\}:pyworkers:slot( [^()]*)? \+exists", found)
    assert "cluster" not in line(role, "app:", "u")
    assert " +cluster|nodes " in line(role, "{app}:", "u", Version.SIX)
