# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""What a project may have, and has."""

from __future__ import annotations

from laas_service.api import schemas
from laas_service.api.resource import Answer, Call


def show(call: Call, query: schemas.QuotaQuery) -> Answer:
    """Show what the own project may have and has; administrators may name another."""
    return Answer(200, schemas.Quota.of(call.service.usage(call.caller, query.project_id)))
