# SPDX-License-Identifier: Apache-2.0

"""A fabric imported from UFM is the one that a dump of the same cabling gives."""

from __future__ import annotations

import pytest

from laas_service.adapters.fabric_import import ibnetdiscover
from laas_service.adapters.fabric_import.fabric_file import parse_fabric
from laas_service.adapters.fabric_import.generator import Description, generate
from laas_service.adapters.ufm.cabling import dump
from laas_service.adapters.ufm.rest import UfmRest
from laas_service.cmd.manage import main
from laas_service.domain.errors import Unavailable
from tests.functional.test_ufm import OPTIONS, parts
from tests.shared import SHARED, needs_shared
from tests.ufm.cabling import Fabric
from tests.ufm.manager import settings
from tests.ufm.server import standing_in
from tests.ufm.state import Ufm


def imported(text, tmp_path):
    """The dump that is made of a UFM's answers about the cabling of this dump."""
    with standing_in(Ufm(Fabric(ibnetdiscover.parse(text)))) as site:
        return dump(UfmRest(settings(site, tmp_path, timeout=120)))


def the_same(text, tmp_path, **options):
    expected = parse_fabric(text, "fabric", **options)
    found = parse_fabric(imported(text, tmp_path), "fabric", **options)
    assert found.topology == expected.topology
    assert found.inventory == expected.inventory
    assert [*found.lines()] == [*expected.lines()]


@pytest.mark.parametrize(
    "description",
    [
        Description(xgft="2;4,4;1,8"),
        Description(xgft="3;3,2,2;1,3,2", subnet_managers=1, storage_hosts=1, odd_names=True),
        Description(
            xgft="3;4,3,16;1,4,3",
            rails=8,
            wiring="plane",
            subnet_managers=1,
            aggregation_nodes=True,
        ),
    ],
    ids=["two levels", "odd names", "rails"],
)
def test_generated_fabrics(tmp_path, description):
    the_same(ibnetdiscover.render(generate(description).inventory), tmp_path)


@needs_shared
@pytest.mark.parametrize("name", ["lab4sw-2023", "dgx-ndr-2025", "lassen-edr-2019"])
def test_real_fabrics(tmp_path, name):
    path = SHARED / "fabrics" / f"{name}.ibnetdiscover.txt"
    the_same(path.read_text(), tmp_path, accept_no_fat_tree=True)


def test_the_command_records_it(tmp_path, capsys):
    text = ibnetdiscover.render(generate(Description(xgft="2;4,4;1,8")).inventory)
    with standing_in(Ufm(Fabric(ibnetdiscover.parse(text)))) as site:
        settings(site, tmp_path)
        service = parts(tmp_path, OPTIONS.format(url=site.url, fabric="main", path=tmp_path))
        service.database.upgrade()
        given = ["--config-file", str(tmp_path / "laas.conf"), "fabric", "import", "ufm:"]
        assert main(given) == 0
    assert "recorded as main" in capsys.readouterr().out
    assert service.store.fabrics.get("main").inventory == parse_fabric(text, "fabric").inventory


def test_an_answer_of_another_form_is_refused(tmp_path, monkeypatch):
    text = ibnetdiscover.render(generate(Description(xgft="2;2,2;1,2")).inventory)
    fabric = Fabric(ibnetdiscover.parse(text))
    with standing_in(Ufm(fabric)) as site:
        rest = UfmRest(settings(site, tmp_path))
        answers: tuple[object, ...] = ([{"guid": "x"}], [1], {})
        for answer in answers:
            monkeypatch.setattr(fabric, "systems", lambda kind, answer=answer: answer)
            with pytest.raises(Unavailable, match="unknown form"):
                dump(rest)
