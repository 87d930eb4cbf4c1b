"""The steps of contrib/docs/tutorial.md, each as the page has it, but for ``pip install``.

The files of the page are written, its commands are run by a shell, and their output is compared: ``…`` stands
for any text. A block of text is what the server prints. The unit is started as systemd would do it; the
container is not built, because no test may need Docker.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.documents.blocks import Block, blocks
from tests.helpers.processes import children, process_alive
from tests.helpers.support import PATIENCE_S, ROOT, wait_for

PAGE = ROOT / "contrib/docs/tutorial.md"
STEPS = [
    block for language in ("python", "toml", "sh", "console", "text") for block in blocks(language, PAGE.name)
]


class Reader:
    """A person with two terminals and a folder; the first one runs the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if "PYWORKERS" not in name}
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment |= {"PATH": programs, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"}
        self.server: subprocess.Popen[bytes] | None = None
        self.log = folder / "log"
        self._seen = 0

    def write(self, block: Block) -> None:
        """Write the file that the first line of the block names."""
        name = block.code.partition("\n")[0].removeprefix("# ")
        (self.folder / name).write_text(block.code)

    def follow(self, command: str) -> None:
        """Do what a line of a block says."""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif command == "pyworkers run":
            self.start(["pyworkers", "run"])
            self.expect("server.started")
        elif command == "kill -HUP PID":
            self.reload()
        else:
            raise AssertionError(f"the test does not know this step: {command}")

    def start(self, command: list[str], **environment: str) -> None:
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(
                command, cwd=self.folder, env=self.environment | environment, stdout=log, stderr=log
            )

    def signal(self, number: int) -> None:
        assert self.server is not None
        self.server.send_signal(number)

    def reload(self) -> None:
        """Load the new code, and wait for the end of the last worker that has the old one."""
        assert self.server is not None
        old = [worker for child in children(self.server.pid) for worker in children(child)]
        self.signal(signal.SIGHUP)
        self.expect("reload.done")
        wait_for(lambda: not any(map(process_alive, old)), PATIENCE_S, "the end of the old workers")

    def stop(self, number: int) -> int:
        self.signal(number)
        assert self.server is not None
        return self.server.wait(PATIENCE_S)

    def expect(self, line: str) -> None:
        """Wait until the server has printed the line, after what was expected before."""
        wait_for(lambda: self._find(line), PATIENCE_S, line)

    def _find(self, line: str) -> bool:
        found = self.log.read_text().find(line, self._seen)
        self._seen = max(self._seen, found + len(line) if found >= 0 else 0)
        return found >= 0

    def type(self, command: str) -> str:
        """Run a command in the second terminal, until it succeeds; return its output."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reading = Reader(tmp_path)
    yield reading
    if reading.server is not None and reading.server.poll() is None:
        reading.server.kill()
        reading.server.wait()


def section(title: str) -> list[Block]:
    """The blocks below a heading, in their order."""
    lines = PAGE.read_text().splitlines()
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("## ") and title in line)
    after = (number for number, line in enumerate(lines, 1) if line.startswith("## ") and number > first)
    last = next(after, len(lines))
    return sorted((block for block in STEPS if first < block.line < last), key=lambda block: block.line)


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console, and the lines below it."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, *output = part.splitlines()
        yield command, output


def matches(output: str, expected: list[str]) -> bool:
    """Whether each expected line is found; a line of ``…`` alone is any output."""
    patterns = [".*".join(map(re.escape, line.strip("…").split("…"))) for line in expected]
    return all(re.search(pattern, output) for pattern in patterns)


def do(reader: Reader, block: Block) -> None:
    """One step of the page."""
    if block.language in ("python", "toml"):
        reader.write(block)
    elif block.language == "sh":
        for line in block.code.splitlines():
            reader.follow(line)
    elif block.language == "text":
        for line in block.code.splitlines():
            reader.expect(line)
    else:
        for command, expected in commands(block):
            # What a command shows may need a moment: a job fails, and then it is in the list.
            wait_for(lambda c=command, e=expected: matches(reader.type(c), e), PATIENCE_S, command)  # type: ignore[misc]


def test_the_steps_of_the_page_work(reader: Reader) -> None:
    for title in ("2. ", "3. ", "4. ", "5. ", "6. ", "7. ", "8. "):
        for block in section(title):
            do(reader, block)
    assert reader.stop(signal.SIGINT) == 0


def test_what_is_installed_exists() -> None:
    [block] = section("1. Install")
    extras = re.search(r"pyworkers-server\[(\w+)\]", block.code)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["metadata"]["name"] == "pyworkers-server"
    assert extras and extras[1] in setup["options.extras_require"]


@contextmanager
def notified(folder: Path) -> Iterator[socket.socket]:
    """The socket on which systemd waits for READY=1."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waiting:
        waiting.bind(str(folder / "notify"))
        waiting.settimeout(PATIENCE_S)
        yield waiting


def following(waiting: socket.socket) -> int:
    """The process that systemd is to follow from now on."""
    while not (message := waiting.recv(1000)).startswith(b"MAINPID="):
        pass
    return int(message.removeprefix(b"MAINPID="))


def test_the_unit_starts_reloads_and_stops_the_server(
    reader: Reader, one_redis_url: str, namespace: str, tmp_path: Path
) -> None:
    for block in section("7. "):
        if block.language == "python":
            reader.write(block)
    for block in section("2. "):
        if block.language == "toml":
            reader.write(block)
    [ini] = blocks("ini", PAGE.name)
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(ini.code.replace("/srv/shop/.venv/bin/", "").replace("/srv/shop", str(tmp_path)))
    service = unit["Service"]
    reader.environment |= {"REDIS_URL": one_redis_url, "PYWORKERS_REDIS__NAMESPACE": namespace}
    name, _, value = service["Environment"].partition("=")
    reader.environment[name] = value
    assert "tasks:worker: imported" in reader.type("pyworkers check || true")
    with notified(tmp_path) as waiting:
        reader.start(shlex.split(service["ExecStart"]), NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert service["Type"] == "notify"
        assert b"READY=1" in waiting.recv(1000)
        assert reader.server is not None
        pid = str(reader.server.pid)
        subprocess.run(shlex.split(service["ExecReload"].replace("$MAINPID", pid)), check=True)
        new = following(waiting)
    try:
        assert reader.server.wait(PATIENCE_S) == 0
    finally:
        os.kill(new, signal.SIGTERM)
    wait_for(lambda: not process_alive(new), PATIENCE_S, "the end of the new server")


def test_the_container_starts_the_same_command() -> None:
    [block] = blocks("dockerfile", PAGE.name)
    assert 'CMD ["pyworkers", "run"]' in block.code
    assert "\nUSER shop\n" in block.code
