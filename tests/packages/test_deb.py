"""The Debian packages of ``dist/`` in a clean Debian 12: installed, used, upgraded and purged."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
NAMES = ("laas-service", "laas-opensm-agent", "laas-client", "laas-slurm")
FILTER, DOCTOR = "python3-nova-laas-filters", "laas-doctor"
COMMANDS = (
    *("laas", "laas-api", "laas-manage", "laas-opensm-agent", "laas-plan", "laas-simulate"),
    *("laas-doctor", "laas-slurm", "laas-status", "laas-worker"),
)
PATIENCE = 120.0
SET_UP_LATER = {"OpenSM", "Service", "Slurm"}
"""What the doctor says of the agent and the plug-in, which are installed here and not set up."""


class Root:
    """A directory with a Debian of its own."""

    def __init__(self, path):
        self.path = path

    def run(self, *words, check=True, user="root"):
        done = subprocess.run(
            ["chroot", f"--userspec={user}", self.path, *words],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"},
        )
        assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done

    def install(self, *packages):
        names = []
        for package in packages:
            shutil.copy(package, self.path / "tmp")
            names.append(f"/tmp/{package.name}")
        return self.run("apt-get", "install", "--yes", "--no-install-recommends", *names)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    home = tmp_path_factory.mktemp("root")
    options = home / "apt.conf"
    options.write_text(subprocess.check_output(["apt-config", "dump", "Acquire"], text=True))
    words = ("mmdebstrap", "--variant=apt", "--include=procps", f"--aptopt={options}", "bookworm")
    subprocess.run([*words, home / "debian"], check=True)
    made = Root(home / "debian")
    made.run("apt-get", "update")
    return made


@pytest.fixture(scope="module")
def built():
    """The newest build of each package."""
    found = {}
    for name in (*NAMES, FILTER, DOCTOR):
        paths = sorted((TREE / "dist").glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
        assert paths, "run make deb first"
        found[name] = paths[-1]
    return found


def later(package, directory):
    """The same package with a greater version. It stands for the next build."""
    tree = directory / package.stem
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"^(Version: .*)$", r"\1.1", control.read_text(), flags=re.MULTILINE))
    words = ("dpkg-deb", "-Zxz", "-z0", "--root-owner-group", "--build")
    subprocess.run([*words, tree, directory / f"{package.stem}.1.deb"], check=True)
    return directory / f"{package.stem}.1.deb"


def value(text, name):
    """The value of an entry of a unit."""
    (found,) = re.findall(rf"^{name}=(.+)$", text, re.MULTILINE)
    return str(found)


def started(root, unit):
    """The process of a unit's ExecStart, as its user."""
    text = (root.path / "lib/systemd/system" / unit).read_text()
    command, user = value(text, "ExecStart").split(), value(text, "User")
    return subprocess.Popen(["chroot", f"--userspec={user}:{user}", root.path, *command])


def until(done, what):
    limit = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.2)  # another process has to go on


def test_packages_from_an_empty_machine_to_a_tenant_and_back(root, built, tmp_path):
    root.install(*built.values())
    for command in COMMANDS:
        said = root.run(command, "--version")
        assert said.stdout + said.stderr, command
        assert (root.path / f"usr/share/man/man1/{command}.1.gz").exists(), command
    code = "import nova_filters, sys; print('sqlalchemy' in sys.modules)"
    assert root.run("/usr/bin/python3", "-c", code).stdout.strip() == "False"
    agent = "/opt/venvs/laas-opensm-agent/lib/python3.11/site-packages/sqlalchemy"
    assert not (root.path / agent[1:]).exists(), "the agent brings no database"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = root.path / "etc/laas/laas.conf"
    assert (conf.stat().st_mode & 0o777, conf.group()) != (0o644, "root")
    conf.write_text(f"{conf.read_text()}\n[api]\nbind_port = {port}\n")
    dump = "/var/lib/laas/fabric"
    manage = ("runuser", "-u", "laas", "--", "laas-manage")
    root.run(*manage, "db", "upgrade")
    root.run(*manage, "fabric", "generate", "2;4,8;1,4", "--output", dump)
    root.run(*manage, "fabric", "import", dump)
    laas = ("/usr/bin/env", f"LAAS_ENDPOINT=http://127.0.0.1:{port}", "laas")
    processes = [started(root, f"laas-{name}.service") for name in ("api", "worker")]
    try:
        until(lambda: root.run(*laas, "fabric", "list", check=False).returncode == 0, "no answer")
        root.run(*laas, "allocation", "create", "blue", "--hosts", "6", "--wait")
        shown = json.loads(root.run(*laas, "allocation", "show", "blue", "-f", "json").stdout)
        assert shown["state"] == "active"
        rows = json.loads(root.run("laas-doctor", "--json", check=False).stdout)
        assert {row["what"] for row in rows if row["severity"] == "failure"} == SET_UP_LATER
        kept = conf.read_text()
        root.install(*(later(package, tmp_path) for package in built.values()))
        assert conf.read_text() == kept
        assert [process.poll() for process in processes] == [None, None]
    finally:
        for process in processes:
            process.terminate()
        statuses = [process.wait(PATIENCE) for process in processes]
    assert statuses == [0, 0]
    root.run("apt-get", "purge", "--yes", *built)
    places = ("etc/laas", "var/lib/laas", "opt/venvs")
    assert [name for name in places if (root.path / name).exists()] == []


def test_units_are_sound(built, tmp_path):
    for name in NAMES[:2] + NAMES[3:]:
        subprocess.run(["dpkg-deb", "-x", built[name], tmp_path], check=True)
    units = sorted(tmp_path.glob("lib/systemd/system/*.service"))
    assert len(units) == 4
    for unit in units:
        command = value(unit.read_text(), "ExecStart").split()[0]
        assert os.path.lexists(tmp_path / command[1:]), unit.name


def test_lintian_finds_no_error(built):
    done = subprocess.run(
        ["lintian", "--fail-on", "error", "--tag-display-limit", "0", *built.values()],
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    assert (done.returncode, errors) == (0, []), done.stdout


ANSIBLE = TREE / "packaging" / "ansible"
INVENTORY = """\
all:
  vars:
    ansible_connection: local
    ansible_python_interpreter: /usr/bin/python3
    laas_packages: /tmp/packages
  children:
    laas_service: {hosts: {here: {}}}
    laas_agent: {hosts: {here: {}}}
    laas_nova_scheduler: {hosts: {here: {}}}
    laas_slurm: {hosts: {here: {}}}
"""


@pytest.fixture(scope="module")
def ansible(root):
    """Ansible inside the clean machine; returns what runs the roles there."""
    place = root.path / "ansible"
    subprocess.run(["/usr/bin/python3", "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-c", TREE / "constraints.txt", "ansible-core"], check=True)
    root.run("apt-get", "install", "--yes", "--no-install-recommends", "python3-apt")
    collection = root.path / "ansible" / "ansible_collections" / "laas" / "links"
    shutil.copytree(ANSIBLE, collection)
    (place / "inventory.yml").write_text(INVENTORY)

    def play():
        place = "/ansible"
        variables = (
            f"ANSIBLE_COLLECTIONS_PATH={place}",
            "ANSIBLE_STDOUT_CALLBACK=ansible.builtin.json",
        )
        command = (f"{place}/bin/python", f"{place}/bin/ansible-playbook")
        words = ("-i", f"{place}/inventory.yml", f"{place}/ansible_collections/laas/links/site.yml")
        done = root.run("/usr/bin/env", "LC_ALL=C.UTF-8", *variables, *command, *words)
        return json.loads(done.stdout[done.stdout.index("{") :])["stats"]["here"]

    return play


def test_roles_install_every_part_and_change_nothing_again(root, built, ansible):
    (root.path / "tmp/packages").mkdir()
    for package in built.values():
        shutil.copy(package, root.path / "tmp/packages")
    first, again = ansible(), ansible()
    assert (first["failures"], first["changed"] > 0) == (0, True)
    assert (again["failures"], again["changed"]) == (0, 0)
    assert "Written by Ansible" in (root.path / "etc/laas/laas.conf").read_text()
    root.run("runuser", "-u", "laas", "--", "laas-manage", "db", "version")
    assert json.loads(root.run("laas-doctor", "--json", check=False).stdout)
    root.run("apt-get", "purge", "--yes", *built)
