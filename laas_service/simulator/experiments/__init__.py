# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.


"""The papers' own evaluations, one module each; ``laas-simulate NAME`` runs one."""

from __future__ import annotations

from collections.abc import Mapping

from laas_service.simulator.experiments import adaptive_fit, kraken, starcube, svc
from laas_service.simulator.experiments.figures import Experiment

EXPERIMENTS: Mapping[str, Experiment] = {
    "adaptive-fit": adaptive_fit.EXPERIMENT,
    "kraken": kraken.EXPERIMENT,
    "starcube": starcube.EXPERIMENT,
    "svc": svc.EXPERIMENT,
}
