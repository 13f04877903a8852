# SPDX-License-Identifier: Apache-2.0

"""The address that a request came from: of its connection, or as a trusted proxy gives it."""

import ipaddress
from collections.abc import Sequence
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from laas_service.domain.errors import InvalidInput

CLIENT = "laas.client"
"""The key of the client's address in the WSGI environment."""


class Proxies:
    """Records the client's address before another middleware reads what proxies say.

    ``trusted`` are addresses and networks of proxies.

    Raises:
        InvalidInput: one of them is no address and no network.
    """

    def __init__(self, app: WSGIApplication, trusted: Sequence[str]) -> None:
        self._app = app
        self._networks = [_network(text) for text in trusted]

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        environ[CLIENT] = self._client(environ)
        return self._app(environ, start_response)

    def _client(self, environ: WSGIEnvironment) -> str:
        """The last address that is not a proxy's; a client can forge all before it."""
        client: str = environ.get("REMOTE_ADDR", "")
        for text in reversed(_forwarded_for(environ)):
            if not self._trusts(client):
                break
            client = text
        return client

    def _trusts(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidInput("[api] trusted_proxies", text, f"give an address: {error}") from error


def _forwarded_for(environ: WSGIEnvironment) -> list[str]:
    """The valid addresses that the proxies' headers give, the nearest one last."""
    if "HTTP_FORWARDED" in environ:
        pairs = environ["HTTP_FORWARDED"].replace(",", ";").split(";")
        parts = [pair.partition("=") for pair in pairs]
        texts = [value for name, _, value in parts if name.strip().lower() == "for"]
    else:
        texts = environ.get("HTTP_X_FORWARDED_FOR", "").split(",")
    addresses = []
    for text in texts:
        try:
            addresses.append(str(ipaddress.ip_address(text.strip().strip('"[]'))))
        except ValueError:
            addresses = []  # a name or a port: nothing before it is known to be true
    return addresses
