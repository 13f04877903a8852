# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


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

from laas_service import messages
from laas_service.domain.errors import InvalidInput, LaasError

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
        raise InvalidInput(  # the value has the password in it
            "[DEFAULT] transport_url", "***", "give rabbit://USER:PASSWORD@HOST:PORT/VHOST"
        ) from error


class Bus:
    """One way to the broker, for all who send and listen in this process."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def waker(self) -> Waker:
        """Wakes the workers elsewhere."""
        return Waker(oslo_messaging.get_rpc_client(self._transport, WAKE, retry=RETRIES))

    def listener(self, wake: Callable[[], None]) -> Listener:
        """Calls ``wake`` when somebody wakes the workers."""
        target = oslo_messaging.Target(topic=TOPIC, server=socket.gethostname())
        return Listener(
            oslo_messaging.get_rpc_server(
                self._transport,
                target,
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
    """Listens from the moment the broker answers, and again after each time it was away."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._listening = threading.Event()

    def start(self) -> None:
        """Returns at once."""
        threading.Thread(target=self._start, name="laas-listener", daemon=True).start()

    def stop(self, timeout: float) -> None:
        """End; waits up to ``timeout`` seconds for the broker to hear of it."""
        if self._listening.is_set():
            thread = threading.Thread(target=self._server.stop, name="laas-deaf", daemon=True)
            thread.start()
            thread.join(timeout)

    def _start(self) -> None:
        try:
            self._server.start()  # waits for the broker for as long as it takes
        except Exception:
            LOG.exception("nobody can wake this worker; it finds its work by polling")
        else:
            self._listening.set()
            LOG.info("Listening on the bus")


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
