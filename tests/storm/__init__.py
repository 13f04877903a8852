# Licensed under the Apache License, Version 2.0 (the "License"); you may not
# use this file except in compliance with the License. You may obtain a copy of
# the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations.

"""Several processes, several clients, everything at once, and things that break: who owns what?

``python -m tests.storm`` (``tox -e storm``). What is asked and answered goes over HTTP; the
judge reads the tables of the database, the directory of the compute adapter and the
published routes by itself, and holds them against what the clients were told.
"""
