# SPDX-License-Identifier: Apache-2.0

"""The REST client that both command lines use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure

from laas_service.client.rest import Interrupted, Refused, Rest


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


@pytest.mark.parametrize(
    ("page", "chosen"),
    [
        ({"fabrics": [{"id": "a"}, {"id": "b"}], "default": "b"}, "b"),
        ({"fabrics": [{"id": "a"}], "default": "a"}, "a"),
        ({"fabrics": [{"id": "a"}]}, "a"),  # from a release that tells no default
        ({"fabrics": [{"id": "a"}, {"id": "b"}], "default": None}, None),
        ({"fabrics": [{"id": "a"}, {"id": "b"}]}, None),
        ({"fabrics": [], "default": None}, None),
    ],
)
def test_without_a_name_the_services_default_is_meant(page, chosen):
    service: Any = SimpleNamespace(
        request=lambda *_, **__: SimpleNamespace(status_code=200, json=lambda: page)
    )
    assert Rest(service).fabric("other/one") == "/v1/fabrics/other%2Fone"
    if chosen is not None:
        assert Rest(service).fabric(None) == f"/v1/fabrics/{chosen}"
    else:
        known = ", ".join(fabric["id"] for fabric in page["fabrics"]) or "none"
        with pytest.raises(Refused, match=f"^name one of these with --fabric: {known}$"):
            Rest(service).fabric(None)


IDS = ("6f9619ff-8b86-d011", "6f9619ff-9000-0000", "11111111-8b86-d011")


class Allocations:
    """Live allocations without names; knows no other."""

    def request(self, path, method, **_):
        known = path.rpartition("/")[2]
        if known in IDS:
            return SimpleNamespace(status_code=200, json=lambda: {"id": known})
        if known != "allocations":
            problem = {"detail": f"no {known}", "code": "not_found"}
            return SimpleNamespace(status_code=404, json=lambda: problem)
        listed = [{"id": id, "name": "x", "fabric": "main"} for id in IDS]
        return SimpleNamespace(status_code=200, json=lambda: {"allocations": listed, "next": None})


@pytest.mark.parametrize("named", [IDS[2], "11111111", "11111111-8b"])
def test_the_first_characters_of_an_id_will_do(named):
    service: Any = Allocations()
    assert Rest(service).allocation(named)["id"] == IDS[2]


@pytest.mark.parametrize("named", ["6f9619ff", "6f9619ff-", "1111111", "x"])
def test_an_ambiguous_or_too_short_id_is_not_guessed(named):
    service: Any = Allocations()
    with pytest.raises(Refused):
        Rest(service).allocation(named)


class Failing:
    def __init__(self, error):
        self._error = error

    def request(self, *args, **_):
        raise self._error


def test_the_cause_is_one_short_text():
    """The operating system's words, in place of those of requests, urllib3 and http.client."""
    error = ConnectFailure(
        "Unable to establish connection to http://x:1/v1: HTTPConnectionPool(..)"
    )
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    service: Any = Failing(error)
    with pytest.raises(Refused, match=r"^cannot reach the service: http://x:1/v1: Connection refu"):
        Rest(service).get("/v1")


@pytest.mark.parametrize(("method", "kind"), [("POST", Interrupted), ("GET", KeyboardInterrupt)])
def test_an_interrupted_change_may_be_carried_out(method, kind):
    service: Any = Failing(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as stopped:
        Rest(service).call(method, "/v1/allocations")
    assert type(stopped.value) is kind
