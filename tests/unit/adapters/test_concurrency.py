# SPDX-License-Identifier: Apache-2.0

"""The proof of concurrent decisions has the figures of the code."""

import re
from importlib import import_module

from laas_service.adapters.db import concurrency, engine

_FIGURE = re.compile(r"^``(\w+)`` +([\d.]+)(?: s)? +``(\w+)``: ", re.MULTILINE)


def test_the_figures_of_the_proof_are_those_of_the_code():
    figures = _FIGURE.findall(concurrency.__doc__)
    assert len(figures) == 6
    for module, figure, name in figures:
        owner = engine if module == "engine" else import_module(f"{concurrency.__name__}.{module}")
        assert float(figure) == getattr(owner, name), f"{module}.{name}"
