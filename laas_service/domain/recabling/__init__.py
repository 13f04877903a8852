# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""A fabric imported again: the new cables in the old places, what changed, whom it concerns."""

from __future__ import annotations

from laas_service.domain.recabling.changes import Change, changes
from laas_service.domain.recabling.effects import Effect, effects
from laas_service.domain.recabling.kept import with_failed
from laas_service.domain.recabling.layout import Layout
from laas_service.domain.recabling.places import laid_over
from laas_service.domain.recabling.renumbering import Renumbering

__all__ = [
    "Change",
    "Effect",
    "Layout",
    "Renumbering",
    "changes",
    "effects",
    "laid_over",
    "with_failed",
]
