# SPDX-License-Identifier: Apache-2.0

"""Message bus with oslo.messaging: wake-ups of workers, and notifications.

No decision depends on the bus. Threads of their own send and listen, so a broker that is
dead or silent blocks no request and no step.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from oslo_config import cfg
from oslo_service import backend

from laas_service import background, messages
from laas_service.app import notifications
from laas_service.domain.errors import InvalidInput, LaasError, Unavailable


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """An import of the module fails inside the block as if it were not installed."""
    hide = module not in sys.modules
    if hide:
        sys.modules[module] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if hide:
            del sys.modules[module]


# Select native threads before the import of oslo.messaging, which fixes the choice. Its
# dependencies import eventlet if it is installed, which takes a tenth of a command's start, and
# warn of it.
backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)
with _hidden("eventlet"), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import oslo_messaging
    from oslo_messaging import opts, transport
    from oslo_messaging._metrics import client as metrics
    from oslo_messaging._tracing import client as tracing

LOG = logging.getLogger(__name__)

RETRIES = 2
"""Retries of a wake-up: the first attempt after a broker outage meets a dead connection."""

EXCHANGE = "laas"
TOPIC = "laas-worker"
BAD_ADDRESS = (oslo_messaging.InvalidTransportURL, oslo_messaging.DriverLoadFailure, ValueError)
WAKE = oslo_messaging.Target(topic=TOPIC, version="1.0", fanout=True)
"""Target of a wake-up: all running workers. The broker keeps no message for others."""


def set_defaults() -> None:
    """Make no broker the default; also called for ``oslo-config-generator``."""
    cfg.set_defaults(transport._transport_opts, control_exchange=EXCHANGE, transport_url="fake://")


def configure(conf: cfg.ConfigOpts) -> None:
    """Register oslo.messaging's options with ``conf``; safe to repeat."""
    set_defaults()
    for group, options in opts.list_opts():
        if group in (None, "oslo_messaging_notifications"):
            conf.register_opts(options, group=group)
    # The library registers these two groups with the global configuration only, but reads them
    # from ours.
    conf.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
    conf.register_opts(tracing.oslo_messaging_tracing, group="oslo_messaging_tracing")


def connect(conf: cfg.ConfigOpts) -> Bus | None:
    """The configured bus, or None. It connects at its first use.

    Raises:
        InvalidInput: the kind of bus is unknown, or the address is malformed.
    """
    configure(conf)
    try:
        if oslo_messaging.TransportURL.parse(conf).transport == "fake":
            return None
        return Bus(oslo_messaging.get_rpc_transport(conf))
    except BAD_ADDRESS as error:
        raise _bad_address("[DEFAULT] transport_url") from error


def announces(conf: cfg.ConfigOpts) -> bool:
    """Whether notifications are sent: a driver other than noop is configured."""
    configure(conf)
    return bool(set(conf.oslo_messaging_notifications.driver) - {"noop"})


def publisher(conf: cfg.ConfigOpts) -> Publisher:
    """The publisher for the configured notification drivers. It connects at its first use.

    Raises:
        InvalidInput: as ``connect``.
    """
    configure(conf)
    try:
        return Publisher(oslo_messaging.get_notification_transport(conf))
    except BAD_ADDRESS as error:
        raise _bad_address("[oslo_messaging_notifications] transport_url") from error


def _bad_address(option: str) -> InvalidInput:
    """The error for a malformed address; it hides the value, which holds the password."""
    return InvalidInput(option, "***", "give rabbit://USER:PASSWORD@HOST:PORT/VHOST")


class Bus:
    """The connection to the broker, for all senders and listeners of this process."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def waker(self) -> Waker:
        """A callable that wakes workers in other processes."""
        return Waker(oslo_messaging.get_rpc_client(self._transport, WAKE, retry=RETRIES))

    def listener(self, wake: Callable[[], None]) -> Listener:
        """A listener that calls ``wake`` at each wake-up."""
        return Listener(
            lambda: oslo_messaging.get_rpc_server(
                self._transport,
                oslo_messaging.Target(topic=TOPIC, server=socket.gethostname()),
                [_Endpoint(wake)],
                access_policy=oslo_messaging.ExplicitRPCAccessPolicy,
            )
        )


class Waker:
    """Wakes the workers. A call returns at once; a wake-up that cannot be sent is dropped.

    The first call in a process starts the sending thread, so a waker works after a fork.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._process: int | None = None
        self._requested = threading.Event()

    def __call__(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._requested = os.getpid(), threading.Event()
                background.start("laas-waker", self._run)
        self._requested.set()

    def _run(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            try:
                self._client.cast({}, "wake", message=messages.document(messages.Wake()))
            except Exception as error:
                LOG.warning("cannot wake workers, which find new work by polling: %s", error)


class Listener:
    """Listens for wake-ups as soon as the broker accepts it, and again after each outage.

    ``server`` makes the RPC server. ``pause`` is the time in seconds between two attempts
    if the broker refuses it (a wrong password, a missing virtual host).
    """

    def __init__(self, server: Callable[[], Any], pause: float = 10.0) -> None:
        self._make_server = server
        self._pause = pause
        self._server: Any = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the listening thread and return at once."""
        background.start("laas-listener", self._start, again=self._pause)

    @property
    def listening(self) -> bool:
        """Whether wake-ups arrive, as long as the broker is reachable."""
        return self._server is not None

    def stop(self, timeout: float) -> None:
        """Stop listening; waits up to ``timeout`` seconds for the connection to close."""
        self._stopping.set()
        if self._server is not None:
            background.start("laas-listener-stop", self._server.stop).join(timeout)

    def _start(self) -> None:
        while not self._stopping.is_set():
            server = self._make_server()
            try:
                server.start()  # waits until the broker is reachable
            except Exception as error:
                LOG.error("this worker cannot receive wake-ups and polls instead: %s", error)
                self._stopping.wait(self._pause)
            else:
                self._server = server
                LOG.info("Listening on the bus")
                return


class _Endpoint:
    """RPC methods that other processes may call over the bus."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    @oslo_messaging.expose  # type: ignore[untyped-decorator]
    def wake(self, context: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        try:
            messages.read(messages.Wake, message)
        except LaasError as error:
            LOG.warning("ignoring a wake-up that this release does not understand: %s", error)
        else:
            self._wake()


class Publisher:
    """``app.ports.outbox.Publisher`` with oslo.messaging's notification drivers."""

    def __init__(self, transport: Any) -> None:
        self._transport = _RecordingTransport(transport)
        self._notifier = oslo_messaging.Notifier(
            self._transport, f"isolated_network.{socket.gethostname()}", retry=-1
        )

    def publish(self, notification: messages.Notification) -> None:
        self._transport.failure = None
        send = getattr(self._notifier, notifications.priority(notification))
        send({}, notification.event_type, messages.document(notification))
        if failure := self._transport.failure:
            raise Unavailable(f"the broker refuses notifications: {failure}")


class _RecordingTransport(oslo_messaging.transport.NotificationTransport):  # type: ignore[misc]
    """Records the error of a failed send, which the library's drivers only log."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport._driver)
        self.failure: Exception | None = None

    def _send_notification(self, *args: Any, **options: Any) -> None:
        try:
            super()._send_notification(*args, **options)
        except Exception as error:
            self.failure = error
            raise
