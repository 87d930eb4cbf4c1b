"""Arguments: the codecs of a function's parameters, of what it returns, and of a handler's message.

Made at the declaration of a job; nothing is evaluated until its first use (``prepare``), because an
annotation may name a class that the module defines later. Shared by the Job, which writes, and its Handler,
which reads.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, TypeVar

from pyworkers.errors import BadArgumentError, DeclarationError
from pyworkers.protocol.call import Awaited, Placeholder
from pyworkers.protocol.message import Keywords, Message
from pyworkers.typed.annotations import (
    Unresolved,
    evaluated,
    is_frozen,
    is_typed,
    literals_of,
    may_be_typed,
)
from pyworkers.typed.codec import Codec, TypeCodec, Unchanged
from pyworkers.typed.signatures import signature_of

T = TypeVar("T")

INSTALL = "install the extra: pip install 'pyworkers-server[types]'"
"""The fix without pydantic."""
_SECRET = "the arguments are encrypted, so the reason is not shown"


class Ignored(NamedTuple):
    """An annotation that cannot be used: the parameter and the reason."""

    parameter: str
    reason: str


class _Codecs(NamedTuple):
    """By place, by name, and for each value of ``*args``; None: a value is sent as it is."""

    places: list[Codec | None]
    names: dict[str, Codec]
    rest: Codec | None


class _MadeOnce(Generic[T]):
    """What is made at its first use. Under a frozen clock, it is made each time."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: tuple[T, ...] = ()

    def get(self) -> T:
        """The value, made now if it was not."""
        if self._made:
            return self._made[0]
        value = self._make()
        if not is_frozen():
            self._made = (value,)
        return value


class Arguments:
    """The codecs of a job's parameters."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._codecs = _MadeOnce(self._made)
        self._ignored: list[Ignored] = []

    def prepare(self) -> Sequence[Ignored]:
        """Evaluate the annotations and make the codecs; returns the annotations that cannot be used."""
        self._codecs.get()
        return self._ignored

    def to_json(self, args: Sequence[Any], path: str) -> Sequence[Any]:
        """The arguments of a call as JSON values. Raises BadArgumentError, with the path of the value."""
        codecs = self._codecs.get()
        if not codecs.names:
            return args
        return [
            value
            if codec is None or isinstance(value, Awaited | Placeholder)
            else codec.to_json(value, f"{path}[{index}]")
            for index, (value, codec) in enumerate(_pairs(args, codecs))
        ]

    def from_json(self, args: Sequence[Any], *, secret: bool = False) -> Sequence[Any]:
        """The arguments of a message as values of the annotated types. Raises BadArgumentError.

        ``secret``: the error does not say why a value does not fit.
        """
        codecs = self._codecs.get()
        if not codecs.names:
            return args
        named = args[-1] if args and isinstance(args[-1], Keywords) else None
        places = args if named is None else args[:-1]
        read = [
            value if codec is None else _read(codec, value, f"args[{index}]", secret)
            for index, (value, codec) in enumerate(_pairs(places, codecs))
        ]
        if named is None:
            return read
        found = {
            name: _read(codecs.names[name], value, name, secret) if name in codecs.names else value
            for name, value in named.items()
        }
        return [*read, Keywords(found)]

    def _made(self) -> _Codecs:
        self._ignored = []
        codecs = _Codecs([], {}, None)
        signature = signature_of(self._function)
        for parameter in signature.parameters.values() if signature else ():
            codec = self._codec(parameter)
            if codec is not None:
                codecs.names[parameter.name] = codec
            if parameter.kind is parameter.VAR_POSITIONAL:
                codecs = codecs._replace(rest=codec)
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                codecs.places.append(codec)
        return codecs

    def _codec(self, parameter: inspect.Parameter) -> Codec | None:
        if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            return None
        try:
            codec = codec_of(parameter.annotation, self._function, optional=parameter.default is None)
        except Unresolved as error:
            self._ignored.append(Ignored(parameter.name, str(error)))
            return Unchanged(f"its annotation cannot be used: {error}")
        return codec


class MessageArguments:
    """The codec of ``message.args`` for a handler with the annotation ``Message[…]``.

    A list, a tuple or a named tuple takes all arguments of the job; any other type takes its only argument.
    """

    def __init__(self, function: Callable[..., object], annotation: object) -> None:
        self._function = function
        self._annotation = annotation
        self._codec = _MadeOnce(self._made)

    def prepare(self) -> Sequence[Ignored]:
        """Evaluate the annotation and make the codec. Raises DeclarationError if that is impossible."""
        self._codec.get()
        return ()

    def from_json(self, args: Sequence[Any], *, secret: bool = False) -> Any:
        """The arguments of a message as a value of the annotated type. Raises BadArgumentError."""
        codec, takes_all = self._codec.get()
        if codec is None:
            return args
        if takes_all:
            return _read(codec, list(args), "args", secret)
        if len(args) != 1:
            raise BadArgumentError(f"args has {len(args)} values; the handler takes one")
        return _read(codec, args[0], "args[0]", secret)

    def _made(self) -> tuple[TypeCodec | None, bool]:
        what = f"the handler {getattr(self._function, '__name__', self._function)!r}"
        try:
            annotation = evaluated(self._annotation, self._function)
            inner = typing.get_args(annotation)
            if typing.get_origin(annotation) is not Message or not inner:
                return None, False
            origin = typing.get_origin(inner[0]) or inner[0]
            return type_codec(inner[0]), isinstance(origin, type) and issubclass(origin, list | tuple)
        except Unresolved as error:
            hint = INSTALL if find_spec("pydantic") is None else ""
            raise DeclarationError(f"{what}: its annotation cannot be used: {error}", hint=hint) from error


class Returned:
    """The codec of what a job returns, for its stored result."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._codec = _MadeOnce(self._made)

    def to_json(self, value: Any) -> Any:
        """The value as JSON values. Raises BadArgumentError, which names the path below ``result``.

        A value of a function without a typed annotation is returned unchanged and unchecked.
        """
        codec = self._codec.get()
        return value if codec is None else codec.to_json(value, "result")

    def from_json(self, value: Any) -> Any:
        """The value that ``to_json`` was given. Raises BadArgumentError."""
        codec = self._codec.get()
        return value if codec is None else codec.from_json(value, "result")

    def _made(self) -> Codec | None:
        try:
            return codec_of(_return_annotation(self._function), self._function)
        except Unresolved as error:
            return Unchanged(f"its annotation cannot be used: {error}")


def arguments_of(function: Callable[..., object]) -> Arguments | None:
    """The codecs of a job's parameters; None if all of them are surely plain JSON types."""
    signature = signature_of(function)
    found = (one.annotation for one in signature.parameters.values()) if signature else ()
    typed = any(one is not inspect.Parameter.empty and may_be_typed(one) for one in found)
    return Arguments(function) if typed else None


def returned_of(function: Callable[..., object]) -> Returned | None:
    """The codec of what a job returns; None if it is surely of plain JSON types."""
    return Returned(function) if may_be_typed(_return_annotation(function)) else None


def message_arguments_of(function: Callable[..., object]) -> MessageArguments | None:
    """The codec of a handler's ``message.args``; None without an annotation ``Message[…]``.

    Raises DeclarationError if the extra ``types`` is not installed.
    """
    signature = signature_of(function)
    first = next(iter(signature.parameters.values()), None) if signature else None
    annotation = first.annotation if first else None
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    wanted = (
        "Message[" in annotation if isinstance(annotation, str) else typing.get_origin(annotation) is Message
    )
    if not wanted:
        return None
    if find_spec("pydantic") is None:
        raise DeclarationError(f"the annotation {annotation} needs pydantic", hint=INSTALL)
    return MessageArguments(function, annotation)


def codec_of(annotation: object, function: Callable[..., object], *, optional: bool = False) -> Codec | None:
    """The codec of an annotation of ``function``; None for plain JSON types. Raises Unresolved.

    ``optional``: None is a value, too.
    """
    if not may_be_typed(annotation):
        return None
    found = evaluated(annotation, function)
    if not is_typed(found):
        return None
    if find_spec("pydantic") is None:
        return Unchanged(INSTALL)
    return type_codec(found | None if optional else found)


def type_codec(annotation: Any) -> TypeCodec:
    """The codec of an evaluated annotation. Raises Unresolved if pydantic cannot use it."""
    try:
        codec = TypeCodec(annotation)
        for literal in literals_of(annotation):
            # pydantic makes a schema of it, and may then refuse its JSON.
            value = typing.get_args(literal)[0]
            TypeCodec(literal).from_json(TypeCodec(literal).to_json(value, "it"), "it")
        return codec
    except Exception as error:  # pydantic's, or an error of an application's hook for it
        raise Unresolved(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from error


def _return_annotation(function: Callable[..., object]) -> Any:
    """The annotation of what a function returns; None if it has none."""
    signature = signature_of(function)
    annotation = signature.return_annotation if signature else None
    return None if annotation is inspect.Signature.empty else annotation


def _pairs(args: Sequence[Any], codecs: _Codecs) -> Iterator[tuple[Any, Codec | None]]:
    known = len(codecs.places)
    return ((value, codecs.places[i] if i < known else codecs.rest) for i, value in enumerate(args))


def _read(codec: Codec, value: Any, path: str, secret: bool) -> Any:
    try:
        return codec.from_json(value, path)
    except BadArgumentError as error:
        if secret:
            raise BadArgumentError(f"{path} does not fit its type ({_SECRET})") from None
        raise error from None
