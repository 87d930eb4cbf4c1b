"""The file of users: its lines, its changes, and the passwords in it."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers.cli import main
from pyworkers.errors import ConfigError
from pyworkers.web.security.attempts import OF_ADDRESS, OF_NAME, OF_NAME_AT_ADDRESS, Attempts
from pyworkers.web.security.logins import MOST_USERS_BY_PASSWORD, Logins, TooManyAttempts
from pyworkers.web.security.passwords import PasswordHash
from pyworkers.web.security.users import UserFile, parse
from tests.helpers.terminal import terminal

HERE = "127.0.0.1"
# A second of hashing in each test would prove nothing.
QUICK = "scrypt$2$1$1$MDEyMzQ1Njc4OWFiY2RlZg==$yLgCn8X0eF3wKHj1gfZ5m1aX0lJSlrn5H6M+fs/Wsj8="
ANN = f"ann:operate:{QUICK}"


def line(name: str, role: str = "read", password: str = "secret") -> str:
    return f"{name}:{role}:{PasswordHash.of(password, n=2, r=1, p=1)}"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "users"
    path.write_text("\n".join(lines))
    return path


def logins(folder: Path, *lines: str) -> Logins:
    return Logins(UserFile(written(folder, *lines)))


# A line


def test_a_line_has_name_role_and_hash() -> None:
    users = parse(f"# the team\n\n  {ANN}\r\n{line('bob é')}\n", "users")
    assert [(user.name, str(user.rights)) for user in users.values()] == [
        ("ann", "operate"),
        ("bob é", "read"),
    ]
    assert users["ann"].password.matches("secret")
    assert not users["ann"].password.matches("Secret")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ann", "users:1: a line has three parts with colons between them, not 1"),
        (f"\n{ANN}:x", "users:2: a line has three parts with colons between them, not 4"),
        (f":read:{QUICK}", "users:1: a name has 1 to 128 printable characters"),
        (f"a\x1bb:read:{QUICK}", "users:1: a name has 1 to 128 printable characters"),
        (f"ann:admin:{QUICK}", "users:1: the role is neither read nor enqueue nor operate"),
        ("ann:read:secret", "users:1: is not a hash: use the line"),
        ("ann:read:scrypt$2$1$1$AAAA$AAAA", "users:1: is not a hash: use the line"),
        # A terabyte of memory, and a year of hashing.
        (f"ann:read:scrypt$1073741824$8$1$AAAA${'A' * 43}=", "users:1: is not a hash: use the line"),
        (f"ann:read:scrypt$2$1$1000000$AAAA${'A' * 43}=", "users:1: is not a hash: use the line"),
        (f"ann:read:scrypt$3$1$1$AAAA${'A' * 43}=", "users:1: is not a hash: use the line"),
        (f"{ANN}\n{ANN}", "users:2: the user ann is named twice"),
    ],
)
def test_an_invalid_line_is_an_error_that_names_it_and_quotes_no_secret(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "users")
    assert str(caught.value).startswith(error)
    assert "secret" not in str(caught.value) and "scrypt$" not in str(caught.value)


def test_a_hash_is_read_as_it_was_written() -> None:
    found = PasswordHash.of("é")
    assert re.fullmatch(r"scrypt\$16384\$8\$5\$[A-Za-z0-9+/=]+\$[A-Za-z0-9+/=]+", str(found))
    # The accent as a separate character.
    assert PasswordHash.parse(str(found)).matches("e\u0301")
    assert str(PasswordHash.of("é")) != str(found)
    assert "scrypt" not in repr(found)


# The command


def test_the_command_prints_a_line() -> None:
    result = CliRunner().invoke(main, ["web-user", "ann", "operate"], input="secret\n")
    assert result.exit_code == 0
    [user] = parse(result.stdout, "printed").values()
    assert (user.name, str(user.rights)) == ("ann", "operate")
    assert user.password.matches("secret")


@pytest.mark.parametrize(
    ("words", "password", "error"),
    [
        (["a:b", "read"], "x", "'a:b': a name has 1 to 128 printable characters without a colon"),
        (["a\x1b", "read"], "x", r"'a\x1b': a name has"),
        (["", "read"], "x", "'': a name has"),
        (["ann", "admin"], "x", "'admin': the role is neither read nor enqueue nor operate"),
        (["ann", "read"], "\n", "the password is empty"),
        (["ann", "read"], "", "the password is empty"),
    ],
)
def test_the_command_refuses_what_no_line_can_hold(words: list[str], password: str, error: str) -> None:
    result = CliRunner().invoke(main, ["web-user", *words], input=password)
    assert result.exit_code == 2
    assert error in result.stderr
    assert result.stdout == ""


def test_a_terminal_asks_for_the_password_twice_and_does_not_show_it() -> None:
    with terminal("web-user", "ann", "read") as person:
        person.wait_for("Password: ")
        person.type("sec;ret\n")
        person.wait_for("Repeat for confirmation: ")
        person.type("sec;ret\n")
        assert person.wait() == 0
        assert b"ann:read:scrypt$" in person.read()
        assert b"sec;ret" not in person.read()


# The file


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, line("ann"))
    file = UserFile(path)
    assert file.users().keys() == {"ann"}
    # As long as the first one, and within the same tick of the clock.
    written(tmp_path, line("bob"))
    assert file.users().keys() == {"bob"}
    written(tmp_path, "")
    assert file.users() == {}


def test_an_old_file_is_not_read_for_each_request(tmp_path: Path) -> None:
    path = written(tmp_path, line("ann"))
    os.utime(path, ns=(0, 0))
    file = UserFile(path)
    assert file.users() is file.users()


@pytest.mark.parametrize("text", ["broken", f"ann:admin:{QUICK}", None])
def test_a_broken_file_leaves_the_users_as_they_were(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, line("ann"))
    file = UserFile(path)
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert file.users().keys() == {"ann"}
    assert file.users().keys() == {"ann"}
    assert capsys.readouterr().out.count("web.users_invalid") == 1
    path.write_text(line("bob"))
    assert file.users().keys() == {"bob"}


@pytest.mark.parametrize("content", [None, b"\xff", b"#" * (2 << 20)])
def test_an_unreadable_file_is_an_error_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "users"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        UserFile(path)


# Logins


async def test_a_name_and_its_password(tmp_path: Path) -> None:
    found = logins(tmp_path, line("ann", "operate"), line("bob", password="b:b"))
    ann = await found.check("ann", "secret", HERE)
    assert ann is not None and ann.rights.role == "operate"
    assert await found.check("ann", "b:b", HERE) is None
    assert await found.check("carl", "secret", HERE) is None
    assert await found.check("ann", "x" * 100_000, HERE) is None


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("ann:secret", "ann"),
        ("secret", "ann"),
        ("bob:b:b", "bob"),
        ("b:b", ""),
        ("ann:b:b", ""),
        ("carl:secret", ""),
        ("", ""),
    ],
)
async def test_a_token_is_name_and_password_or_a_password(tmp_path: Path, token: str, name: str) -> None:
    found = await logins(tmp_path, line("ann"), line("bob", password="b:b")).check_token(token, HERE)
    assert (found.name if found else "") == name


@pytest.mark.parametrize("token", ["ann:wrong", "carl:wrong"])
async def test_a_token_with_any_name_costs_one_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(PasswordHash, "matches", lambda _self, password: hashed.append(password))
    assert await logins(tmp_path, line("ann"), line("bob"), line("eve")).check_token(token, HERE) is None
    assert hashed == ["wrong"]


async def test_a_password_alone_is_not_compared_with_the_hashes_of_hundreds(tmp_path: Path) -> None:
    many = [line(f"user{number}") for number in range(MOST_USERS_BY_PASSWORD + 1)]
    found = logins(tmp_path, *many)
    assert await found.check_token("secret", HERE) is None
    assert await found.check_token("user0:secret", HERE) is not None


async def test_guesses_are_limited_and_the_right_password_that_was_used_before_is_not(tmp_path: Path) -> None:
    found = logins(tmp_path, line("ann"))
    assert await found.check("ann", "secret", HERE) is not None
    tries = [found.check("ann", f"wrong{number}", HERE) for number in range(OF_NAME_AT_ADDRESS.burst + 5)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, TooManyAttempts)]
    assert len(refused) == 5
    assert {answer.wait_s for answer in refused} <= {5, 6}
    assert await found.check("ann", "secret", HERE) is not None
    assert await found.check("ann", "secret", "10.0.0.1") is not None


async def test_a_changed_password_is_not_remembered(tmp_path: Path) -> None:
    found = logins(tmp_path, line("ann"))
    assert await found.check("ann", "secret", HERE) is not None
    written(tmp_path, line("ann", password="other"))
    assert await found.check("ann", "secret", HERE) is None
    assert await found.check("ann", "other", HERE) is not None


def test_failures_are_forgotten_one_by_one() -> None:
    attempts = Attempts()
    waits = [attempts.begin("a", "ann", 0.0) for _ in range(OF_NAME_AT_ADDRESS.burst + 1)]
    assert waits == [0] * OF_NAME_AT_ADDRESS.burst + [6]
    assert attempts.begin("b", "ann", 0.0) == 0
    assert [attempts.begin("a", "ann", now) for now in (5.9, 6.0, 6.1)] == [1, 0, 6]


def test_the_guesses_of_one_name_leave_the_others_at_the_address_their_own() -> None:
    attempts = Attempts()
    for name in ("ann", ""):
        waits = [attempts.begin("a", name, 0.0) for _ in range(OF_NAME_AT_ADDRESS.burst + 1)]
        assert waits[-1] == 6
    assert attempts.begin("a", "rita", 0.0) == 0


def test_an_address_is_limited_over_all_names() -> None:
    attempts = Attempts()
    waits = [attempts.begin("a", f"user{number}", 0.0) for number in range(OF_ADDRESS.burst + 1)]
    assert waits == [0] * OF_ADDRESS.burst + [1]
    assert attempts.begin("b", "ann", 0.0) == 0


def test_successes_are_not_counted() -> None:
    attempts = Attempts()
    for _ in range(2 * OF_NAME.burst):
        assert attempts.begin("a", "ann", 0.0) == 0
        attempts.succeed("a", "ann")


def test_a_network_of_ipv6_is_one_client() -> None:
    attempts = Attempts()
    waits = [
        attempts.begin(f"2001:db8::{number:x}", "", 0.0) for number in range(OF_NAME_AT_ADDRESS.burst + 1)
    ]
    assert waits[-1] == 6
    assert attempts.begin("2001:db8:0:1::1", "", 0.0) == 0


def test_a_name_is_limited_over_all_addresses() -> None:
    attempts = Attempts()
    waits = [attempts.begin(f"10.0.0.{number}", "ann", 0.0) for number in range(OF_NAME.burst + 1)]
    assert waits == [0] * OF_NAME.burst + [2]
