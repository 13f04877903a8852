# SPDX-License-Identifier: Apache-2.0

"""A real Keystone on a free port of loopback, and its projects, users and roles.

::

    with Keystone(directory, python="/opt/keystone/bin/python") as keystone:
        blue = keystone.project("blue")
        alice = keystone.user("alice", {blue: ["member"]})
        session = keystone.session("alice", project="blue")

``python`` is an interpreter with ``keystone`` and ``waitress``. The database is SQLite
unless ``connection`` names another one, which is empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.identity.v3 import Password
from keystoneauth1.session import Session

from tests.servers.process import Port, Process

ADMIN = "admin"
PASSWORD = "password-that-no-log-may-show"
"""Password of every user."""

REGION = "RegionOne"
INTERFACES = ("public", "internal", "admin")
DOMAIN = "default"
"""Id of the domain of all users and projects."""

_CONFIGURATION = """
[DEFAULT]
log_file = {directory}/keystone.log
[database]
connection = {connection}
[cache]
enabled = true
backend = dogpile.cache.memory
[identity]
password_hash_rounds = 4
[token]
provider = fernet
expiration = {expiration}
[fernet_tokens]
key_repository = {directory}/fernet-keys
[fernet_receipts]
key_repository = {directory}/fernet-keys
[credential]
key_repository = {directory}/credential-keys
"""

_MANAGE = (
    "import sys; sys.argv[0] = 'keystone-manage'; from keystone.cmd.manage import main; main()"
)
_WSGI = Path(__file__).with_name("wsgi.py")


class Keystone:
    """Keystone with the default roles, and an administrator in project ``admin``.

    ``url`` ends in ``/v3``. Tokens last ``expiration`` seconds; a revoked token is
    refused at once.
    """

    def __init__(
        self,
        directory: Path,
        *,
        python: str = sys.executable,
        connection: str | None = None,
        expiration: int = 3600,
    ) -> None:
        self._directory = directory
        self._python = python
        self._connection = connection or f"sqlite:///{directory}/keystone.sqlite"
        self._process: Process | None = None
        self._port = Port()
        self.url = f"{self._port.url}/v3"
        self._ids: dict[tuple[str, str], str] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._configure(expiration)

    def __enter__(self) -> Keystone:
        self.prepare()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._port.close()

    # -- the server -------------------------------------------------------------

    def prepare(self) -> None:
        """Make tables and keys, and run ``bootstrap``; safe to repeat."""
        who = f"{os.getuid()}", f"{os.getgid()}"
        owner = ("--keystone-user", who[0], "--keystone-group", who[1])
        self._manage("db_sync")
        self._manage("fernet_setup", *owner)
        urls = [f"--bootstrap-{interface}-url={self.url}" for interface in INTERFACES]
        self._manage(
            "bootstrap",
            f"--bootstrap-password={PASSWORD}",
            f"--bootstrap-region-id={REGION}",
            *urls,
        )

    def start(self) -> None:
        """Start Keystone and return when it answers."""
        self._process = Process(
            [self._python, "-P", str(_WSGI), "keystone.wsgi.api", str(self._port.number)],
            self._directory / "stderr.log",
            self._environment(),
        )
        self._process.wait_for(self.url)

    def stop(self) -> None:
        """End Keystone. Its port refuses connections until ``start``, which uses it again."""
        if self._process:
            self._process.stop()
            self._process = None

    def restart(self, *, expiration: int) -> None:
        """Restart; new tokens last ``expiration`` seconds."""
        self.stop()
        self._configure(expiration)
        self.start()

    def _configure(self, expiration: int) -> None:
        (self._directory / "keystone.conf").write_text(
            _CONFIGURATION.format(
                directory=self._directory, connection=self._connection, expiration=expiration
            )
        )

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OS_", "PYTHONPATH"))}
        return {**inherited, "OS_KEYSTONE_CONFIG_DIR": str(self._directory)}

    def _manage(self, *words: str) -> None:
        command = [self._python, "-c", _MANAGE, "--config-dir", str(self._directory), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environment(), check=False
        )
        if done.returncode:
            raise RuntimeError(f"keystone-manage {words[0]}:\n{done.stdout}{done.stderr}"[-4000:])

    # -- projects, users, roles, catalog ----------------------------------------------

    def project(self, name: str) -> str:
        """The id of a project, which is created if it is missing."""
        return self._made("project", name, domain_id=DOMAIN)

    def user(
        self,
        name: str,
        roles: Mapping[str, Iterable[str]] | None = None,
        *,
        domain: Iterable[str] = (),
        system: Iterable[str] = (),
    ) -> str:
        """The id of a user, who is created if missing, and gets roles.

        ``roles`` are by project id, ``domain`` those in the domain, ``system`` those on all.
        """
        user = self._made("user", name, domain_id=DOMAIN, password=PASSWORD)
        places = {f"/projects/{project}": names for project, names in (roles or {}).items()}
        for place, names in {**places, f"/domains/{DOMAIN}": domain, "/system": system}.items():
            for role in names:
                self._admin.put(f"{place}/users/{user}/roles/{self.role(role)}")
        return user

    def dismiss(self, name: str, project: str, role: str) -> None:
        """Remove a role of a user in a project (by id)."""
        user = self._ids["user", name]
        self._admin.delete(f"/projects/{project}/users/{user}/roles/{self.role(role)}")

    def role(self, name: str) -> str:
        """The id of a role, which is created if it is missing (the default roles exist)."""
        return self._made("role", name)

    def endpoint(
        self, service_type: str, url: str, *, region: str = REGION, interface: str = "public"
    ) -> str:
        """Add an endpoint to the catalog; creates its service and region if they are missing."""
        if region != REGION:
            self._made("region", region)
        service = self._made("service", service_type, type=service_type)
        body = {"service_id": service, "interface": interface, "region_id": region, "url": url}
        made = self._admin.post("/endpoints", json={"endpoint": body}).json()
        return str(made["endpoint"]["id"])

    def has_endpoint(self, service_type: str) -> bool:
        known = self._admin.get("/services", params={"type": service_type}).json()["services"]
        return bool(known)

    # -- logins ----------------------------------------------------------------------

    def login(self, name: str = ADMIN, *, project: str | None = ADMIN, **scope: Any) -> Password:
        """keystoneauth's plugin for a user in a project (by name), or in another scope."""
        if project:
            scope |= {"project_name": project, "project_domain_id": DOMAIN}
        return Password(self.url, username=name, password=PASSWORD, user_domain_id=DOMAIN, **scope)

    def session(self, name: str = ADMIN, *, project: str | None = ADMIN, **scope: Any) -> Session:
        return Session(auth=self.login(name, project=project, **scope), timeout=300)

    def token(self, name: str = ADMIN, *, project: str | None = ADMIN, **scope: Any) -> str:
        """A new token of a user in a project.

        With ``project=None``, the token has the scope of ``domain_id``, ``system_scope`` or
        ``unscoped``.
        """
        return str(self.session(name, project=project, **scope).get_token())

    def knows(self, token: str) -> bool:
        """Whether the token is valid now."""
        headers = {"X-Subject-Token": token}
        answer = self._admin.get("/auth/tokens", headers=headers, raise_exc=False)
        return bool(answer.status_code == 200)

    def revoke(self, token: str) -> None:
        self._admin.delete("/auth/tokens", headers={"X-Subject-Token": token})

    def environment(self, name: str, project: str) -> dict[str, str]:
        """Environment variables (``OS_*``) for the login of a client."""
        return {
            "OS_AUTH_URL": self.url,
            "OS_AUTH_TYPE": "password",
            "OS_USERNAME": name,
            "OS_PASSWORD": PASSWORD,
            "OS_USER_DOMAIN_ID": DOMAIN,
            "OS_PROJECT_NAME": project,
            "OS_PROJECT_DOMAIN_ID": DOMAIN,
            "OS_REGION_NAME": REGION,
            "OS_IDENTITY_API_VERSION": "3",
        }

    def options(self, name: str, project: str) -> dict[str, str]:
        """keystoneauth's options for the login of a service, for its configuration file."""
        return {
            "auth_type": "password",
            "auth_url": self.url,
            "username": name,
            "password": PASSWORD,
            "user_domain_id": DOMAIN,
            "project_name": project,
            "project_domain_id": DOMAIN,
        }

    @cached_property
    def _admin(self) -> Adapter:
        return Adapter(self.session(system_scope="all", project=None), endpoint_override=self.url)

    def _made(self, kind: str, name: str, **more: str) -> str:
        """The id of a resource by kind and name; creates the resource if it is missing."""
        if (kind, name) not in self._ids:
            self._ids[kind, name] = self._found(kind, name) or self._create(kind, name, **more)
        return self._ids[kind, name]

    def _found(self, kind: str, name: str) -> str | None:
        known = self._admin.get(f"/{kind}s").json()[f"{kind}s"]
        return next((item["id"] for item in known if name in (item.get("name"), item["id"])), None)

    def _create(self, kind: str, name: str, **more: str) -> str:
        body = {"id": name} if kind == "region" else {"name": name, **more}
        return str(self._admin.post(f"/{kind}s", json={kind: body}).json()[kind]["id"])
