# SPDX-License-Identifier: Apache-2.0

"""Log lines without control characters, whoever sent the text that is in them."""

from __future__ import annotations

import copy
import logging
from typing import Any

from laas_service.domain.wording import printable


class PrintableFormatter(logging.Formatter):
    """Formats as ``inner`` does, with every character that is not printable as an escape.

    Requests, agents, switches and the services that this one calls choose parts of the text. So a
    message is one line, and so is the text of an error. Each line of a traceback stays a line.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self.inner = inner

    def format(self, record: logging.LogRecord) -> str:
        record = copy.copy(record)
        record.msg, record.args = printable(_message(record)), ()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            error = _printable_error(error, {})
            record.exc_info = (type(error), error, record.exc_info[2])
            record.exc_text = None
        text = "\n".join(map(printable, self.inner.format(record).split("\n")))
        if color := str(getattr(record, "color", "")):  # of the terminal, from the handler
            text = text.replace(printable(color), color)
        return text


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a wrong call must not lose the line
        return f"{record.msg} {record.args!r} ({error})"


def _printable_error(error: BaseException, done: dict[int, BaseException]) -> BaseException:
    """The error, or one of the same name, traceback and causes with a printable text."""
    if id(error) in done:
        return done[id(error)]
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    text = printable(_text(error))
    shown: Any = type(kind.__name__, (Exception,), {**names, "__str__": lambda self: text})()
    done[id(error)] = shown
    shown.__traceback__ = error.__traceback__
    if error.__cause__ is not None:
        shown.__cause__ = _printable_error(error.__cause__, done)
    if error.__context__ is not None:
        shown.__context__ = _printable_error(error.__context__, done)
    shown.__suppress_context__ = error.__suppress_context__
    if notes := getattr(error, "__notes__", None):
        shown.__notes__ = [printable(str(note)) for note in notes]
    return done[id(error)]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:
        return f"<no text: {type(failure).__name__}>"


def make_printable() -> None:
    """Make all handlers of the process write printable lines; safe to repeat."""
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    for logger in [logging.root, *loggers]:
        for handler in logger.handlers:
            inner = handler.formatter or logging.Formatter()
            if not isinstance(inner, PrintableFormatter):
                handler.setFormatter(PrintableFormatter(inner))
