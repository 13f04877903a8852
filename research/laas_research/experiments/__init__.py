# SPDX-License-Identifier: Apache-2.0

"""Registry of the experiments that repeat the papers' evaluations; ``laas-simulate NAME``."""

from collections.abc import Mapping

from laas_research.experiments import adaptive_fit, chosen_routes, kraken, starcube, svc
from laas_research.experiments.figures import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    "adaptive-fit": adaptive_fit.EXPERIMENT,
    "chosen-routes": chosen_routes.EXPERIMENT,
    "kraken": kraken.EXPERIMENT,
    "kraken-routed": kraken.ROUTED_EXPERIMENT,
    "starcube": starcube.EXPERIMENT,
    "svc": svc.EXPERIMENT,
    "svc-routed": svc.ROUTED_EXPERIMENT,
}
