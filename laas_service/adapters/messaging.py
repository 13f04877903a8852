# SPDX-License-Identifier: Apache-2.0


"""The bus, by oslo.messaging: waking the worker, and telling others what happened.

Nothing that was decided depends on it. Whoever wants to send or to listen does so from a
thread of its own, so that a broker that is dead, or silent, holds up nobody.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_service import backend
from pydantic import TypeAdapter

from laas_service import messages
from laas_service.app import notifications
from laas_service.domain.errors import InvalidInput, LaasError, Unavailable

# Native threads. Which ones is settled when oslo.messaging is imported; what it imports
# looks for eventlet, too, and complains if it is there.
backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import oslo_messaging
    from oslo_messaging import opts, transport
    from oslo_messaging._metrics import client as metrics
    from oslo_messaging._tracing import client as tracing

LOG = logging.getLogger(__name__)

RETRIES = 2
"""Of a wake-up: the first try after the broker was away finds a dead connection."""

EXCHANGE = "laas"
TOPIC = "laas-worker"
NO_ADDRESS = (oslo_messaging.InvalidTransportURL, oslo_messaging.DriverLoadFailure, ValueError)
WAKE = oslo_messaging.Target(topic=TOPIC, version="1.0", fanout=True)
"""Every worker is woken; messages for workers that do not run are not kept."""


def set_defaults() -> None:
    """No broker unless one is named; also for ``oslo-config-generator``."""
    cfg.set_defaults(transport._transport_opts, control_exchange=EXCHANGE, transport_url="fake://")


def configure(conf: cfg.ConfigOpts) -> None:
    """Make oslo.messaging's options known to ``conf``; safe to repeat."""
    set_defaults()
    for group, options in opts.list_opts():
        if group in (None, "oslo_messaging_notifications"):
            conf.register_opts(options, group=group)
    # The library registers these two with the global configuration only, yet reads ours.
    conf.register_opts(metrics.oslo_messaging_metrics, group="oslo_messaging_metrics")
    conf.register_opts(tracing.oslo_messaging_tracing, group="oslo_messaging_tracing")


def connect(conf: cfg.ConfigOpts) -> Bus | None:
    """The bus that the configuration names, None if there is none. Connects when it is used.

    Raises:
        InvalidInput: there is no such kind of bus, or the address is none.
    """
    configure(conf)
    try:
        if oslo_messaging.TransportURL.parse(conf).transport == "fake":
            return None
        return Bus(oslo_messaging.get_rpc_transport(conf))
    except NO_ADDRESS as error:
        raise _no_address("[DEFAULT] transport_url") from error


def announces(conf: cfg.ConfigOpts) -> bool:
    """Whether others are told what happens: some driver but noop is configured."""
    configure(conf)
    return bool(set(conf.oslo_messaging_notifications.driver) - {"noop"})


def publisher(conf: cfg.ConfigOpts) -> Publisher:
    """Tells others in the ways that the configuration names. Connects when it is used.

    Raises:
        InvalidInput: as ``connect``.
    """
    configure(conf)
    try:
        return Publisher(oslo_messaging.get_notification_transport(conf))
    except NO_ADDRESS as error:
        raise _no_address("[oslo_messaging_notifications] transport_url") from error


def notification_schema() -> dict[str, Any]:
    """The JSON schema of a notification's payload, as doc/source has it."""
    return TypeAdapter(messages.Notification).json_schema(mode="serialization")


def _no_address(option: str) -> InvalidInput:
    """The value is not shown, as it has the password in it."""
    return InvalidInput(option, "***", "give rabbit://USER:PASSWORD@HOST:PORT/VHOST")


class Bus:
    """One way to the broker, for all who send and listen in this process."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def waker(self) -> Waker:
        """Wakes the workers elsewhere."""
        return Waker(oslo_messaging.get_rpc_client(self._transport, WAKE, retry=RETRIES))

    def listener(self, wake: Callable[[], None]) -> Listener:
        """Calls ``wake`` when somebody wakes the workers."""
        return Listener(
            lambda: oslo_messaging.get_rpc_server(
                self._transport,
                oslo_messaging.Target(topic=TOPIC, server=socket.gethostname()),
                [_Endpoint(wake)],
                access_policy=oslo_messaging.ExplicitRPCAccessPolicy,
            )
        )


class Waker:
    """Wakes the workers. Calling it takes no time; what cannot be sent now is dropped.

    Works in every process after a fork: the thread is started by the first call.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._process: int | None = None
        self._wanted = threading.Event()

    def __call__(self) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._wanted = os.getpid(), threading.Event()
                threading.Thread(target=self._run, name="laas-waker", daemon=True).start()
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._client.cast({}, "wake", message=messages.document(messages.Wake()))
            except Exception as error:
                LOG.warning("the worker is not woken and finds its work by polling: %s", error)


class Listener:
    """Listens from the moment the broker lets it, and again after each time it was away.

    ``server`` makes what listens; ``pause`` is how many seconds lie between two tries
    where the broker refuses it (a wrong password, a missing virtual host).
    """

    def __init__(self, server: Callable[[], Any], pause: float = 10.0) -> None:
        self._make = server
        self._pause = pause
        self._server: Any = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Returns at once."""
        threading.Thread(target=self._start, name="laas-listener", daemon=True).start()

    @property
    def listening(self) -> bool:
        """Whether a wake-up would be heard from now on, as long as the broker stays."""
        return self._server is not None

    def stop(self, timeout: float) -> None:
        """End; waits up to ``timeout`` seconds for the broker to hear of it."""
        self._stopping.set()
        if self._server is not None:
            thread = threading.Thread(target=self._server.stop, name="laas-deaf", daemon=True)
            thread.start()
            thread.join(timeout)

    def _start(self) -> None:
        while not self._stopping.is_set():
            server = self._make()
            try:
                server.start()  # waits for a broker that is away for as long as it takes
            except Exception as error:
                LOG.error("nobody can wake this worker, it polls: %s", error)
                self._stopping.wait(self._pause)
            else:
                self._server = server
                LOG.info("Listening on the bus")
                return


class _Endpoint:
    """What others may call over the bus."""

    target = oslo_messaging.Target(version="1.0")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    @oslo_messaging.expose  # type: ignore[untyped-decorator]
    def wake(self, context: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        try:
            messages.read(messages.Wake, message)
        except LaasError as error:
            LOG.warning("a wake-up that this release does not understand: %s", error)
        else:
            self._wake()


class Publisher:
    """``app.ports.outbox.Publisher`` over oslo.messaging's notification drivers."""

    def __init__(self, transport: Any) -> None:
        self._transport = _Witness(transport)
        self._notifier = oslo_messaging.Notifier(
            self._transport, f"isolated_network.{socket.gethostname()}", retry=-1
        )

    def publish(self, notification: messages.Notification) -> None:
        self._transport.failure = None
        send = getattr(self._notifier, notifications.priority(notification))
        send({}, notification.event_type, messages.document(notification))
        if failure := self._transport.failure:
            raise Unavailable(f"the broker refuses notifications: {failure}")


class _Witness(oslo_messaging.transport.NotificationTransport):  # type: ignore[misc]
    """Remembers that sending failed, as the library's drivers log that and say nothing."""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport._driver)
        self.failure: Exception | None = None

    def _send_notification(self, *args: Any, **options: Any) -> None:
        try:
            super()._send_notification(*args, **options)
        except Exception as error:
            self.failure = error
            raise
