"""Logins: whether a name and a password belong to a user.

Runs in the event loop of the dashboard; passwords are hashed in two threads. A password that was right is
remembered by a keyed digest, so that a script with a token costs no hash for each request.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from pyworkers import logs
from pyworkers.config.rights import Rights
from pyworkers.web.security.attempts import Attempts
from pyworkers.web.security.passwords import PasswordHash
from pyworkers.web.security.users import User, UserFile

# Each takes 16 MiB while it runs.
_THREADS = 2
_MOST_WAITING = 20
_MOST_REMEMBERED = 1000
# A password without a name is compared with the hash of each user.
MOST_USERS_BY_PASSWORD = 20
_BUSY_S = 5
_MOST_CHARACTERS = 1024

log = logs.get_logger()


class TooManyAttempts(Exception):
    """The password was not looked at; try again after ``wait_s`` seconds."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"Too many failed attempts. Try again in {wait_s} s.")
        self.wait_s = wait_s


class Logins:
    """The users of a file, and what is remembered of their logins."""

    def __init__(self, file: UserFile) -> None:
        self._file = file
        self._attempts = Attempts()
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._key = secrets.token_bytes()
        self._threads = ThreadPoolExecutor(_THREADS, "pyworkers-password")
        self._waiting = 0

    def user(self, name: str) -> User | None:
        """The user with this name."""
        return self._file.users().get(name)

    async def check(self, name: str, password: str, address: str) -> User | None:
        """The user with this name and password; ``address`` is the client's. Raises TooManyAttempts."""
        user = self.user(name)
        if user is not None and self._is_remembered(user, password):
            return user
        # An unknown name must take as long as a wrong password.
        candidates = [user or User(name, Rights("read"), self._decoy())]
        found = await self._try(candidates, name, password, address)
        return found if user is not None else None

    async def check_token(self, token: str, address: str) -> User | None:
        """The user of a token: ``NAME:PASSWORD``, or a password without a colon. Raises TooManyAttempts."""
        name, colon, password = token.partition(":")
        # Also for an unknown name: the time must not tell which names there are.
        if colon:
            return await self.check(name, password, address)
        users = list(self._file.users().values())
        for user in users:
            if self._is_remembered(user, token):
                return user
        if len(users) > MOST_USERS_BY_PASSWORD:
            users = []
        return await self._try(users, "", token, address)

    async def _try(self, users: Sequence[User], name: str, password: str, address: str) -> User | None:
        if self._waiting >= _MOST_WAITING:
            raise TooManyAttempts(_BUSY_S)
        if wait_s := self._attempts.begin(address, name[:_MOST_CHARACTERS], time.monotonic()):
            raise TooManyAttempts(wait_s)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, _first_match, users, password)
        finally:
            self._waiting -= 1
        if found is None:
            log.warning("web.login_failed", user=name, address=address)
            return None
        self._attempts.succeed(address, name[:_MOST_CHARACTERS])
        self._remember(found, password)
        return found

    def _decoy(self) -> PasswordHash:
        """A hash that no password has, as slow as the hashes of the users."""
        some = next((user.password for user in self._file.users().values()), None)
        numbers = (1 << 14, 8, 5) if some is None else (some.n, some.r, some.p)
        return PasswordHash(*numbers, secrets.token_bytes(16), secrets.token_bytes(32))

    def _is_remembered(self, user: User, password: str) -> bool:
        return self._digest(user, password) in self._right

    def _remember(self, user: User, password: str) -> None:
        self._right[self._digest(user, password)] = None
        if len(self._right) > _MOST_REMEMBERED:
            self._right.popitem(last=False)

    def _digest(self, user: User, password: str) -> bytes:
        # With the whole line: another hash or role makes it another user.
        return hmac.digest(self._key, f"{user}\0{password}".encode(errors="surrogatepass"), "sha256")


def _first_match(users: Sequence[User], password: str) -> User | None:
    if len(password) > _MOST_CHARACTERS:
        return None
    return next((user for user in users if user.password.matches(password)), None)
