"""Misfits: tells whether a job fits this server, and whether it has failed because it does not.

Runs in the worker process, for a job whose start is to be noted, and for one that raised: a deploy may be
under way. The class of a misfit is unknown here, or its arguments do not fit the function, or are not of
the annotated types. Such a job has not run.
"""

from __future__ import annotations

import inspect
import traceback
from types import CodeType, FrameType

from pyworkers.errors import BadArgumentError, EncryptionKeyError, UnknownJobError
from pyworkers.functions import CALLS, READS, accepts, check_accepts, check_reads
from pyworkers.handler import Handler
from pyworkers.protocol.message import Message
from pyworkers.protocol.sealing import FIELD
from pyworkers.worker.steps.limits import ASKS


class FitCheck:
    """The check for the jobs of one handler, or of jobs without one."""

    def __init__(self, handler: Handler | None) -> None:
        self._known = handler is not None
        self._function = handler.function if handler else None
        self._types = handler.arguments if handler else None
        self._outer = getattr(self._function, "__code__", None)
        self._inner = getattr(inspect.unwrap(self._function), "__code__", None) if self._function else None

    def takes(self, message: Message) -> bool:
        """False if a call of the job's function with these arguments would be refused."""
        try:
            self.check(message)
        except (TypeError, BadArgumentError):
            return False
        return self._known

    def check(self, message: Message) -> None:
        """Raise TypeError or BadArgumentError if a call with these arguments would be refused."""
        if self._function is not None:
            check_accepts(self._function, message.args)
        if self._types is not None:
            check_reads(message, self._types)

    def refuses(self, message: Message, error: BaseException) -> bool:
        """True if the job has failed because it does not fit."""
        if isinstance(error, UnknownJobError):
            return not self._known
        if isinstance(error, BadArgumentError):
            # The job itself may raise one, but not while its arguments are read.
            return any(frame.f_code is READS for frame in _frames(error))
        if self._function is None or not isinstance(error, TypeError):
            return False
        return self._refuses_call(message, error)

    def lacks_key(self, message: Message, error: BaseException) -> bool:
        """True if the arguments are encrypted and cannot be opened here."""
        # A message that was opened has other arguments than its envelope.
        sealed = message.data.get(FIELD) is True and message.args is message.data.get("args")
        return sealed and isinstance(error, EncryptionKeyError)

    def _refuses_call(self, message: Message, error: TypeError) -> bool:
        """True if the function was to be called, perhaps by its decorators, and was not reached."""
        args, called, reached = message.args, False, False
        for frame in _frames(error):
            if frame.f_code is CALLS:
                # A middleware may have replaced the arguments of the message.
                called, args = True, frame.f_locals["args"]
            called = called or frame.f_code is ASKS or _runs(frame, self._outer)
            reached = reached or _runs(frame, self._inner)
        return called and not reached and not accepts(self._function, args)


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _runs(frame: FrameType, code: CodeType | None) -> bool:
    return code is not None and frame.f_code is code
