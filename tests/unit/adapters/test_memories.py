# SPDX-License-Identifier: Apache-2.0

"""Documents of memories keep the form that databases hold."""

from typing import Any

import pytest

from laas_service.adapters import memories
from laas_service.adapters.forms import Form
from laas_service.domain.compute_hosts import HostMemory, Quarantine, Trouble
from laas_service.domain.faults.counters import (
    CounterMemory,
    Data,
    Excess,
    Findings,
    Foreign,
    Growth,
    PortErrors,
    PortReading,
    PortUse,
    Rate,
    SwitchCounters,
    Traffic,
    WordCounts,
)
from laas_service.domain.faults.interpretation import UnreadSwitch
from laas_service.domain.faults.memory import (
    Alarm,
    FaultMemory,
    LinkCondition,
    LinkMemory,
    SwitchMemory,
    WithheldHost,
)
from laas_service.domain.faults.reading import (
    EndReading,
    FabricReading,
    PortState,
    UnhealthyPort,
    UnknownCable,
    UnknownSwitch,
)
from laas_service.domain.inventory import PortRef
from laas_service.domain.topology import LeafLink, SpineLink

READING = SwitchCounters(7, 1.5, {1: PortReading({"PortXmitData": 1 << 63}, 1e-9)})
COUNTERS = {"guid": 7, "at": 1.5, "ports": {"1": [{"PortXmitData": 1 << 63}, 1e-9]}}
RATES = {1: Rate(1.0, 2.0, 3.0)}

HELD: list[tuple[Form[Any], Any, Any]] = [
    (
        memories.READING,
        FabricReading(
            2.0,
            (
                EndReading(PortRef(1, 2), PortState.DOWN),
                EndReading(PortRef(1, 3), PortState.OTHER, PortRef(4, 5)),
            ),
            PortRef(6, 1),
            3,
            2,
            (UnknownSwitch(9, "new"),),
            (UnknownCable(PortRef(1, 8), PortRef(2, 8)),),
            1,
            (UnhealthyPort(PortRef(1, 9), "flapping"),),
        ),
        {
            "at": 2.0,
            "ends": [[1, 2, "down"], [1, 3, "other", 4, 5]],
            "observer": [6, 1],
            "nodes_read": 3,
            "switches_read": 2,
            "unknown_switches": [[9, "new"]],
            "unknown_cables": [[1, 8, 2, 8]],
            "ends_left_out": 1,
            "unhealthy": [[1, 9, "flapping"]],
        },
    ),
    (memories.COUNTERS, READING, COUNTERS),
    (
        memories.FAULT_MEMORY,
        FaultMemory(
            2.0,
            {LeafLink(0, 1, 2): LinkMemory(LinkCondition.FAILED, 1.0, "down", (1.0,), marked=True)},
            {255: SwitchMemory(UnreadSwitch.DEAD, 1.0)},
            {"n1": 1.0},
            frozenset({SpineLink(0, 1, 2), SpineLink(0, 0, 2)}),
            {3: WithheldHost(1.0, "gone", True)},
            frozenset({LeafLink(0, 1, 2)}),
            alarm=Alarm(2.0, "many"),
            told=("news",),
        ),
        {
            "at": 2.0,
            "links": {
                "leaf-0-1-2": {
                    "condition": "failed",
                    "since": 1.0,
                    "evidence": "down",
                    "downs": [1.0],
                    "up_since": None,
                    "switch": 0,
                    "moved": False,
                    "marked": True,
                    "standing": "new",
                }
            },
            "switches": {"0x00000000000000ff": {"state": "dead", "since": 1.0, "standing": "new"}},
            "hosts": {"n1": 1.0},
            "withheld": ["spine-0-0-2", "spine-0-1-2"],
            "withheld_hosts": {"3": [1.0, "gone", True]},
            "closed": ["leaf-0-1-2"],
            "opened": None,
            "alarm": {"at": 2.0, "text": "many", "observer": False},
            "blind_since": None,
            "blindness_accepted": False,
            "told": ["news"],
        },
    ),
    (
        memories.COUNTER_MEMORY,
        CounterMemory(
            READING,
            {1: PortUse("0x1 2", "t1")},
            {1: {"PortRcvErrors": Growth(1.0, 2, True)}},
            {1: {"PortRcvErrors": Excess(1.0, 1.0, 2.0, "many")}},
            {"t1": Traffic(WordCounts(1.0, 5), 2, second=WordCounts(1.0))},
            RATES,
        ),
        {
            "last": COUNTERS,
            "uses": {"1": ["0x1 2", "t1"]},
            "growth": {"1": {"PortRcvErrors": [1.0, 2, True]}},
            "excesses": {"1": {"PortRcvErrors": [1.0, 1.0, 2.0, "many"]}},
            "traffic": {
                "t1": {
                    "total": [1.0, 5, 0, 0, 0, 0, 0],
                    "links": 2,
                    "base": None,
                    "second": [1.0, 0, 0, 0, 0, 0, 0],
                    "previous": None,
                }
            },
            "rates": {"1": [1.0, 2.0, 3.0]},
        },
    ),
    (
        memories.FINDINGS,
        Findings(
            7,
            1.5,
            True,
            (PortErrors(PortRef(7, 1), "PortRcvErrors", 1.0, "many", "t1"),),
            (Foreign("t1", "up", 4, 3, 2, 1.0),),
            {"t1": Data(1, 2, 3, 4)},
            RATES,
        ),
        {
            "guid": 7,
            "at": 1.5,
            "leaf": True,
            "errors": [[1, "PortRcvErrors", 1.0, "many", "t1"]],
            "foreign": [["t1", "up", 4, 3, 2, 1.0]],
            "data": {"t1": [1, 2, 3, 4]},
            "rates": {"1": [1.0, 2.0, 3.0]},
        },
    ),
    (
        memories.HOST_MEMORY,
        HostMemory(
            {"n1": Trouble("down in Nova", 1.0, True)},
            {"n2": Quarantine("left", 1.0)},
            {"n3": frozenset({"b", "a"})},
            frozenset({"n2", "n1"}),
            None,
            frozenset({"n5", "n4"}),
            {"n1": "N1"},
        ),
        {
            "troubles": {"n1": ["down in Nova", 1.0, True]},
            "quarantine": {"n2": ["left", 1.0, None]},
            "servers": {"n3": ["a", "b"]},
            "not_up": ["n1", "n2"],
            "alarm": None,
            "strange": ["n4", "n5"],
            "names": {"n1": "N1"},
        },
    ),
]


@pytest.mark.parametrize(("form", "value", "document"), HELD)
def test_values_are_written_and_read_in_the_form_that_databases_hold(form, value, document):
    assert form.write(value) == document
    assert form.read(document) == value


def test_counters_without_the_readings_of_an_audit_are_read():
    form, value, document = HELD[3]
    traffic = {"t1": {"total": [1.0, 5], "links": 2, "second": [1.0]}}
    assert form.read({**document, "traffic": traffic}) == value
