# SPDX-License-Identifier: Apache-2.0

"""The REST client that both command lines use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from laas_service.client.rest import Rest


class Pages:
    """A service below the path of a proxy, with one item a page."""

    def __init__(self, items):
        self.asked = []
        self._items = items

    def request(self, path, method, params, **_):
        self.asked.append(path)
        number = int(params.get("marker", 0))
        more = f"http://inside:8780/laas{path}?state={params['state']}&marker={number + 1}"
        page: dict[str, Any] = {"things": [self._items[number]], "next": more}
        if number + 1 == len(self._items):
            page["next"] = None
        return SimpleNamespace(status_code=200, json=lambda: page)


def test_further_pages_are_asked_where_the_first_one_was():
    """The client ignores the host in ``next`` links and repeats the filters."""
    pages: Any = Pages(["a", "b", "c"])
    assert list(Rest(pages).listed("/v1/things", "things", state="active")) == ["a", "b", "c"]
    assert pages.asked == ["/v1/things"] * 3
