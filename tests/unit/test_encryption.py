"""Encrypted arguments: sealed by the newest key, opened by any, tied to one job; nothing shows them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers import BadArgumentError, Client, EncryptionKeyError, Kill, Worker
from pyworkers.api.record import JobRecord
from pyworkers.config.cron_entries import check_entry
from pyworkers.encryption import Encryption, hand_over, read_keys
from pyworkers.errors import ConfigError, MissingExtraError
from pyworkers.protocol import cron, envelope
from pyworkers.protocol.call import RESULT
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import JobDraft, PushedJob, Writing, draft
from pyworkers.protocol.message import Message, current_message
from pyworkers.protocol.outcome import Fate
from pyworkers.protocol.sealing import Keyring, parse_keys
from pyworkers.testing import EnqueuedJob, fake, inline, run

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
JID, CLASS = "0123456789abcdef01234567", "pay"
SECRET = "4111-1111-1111-1111"


def as_text(key: bytes) -> str:
    return base64.b64encode(key).decode()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# the newest first\n\n{as_text(NEW)}\n{as_text(OLD)}\n")
    return path


@given(
    st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text()))), st.text()
)
def test_sealed_arguments_open_again(args: list[Any], jid: str) -> None:
    ring = Keyring([NEW])
    sealed = ring.seal(envelope.encode(args), jid, CLASS)
    assert ring.open([sealed], jid, CLASS) == args
    assert sealed != ring.seal(envelope.encode(args), jid, CLASS)


def test_the_newest_key_seals_and_older_ones_open() -> None:
    old, both = Keyring([OLD]), Keyring([NEW, OLD])
    before, after = old.seal("[1]", JID, CLASS), both.seal("[2]", JID, CLASS)
    assert (both.open([before], JID, CLASS), both.open([after], JID, CLASS)) == ([1], [2])
    with pytest.raises(
        EncryptionKeyError, match=r"the arguments need the key [0-9a-f]+; there are: [0-9a-f]+$"
    ):
        old.open([after], JID, CLASS)


@pytest.mark.parametrize(
    ("jid", "job_class"), [("other", CLASS), (JID, "other"), (JID + CLASS[0], CLASS[1:])]
)
def test_sealed_arguments_open_in_their_own_job_alone(jid: str, job_class: str) -> None:
    ring = Keyring([NEW])
    with pytest.raises(EncryptionKeyError, match="the arguments were changed, or belong to a job of another"):
        ring.open([ring.seal("[1]", JID, CLASS)], jid, job_class)


@pytest.mark.parametrize(
    "args", [[], [1], [1, 2], [None], ["no base64"], [""], ["AQ=="], ["Ag" + "A" * 60], [["x"]], {}]
)
def test_garbage_is_refused(args: Any) -> None:
    with pytest.raises(EncryptionKeyError, match="marked as encrypted, but its arguments are not sealed"):
        Keyring([NEW]).open(args, JID, CLASS)


@pytest.mark.fault("P8")
def test_no_changed_byte_passes() -> None:
    ring = Keyring([NEW])
    packed = base64.b64decode(ring.seal('["x"]', JID, CLASS))
    for place in range(len(packed)):
        changed = packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :]
        with pytest.raises(EncryptionKeyError):
            ring.open([base64.b64encode(changed).decode()], JID, CLASS)


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", "", "no key in it: make a key with: openssl rand -base64 32"),
        ("# nothing\n\n", "", "no key in it"),
        (f"{as_text(NEW)}\nno key!\n", ":2", "not base64"),
        (f"# one\n{as_text(NEW[:16])}\n", ":2", "a key of 16 bytes, not 32"),
        ("AAAA AAAA", ":1", "not base64"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(tmp_path: Path, text: str, line: str, reason: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError) as failed:
        read_keys(path)
    assert str(failed.value).startswith(f"{path}{line}: encryption keys: {reason}")
    assert as_text(NEW)[:8] not in str(failed.value)
    assert failed.value.exit_code == 2


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: encryption keys: cannot be read: No such file"):
        read_keys(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text"):
        read_keys(tmp_path / "binary")


def test_keys_are_read_from_a_file_in_either_alphabet() -> None:
    key = b"\xff" * 32
    assert parse_keys(f"{base64.urlsafe_b64encode(key).decode()}\r\n  {as_text(OLD)}  \n") == [key, OLD]


@pytest.mark.parametrize("key", [b"short", "short", as_text(OLD)[:-4], 7, b"\xff" * 33])
def test_an_invalid_key_in_a_list_is_refused(key: Any) -> None:
    with pytest.raises(ConfigError, match=r"^encryption\[1\]: "):
        Worker(encryption=[NEW, key])
    with pytest.raises(ConfigError, match="no key in the list"):
        Client(encryption=[])


def opens(encryption: Encryption, key: bytes) -> bool:
    sealed = encryption.seal("[1]", JID, CLASS)
    try:
        return Keyring([key]).open([sealed], JID, CLASS) == [1]
    except EncryptionKeyError:
        return False


def test_where_the_keys_come_from(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYWORKERS_CONFIG", raising=False)
    monkeypatch.delenv("PYWORKERS_ENCRYPTION__KEYS", raising=False)
    with pytest.raises(
        EncryptionKeyError, match=r"encrypt=True, but there are no keys\nname a file with keys"
    ):
        Encryption().seal("[1]", JID, CLASS)
    old_file = tmp_path / "old"
    old_file.write_text(as_text(OLD))
    config = tmp_path / "workers.toml"
    config.write_text(f'[encryption]\nkeys = "{old_file}"\n')
    assert opens(Encryption(config=config), OLD)
    monkeypatch.setenv("PYWORKERS_CONFIG", str(config))
    assert opens(Encryption(), OLD)
    monkeypatch.setenv("PYWORKERS_ENCRYPTION__KEYS", str(key_file))
    assert opens(Encryption(config=config), NEW)
    before = hand_over(lambda: Keyring([OLD]))
    try:
        assert opens(Encryption(), OLD)
        assert opens(Encryption(str(key_file)), NEW)
        assert opens(Encryption([as_text(NEW)]), NEW)
    finally:
        hand_over(before)


def test_without_the_extra_an_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pyworkers-server\[crypto\]'"):
        Keyring([NEW])


# --- jobs ---------------------------------------------------------------------------------------------------


def an_app() -> tuple[Worker, list[Any]]:
    worker, seen = Worker(encryption=[NEW, OLD]), list[Any]()

    @worker.middleware
    def look(message: Message, call_next: Callable[[Message], Any]) -> Any:
        seen.append(("link", message.args))
        return call_next(message)

    @worker.job(encrypt=True)
    def pay(card: str, amount: int = 0) -> None:
        seen.append(("pay", card, amount, current_message().args, current_message().data["args"]))

    return worker, seen


def test_the_envelope_holds_the_sealed_text_and_the_job_gets_its_arguments() -> None:
    worker, seen = an_app()
    with fake() as queue:
        jid = worker.enqueue("default", "pay", [SECRET, 3])
        (job,) = queue.jobs
        assert job.data["encrypted"] is True
        assert "encrypt" not in job.data
        (sealed,) = job.data["args"]
        assert SECRET.encode() not in job.raw
        assert Keyring([NEW]).open([sealed], jid, "pay") == [SECRET, 3] == job.args
        queue.assert_enqueued("pay", SECRET, 3)
        queue.drain()
    assert seen == [("link", [SECRET, 3]), ("pay", SECRET, 3, [SECRET, 3], [sealed])]


def test_every_way_to_enqueue_encrypts() -> None:
    worker, _ = an_app()
    pay = worker.job(name="other")(lambda *args: None)
    client = Client(encryption=[NEW])
    with fake() as queue:
        pay.options(encrypt=True).enqueue(SECRET)
        pay.options(encrypt=True).enqueue_in(60, SECRET)
        pay.options(encrypt=True).enqueue_bulk([(SECRET,), (SECRET, 1)])
        worker.enqueue_bulk("default", "pay", [[SECRET]])
        Client.of(worker).enqueue("default", "pay", [SECRET], unique_for=60)
        client.enqueue("default", "pay", [SECRET], encrypt=True, jid="mine")
        jobs = [job.data for job in queue.jobs]
    ring = Keyring([NEW])
    opened = [ring.open(job["args"], job["jid"], job["class"]) for job in jobs]
    assert opened == [[SECRET], [SECRET], [SECRET], [SECRET, 1], [SECRET], [SECRET], [SECRET]]
    assert all(job["encrypted"] is True for job in jobs)


def test_an_option_overrides_the_declaration() -> None:
    worker, _ = an_app()
    with fake() as queue:
        worker.enqueue("default", "pay", ["shown"], encrypt=False)
        assert "encrypted" not in queue.jobs[0].data
        assert queue.jobs[0].data["args"] == ["shown"]
    with pytest.raises(BadArgumentError, match="encrypt must be True or False"):
        Client().enqueue("q", "A", encrypt="yes")  # type: ignore[arg-type]
    with pytest.raises(BadArgumentError, match=r"extra\['encrypted'\]"):
        Client().enqueue("q", "A", extra={"encrypted": True})


def test_a_link_of_a_client_may_encrypt_and_sees_the_arguments() -> None:
    seen = list[Any]()

    def seal(draft: JobDraft, call_next: Callable[[JobDraft], str]) -> str:
        seen.append(draft.args)
        return call_next(draft.with_options(encrypt=True).replace(job_class="renamed"))

    with fake() as queue:
        Client(encryption=[OLD], middleware=[seal]).enqueue("q", "A", [SECRET])
        (job,) = queue.jobs
        assert Keyring([OLD]).open(job.data["args"], job.jid, "renamed") == [SECRET]
    assert seen == [[SECRET]]


def test_tests_need_no_keys() -> None:
    worker, seen = Worker(), list[Any]()

    @worker.job(encrypt=True, unique_for=60)
    async def pay(card: str) -> None:
        seen.append(card)

    with fake() as queue:
        assert pay.enqueue(SECRET) == pay.enqueue(SECRET)
        queue.assert_enqueued(pay, SECRET)
        queue.drain()
    with inline():
        pay.enqueue(SECRET)
    assert seen == [SECRET, SECRET]


def test_an_invalid_argument_is_refused_before_it_is_sealed() -> None:
    worker, _ = an_app()
    for value, reason in (
        (object(), "of type object"),
        (float("nan"), "is nan"),
        ("\ud800", "lone surrogate"),
    ):
        with fake() as queue, pytest.raises(BadArgumentError, match=reason):
            worker.enqueue("default", "pay", [value])
        assert queue.jobs == []


def test_members_and_callbacks_of_a_batch_are_encrypted() -> None:
    worker, seen = an_app()

    @worker.job(encrypt=True)
    def finish(batch_id: str, card: str) -> None:
        seen.append((batch_id, card))

    pay = worker.job(name="other", encrypt=True)(lambda card: seen.append(card))
    with fake() as queue:
        with worker.batch("payments", on_success=finish.call(card=SECRET)) as batch:  # type: ignore[call-arg]
            pay.enqueue(SECRET)
        queue.drain()
        assert [SECRET.encode() in job.raw for job in queue.ran] == [False, False]
    assert seen[1::2] == [SECRET, (batch.id, SECRET)]
    with pytest.raises(BadArgumentError, match="other is encrypted: Redis cannot write a result"):
        pay.call(RESULT)


# --- failures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, [OLD]])
def test_a_job_without_its_key_is_retried_as_it_is(
    keys: list[bytes] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, seen = an_app()
    consumer = Worker(encryption=keys)
    consumer.job(name="pay", retry=3)(lambda *args: seen.append(args))
    with fake() as queue:
        producer.enqueue("default", "pay", [SECRET], retry=3)
        (job,) = queue.jobs
    with pytest.raises(EncryptionKeyError):
        run(job, consumer)
    assert seen == []
    assert job.outcome is not None and job.outcome.fate is Fate.RETRY
    stored = envelope.decode(job.outcome.payload)
    assert (stored["args"], stored["encrypted"]) == (job.data["args"], True)
    assert (stored["error_class"], stored["retry_count"]) == ("EncryptionKeyError", 0)
    assert run_again(job.outcome.payload, producer, job.queue)


def run_again(payload: bytes, worker: Worker, queue: str) -> bool:
    job = EnqueuedJob.of(PushedJob(queue, payload, envelope.decode(payload)["jid"]), worker)
    return run(job, worker).fate is Fate.DONE and job.args == [SECRET]


def test_garbage_marked_as_encrypted_fails_the_run() -> None:
    worker, seen = an_app()
    raw = json.dumps({"class": "pay", "args": [SECRET], "jid": "x", "encrypted": True}).encode()
    with pytest.raises(EncryptionKeyError, match="not sealed"):
        run_again(raw, worker, "default")
    assert seen == []


def test_a_field_of_another_program_is_not_taken_for_ours() -> None:
    worker, seen = an_app()
    raw = json.dumps({"class": "pay", "args": [SECRET], "jid": "x", "encrypted": "no"}).encode()
    assert run_again(raw, worker, "default")
    assert seen[0] == ("link", [SECRET])


def test_the_error_of_a_typed_argument_does_not_quote_it() -> None:
    worker = Worker(encryption=[NEW])

    @worker.job
    def plan(days: dict[str, date]) -> None: ...

    with fake() as queue:
        Client(encryption=[NEW]).enqueue("default", "plan", [{SECRET: "x"}], encrypt=True)
        with pytest.raises(BadArgumentError) as failed:
            queue.drain(worker)
    reason = "the arguments are encrypted, so the reason is not shown"
    assert str(failed.value) == f"args[0] does not fit its type ({reason})"


def test_a_lost_job_is_opened_for_its_hooks_if_possible() -> None:
    ring = Keyring([NEW])
    data = {"class": CLASS, "jid": JID, "args": [ring.seal("[1]", JID, CLASS)], "encrypted": True}
    message = Message.parse(json.dumps(data).encode(), "q", lambda: "")
    assert Encryption([NEW]).opened_if_possible(message).args == [1]
    assert Encryption([OLD]).opened_if_possible(message) is message


# --- display and cron ---------------------------------------------------------------------------------------


def test_records_do_not_show_the_sealed_text() -> None:
    raw = json.dumps({"class": CLASS, "jid": JID, "args": ["c2VhbGVk"], "encrypted": True}).encode()
    assert JobRecord(raw).args == ["(encrypted)"]
    assert JobRecord(raw).as_dict()["args"] == ["(encrypted)"]


def test_a_run_time_entry_of_an_encrypted_job_has_no_arguments() -> None:
    worker = Worker()

    @worker.cron("@daily")
    @worker.job(encrypt=True)
    def sweep(number: int = 0) -> None: ...

    fired = envelope.decode(cron.job_of(worker.cron_entries[0], 0, 1.0, JID).payload)
    assert fired["args"] == []
    assert "encrypted" not in fired and "encrypt" not in fired
    worker.cron("@daily", name="with", args=[7])(sweep)
    assert worker.cron_entries[1].args == (7,)
    entry = CronEntry("x", "@daily", "q", "A", (7,), options={"encrypt": True}, origin="run time")
    with pytest.raises(ValueError, match="cannot be encrypted"):
        check_entry(entry)


PROGRAM = """
import sys
from pyworkers import Worker, Client
from pyworkers.testing import inline
worker = Worker()
@worker.job
def plain(a): ...
with inline():
    plain.enqueue(1)
# Not the package itself, which redis-py imports, too.
print("cryptography.hazmat.primitives.ciphers.aead" in sys.modules)
"""


def test_a_program_without_encrypted_jobs_never_imports_cryptography() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_key_of_a_unique_encrypted_job_needs_the_newest_key() -> None:
    one, other = Encryption([NEW, OLD]), Encryption([OLD])

    def key_by(encryption: Encryption | None) -> str:
        options = {"unique_for": 60, "encrypt": encryption is not None}
        made = draft("q", "Add", None, options, None, Writing(encryption=encryption)).job([7], 0.0)
        found: str = json.loads(made.payload)["unique_key"]
        return found

    assert key_by(one) == key_by(one)
    assert len({key_by(one), key_by(other), key_by(None)}) == 3


@pytest.mark.parametrize("given", [True, False, None])
def test_what_sidekiq_enterprise_has_encrypted_is_dead_with_the_reason(given: object) -> None:
    worker, seen = an_app()
    about = {"class": "pay", "queue": "default", "jid": "a", "args": [7, "cipher"], "encrypt": given}
    job = EnqueuedJob.of(PushedJob("default", envelope.encode(about).encode(), "a"), worker)
    if not given:
        assert run(job, worker).fate is Fate.DONE and seen
        return
    with pytest.raises(Kill, match="Sidekiq Enterprise"):
        run(job, worker)
    assert job.outcome is not None and job.outcome.fate is Fate.DEAD and not seen
    assert "Sidekiq Enterprise" in envelope.decode(job.outcome.payload)["error_message"]
