# SPDX-License-Identifier: Apache-2.0

"""JSON documents of port counters: readings, what is remembered, and what is found."""

from collections.abc import Mapping
from typing import Any

from laas_service.domain.errors import InvalidInput
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
from laas_service.domain.inventory import PortRef

_WORDS = ("total", "base", "second", "previous")


def counters_document(reading: SwitchCounters) -> dict[str, Any]:
    """The JSON document of a reading of a switch."""
    return {
        "guid": reading.guid,
        "at": reading.at,
        "ports": {
            str(number): [dict(port.values), port.bit_error_rate]
            for number, port in reading.ports.items()
        },
    }


def counters_from(document: Mapping[str, Any]) -> SwitchCounters:
    """The reading in a document.

    Raises:
        InvalidInput: the document has another form.
    """
    try:
        return SwitchCounters(
            int(document["guid"]),
            float(document["at"]),
            {
                int(number): PortReading({str(n): int(v) for n, v in values.items()}, rate)
                for number, (values, rate) in document["ports"].items()
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput("counters", str(error), "give the document of a reading") from error


def memory_document(memory: CounterMemory) -> dict[str, Any]:
    """The JSON document of what is remembered of a switch."""
    return {
        "last": counters_document(memory.last),
        "uses": {str(number): list(use) for number, use in memory.uses.items()},
        "growth": _by_port(memory.growth),
        "excesses": _by_port(memory.excesses),
        "traffic": {
            owner: {
                "links": traffic.links,
                **{name: list(words) for name in _WORDS if (words := _get(traffic, name))},
            }
            for owner, traffic in memory.traffic.items()
        },
        "rates": _rates_document(memory.rates),
    }


def _rates_document(rates: Mapping[int, Rate]) -> dict[str, Any]:
    return {str(number): list(rate) for number, rate in rates.items()}


def _rates(document: Mapping[str, Any]) -> dict[int, Rate]:
    """The rates in a document; earlier releases wrote none."""
    return {int(number): Rate(*rate) for number, rate in document.get("rates", {}).items()}


def _get(traffic: Traffic, name: str) -> WordCounts | None:
    words: WordCounts | None = getattr(traffic, name)
    return words


def _by_port(values: Mapping[int, Mapping[str, Growth | Excess]]) -> dict[str, Any]:
    return {
        str(number): {name: list(value) for name, value in by_name.items()}
        for number, by_name in values.items()
    }


def memory_from(document: Mapping[str, Any]) -> CounterMemory:
    """What is remembered in a document.

    Raises:
        InvalidInput: the document has another form.
    """
    try:
        return CounterMemory(
            counters_from(document["last"]),
            {int(number): PortUse(*use) for number, use in document["uses"].items()},
            {
                int(number): {name: Growth(*grown) for name, grown in by_name.items()}
                for number, by_name in document["growth"].items()
            },
            {
                int(number): {name: Excess(*excess) for name, excess in by_name.items()}
                for number, by_name in document["excesses"].items()
            },
            {owner: _traffic(traffic) for owner, traffic in document["traffic"].items()},
            _rates(document),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput("counters", str(error), "give the document of a memory") from error


def _traffic(document: Mapping[str, Any]) -> Traffic:
    words = {name: WordCounts(*document[name]) for name in _WORDS if name in document}
    return Traffic(links=document["links"], **words)


def findings_document(findings: Findings) -> dict[str, Any]:
    """The JSON document of what is found at a switch."""
    return {
        "guid": findings.guid,
        "at": findings.at,
        "leaf": findings.leaf,
        "errors": [[error.end.port, *error[1:]] for error in findings.errors],
        "foreign": [
            [f.owner, f.direction, f.sent, f.received, f.allowed, f.seconds]
            for f in findings.foreign
        ],
        "data": {owner: list(data) for owner, data in findings.data.items()},
        "rates": _rates_document(findings.rates),
    }


def findings_from(document: Mapping[str, Any]) -> Findings:
    """The findings in a document.

    Raises:
        InvalidInput: the document has another form.
    """
    try:
        guid = int(document["guid"])
        return Findings(
            guid,
            float(document["at"]),
            bool(document["leaf"]),
            tuple(PortErrors(PortRef(guid, port), *rest) for port, *rest in document["errors"]),
            tuple(Foreign(*values) for values in document["foreign"]),
            {owner: Data(*values) for owner, values in document["data"].items()},
            _rates(document),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput("counters", str(error), "give the document of findings") from error
