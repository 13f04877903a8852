# SPDX-License-Identifier: Apache-2.0

"""Process start-up, shared by all commands: configuration, log, memory, signals, exit status.

Commands import ``wiring``, and with it the database, Nova and OpenSM, after they have read
their command line, so that ``--help`` and a wrong option are answered at once.
"""

import ctypes
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from laas_service import background
from laas_service import conf as options
from laas_service.cmd.log_lines import make_printable
from laas_service.conf import review
from laas_service.domain.errors import LaasError
from laas_service.domain.wording import printable
from laas_service.version import VERSION

LOG = logging.getLogger(__name__)

HEAPS = 2
"""Number of heaps. Two suffice: threads spend little time in ``malloc``, and most in Python."""

_LINE = re.compile(r": ['\"].*", re.DOTALL)
"""The line at the end of a parser's error."""

_M_ARENA_MAX = -8
"""The parameter's number, in ``malloc.h`` of the GNU C library."""


def registered(switches: Sequence[Any] = ()) -> cfg.ConfigOpts:
    """A configuration that knows the service's options and the command's own ``switches``.

    It has read no file yet.
    """
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf.register_cli_opts(switches)
    return conf


def parsed(
    prog: str, args: Sequence[str] | None, switches: Sequence[Any] = (), **files: Any
) -> cfg.ConfigOpts:
    """Read the configuration that ``args`` name (None: those of the process).

    ``switches`` are the command's own options. ``files`` are ``default_config_files`` and
    ``default_config_dirs``, to be read where ``args`` name none.

    Raises:
        cfg.Error: a file or an option cannot be read.
    """
    conf = registered(switches)
    try:
        conf(args, project="laas", prog=prog, version=VERSION, **files)
    except (cfg.ConfigFileParseError, UnicodeDecodeError) as error:
        raise cfg.Error(reason(error)) from None
    return conf


def must_be_right(conf: cfg.ConfigOpts) -> None:
    """Return if no option has a value of another type. Raises: cfg.Error."""
    if wrong := review.wrong_values(conf):
        raise cfg.Error("; ".join(wrong))


def reason(error: Exception) -> str:
    """Why a configuration cannot be read, without the line, which may have a password."""
    if isinstance(error, UnicodeDecodeError):
        return "a configuration file is not in UTF-8"
    text = str(error)
    return _LINE.sub("", text) if isinstance(error, cfg.ConfigFileParseError) else text


def configured(
    prog: str, args: Sequence[str] | None, switches: Sequence[Any] = (), **files: Any
) -> cfg.ConfigOpts:
    """Read the configuration as ``parsed`` does, and set up the log. Raises: cfg.Error."""
    conf = parsed(prog, args, switches, **files)
    must_be_right(conf)
    set_up_log(conf, prog)
    return conf


def daemon_configured(
    prog: str, args: Sequence[str] | None, switches: Sequence[Any] = ()
) -> cfg.ConfigOpts:
    """As ``configured``, for a process that runs for months with many threads.

    It ends with status 1 and one line if a file or an option cannot be read.
    """
    try:
        conf = parsed(prog, args, switches)
        must_be_right(conf)
    except cfg.Error as error:
        sys.exit(f"{prog}: {error}")
    import_module(
        "laas_service.adapters.messaging"
    )  # chooses native threads before libraries look for others
    set_up_log(conf, prog)
    warn_of_unknown(conf, switches)
    limit_heaps()
    return conf


def set_up_log(conf: cfg.ConfigOpts, prog: str) -> None:
    """Log as ``conf`` says, in printable lines; errors that end a thread too."""
    logging.setup(conf, prog)
    make_printable()
    background.log_ends()


def warn_of_unknown(conf: cfg.ConfigOpts, switches: Sequence[Any] = ()) -> None:
    """Log a warning for each option in the files that is unknown or deprecated."""
    for text in review.remarks(conf, switches):
        LOG.warning("%s", text)


def limit_heaps() -> None:
    """Limit the heaps that all threads share to ``HEAPS``; call before the first thread starts.

    By default the GNU C library gives each thread its own heap, up to eight for each core.
    Other threads cannot use the free memory of a heap, so a process grows for days. With
    other C libraries this function does nothing.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)


def exit_status(
    prog: str, run: Callable[[], None], errors: tuple[type[Exception], ...] = (LaasError,)
) -> int:
    """Run a process; 0, or 1 after one of ``errors``, which is printed to standard error."""
    try:
        run()
    except errors as error:
        print(f"{prog}: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


def interrupt_on_sigterm() -> None:
    """Make SIGTERM raise ``KeyboardInterrupt`` in the main thread, as SIGINT does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
