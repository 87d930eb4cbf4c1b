"""Functions: which functions of an application can be declared, and how the jobs call them.

Pure; used when the application is imported, and, for each job, in the worker process.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pyworkers.errors import BadArgumentError, BadResultError, DeclarationError, place_of
from pyworkers.middleware import is_async
from pyworkers.protocol.flow.rules import KEEP_RESULT
from pyworkers.protocol.message import Keywords, Message
from pyworkers.typed.arguments import Arguments, MessageArguments, Returned
from pyworkers.typed.signatures import signature_of

NamePrefix = str | Callable[[Callable[..., Any]], str]
"""The text in front of the names of functions, or a function that returns it for one of them."""

_PLAIN = "use a plain function of the module"
_LONGEST_ANNOTATION = 100


def check_function(function: object, what: str, *, may_be_async: bool = False) -> None:
    """Raise DeclarationError unless ``function`` is a plain function, which a worker process can call."""
    if isinstance(function, type):
        raise DeclarationError(f"{what} is the class {function.__qualname__}, not a function", hint=_PLAIN)
    if isinstance(function, staticmethod | classmethod) or not callable(function):
        raise DeclarationError(f"{what} is of type {type(function).__name__}, not a function", hint=_PLAIN)
    if owner := _class_around(function):
        raise DeclarationError(
            f"{what} is a method of {owner}",
            hint="a job is called without an object: make it a function of the module",
        )
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    for call in (inner, getattr(type(inner), "__call__", None)):  # noqa: B004 - the method itself is wanted
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise DeclarationError(f"{what} is a generator function, which a call does not run", hint=_PLAIN)
    if is_async(function) and not may_be_async:
        raise DeclarationError(
            f"{what} is async, but is called where no event loop runs",
            hint="use a plain function, with asyncio.run(...) inside",
        )


def function_name(function: object, what: str) -> str:
    """The name of a function for its declaration. Raises DeclarationError if it has none."""
    name = getattr(function, "__name__", "<no name>")
    if not isinstance(name, str) or name.startswith("<"):
        raise DeclarationError(f"{what} has no name", hint='give it one: name="…"')
    return name


def job_class_of(
    function: Callable[..., Any], what: str, options: Mapping[str, Any], prefix: NamePrefix
) -> str:
    """The class of a function's jobs: the option ``name``, or the function's own name behind a prefix.

    ``prefix`` counts without the option ``name_prefix``. Raises DeclarationError.
    """
    name, own_prefix = options.get("name"), options.get("name_prefix")
    if name is None:
        name = function_name(function, what)
        before = prefix(function) if callable(prefix) else prefix
        before = before if own_prefix is None else own_prefix
        return f"{_text(before, f'the name_prefix of {what}')}{name}"
    if own_prefix is not None:
        raise DeclarationError(
            f"{what} has a name_prefix, but its name is the whole class", hint="leave one of them out"
        )
    if name == "":
        raise DeclarationError("the name of a job is empty")
    return _text(name, "the name of a job")


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise DeclarationError(f"{what} is a string, not {value!r}")
    return value


def check_takes(function: Any, what: str, *arguments: str) -> None:
    """Raise DeclarationError unless the function can be called with these arguments."""
    signature = signature_of(function)
    if signature is None:
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise DeclarationError(f"{what} must be callable with ({', '.join(arguments)}): {error}") from error


def check_client_link(link: object) -> None:
    """Raise DeclarationError for a client middleware that cannot be called around an enqueue call."""
    check_function(link, "a client middleware")
    check_takes(link, "a client middleware", "draft", "call_next")


def place(function: object) -> str:
    """``FILE:LINE`` of a function; empty for one that is not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return place_of(code.co_filename, code.co_firstlineno) if code else ""


def positional(signature: inspect.Signature, what: str) -> list[inspect.Parameter]:
    """The parameters that the envelope can fill, ``*args`` among them.

    Raises DeclarationError for a keyword-only one without a default: the envelope has no names.
    """
    kept: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                raise DeclarationError(
                    f"{what} has the keyword-only parameter {parameter.name!r} without a default",
                    hint="a job carries its arguments as a list, without names",
                )
        else:
            kept.append(parameter)
    return kept


def takes_of(function: Callable[..., object]) -> list[str | int | None] | None:
    """The parameters of a job in words, and the least and the most of its arguments; None: not known.

    A default is ``…``: its value may be a secret. The most is None for ``*args``.
    """
    if (signature := signature_of(function)) is None:
        return None
    parameters = positional(signature, "the job")
    single = [one for one in parameters if one.kind is not one.VAR_POSITIONAL]
    least = sum(one.default is one.empty for one in single)
    most = len(single) if len(single) == len(parameters) else None
    return [", ".join(map(_in_words, parameters)), least, most]


def _in_words(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    default = "" if parameter.default is parameter.empty else " = …"
    return f"{stars}{parameter.name}{_annotated(parameter.annotation)}{default}"


def _annotated(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    try:
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    except Exception:  # a class of the application's may have any __repr__
        return ""
    return f": {text if len(text) <= _LONGEST_ANNOTATION else '…'}"


def call_with_args(
    function: Callable[..., object], types: Arguments | None = None
) -> Callable[[Message], object]:
    """A function that calls the job's function with the arguments of a message."""
    if types is None:
        return lambda message: _called(function, message.args)
    return lambda message: _called(function, _typed_args(message, types))


def _called(function: Callable[..., object], args: Sequence[Any]) -> object:
    if args and args[-1].__class__ is Keywords:
        return function(*args[:-1], **args[-1])
    return function(*args)


def accepts(function: Any, args: Sequence[Any]) -> bool:
    """False if a call of the function with the arguments of a message is a TypeError."""
    try:
        check_accepts(function, args)
    except TypeError:
        return False
    return True


def check_accepts(function: Any, args: Sequence[Any]) -> None:
    """Raise TypeError if a call of the function with the arguments of a message does."""
    if (signature := signature_of(function)) is not None:
        names = args[-1] if args and args[-1].__class__ is Keywords else {}
        signature.bind(*(args[:-1] if names else args), **names)


def with_typed_result(
    run: Callable[[Message], Any], returned: Returned | None, *, is_async: bool
) -> Callable[[Message], object]:
    """The function, whose result is written as JSON by its annotation if it is kept."""
    if returned is None:
        return run
    if is_async:

        async def run_async(message: Message) -> object:
            return _kept(message, await run(message), returned)

        return run_async
    return lambda message: _kept(message, run(message), returned)


def _kept(message: Message, result: object, returned: Returned) -> object:
    if result is None or KEEP_RESULT.isdisjoint(message.data) or inspect.iscoroutine(result):
        return result
    try:
        return returned.to_json(result)
    except BadArgumentError as error:
        raise BadResultError(error.message, hint=error.hint) from None


def call_with_message(
    function: Callable[[Message[Any]], object], types: MessageArguments | None
) -> Callable[[Message], object]:
    """A function that calls a handler with a message whose ``args`` are of the annotated types."""
    if types is None:
        return function
    return lambda message: function(message.replace(args=_typed_args(message, types)))


def _typed_args(message: Message, types: Arguments | MessageArguments) -> Any:
    return types.from_json(message.args, secret=message.data.get("encrypted") is True)


def check_reads(message: Message, types: Arguments | MessageArguments) -> None:
    """Raise BadArgumentError if the arguments of a message are not of the annotated types."""
    try:
        _typed_args(message, types)
    except BadArgumentError:
        raise
    except Exception:
        # Of the application's own type. The job raises it again, and that is no misfit.
        return


CALLS, READS = _called.__code__, _typed_args.__code__
"""The code that calls the function of a job, and that reads typed arguments: a traceback shows both."""


def _class_around(function: object) -> str:
    """The class in whose body the function is defined; empty for a plain function and a bound method."""
    outer = function.__qualname__.rpartition(".")[0] if inspect.isfunction(function) else ""
    return "" if outer.endswith("<locals>") else outer
