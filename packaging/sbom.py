# SPDX-License-Identifier: Apache-2.0

"""What an image is made of, as CycloneDX 1.5: ``sbom.py LAYER.tar DEBIAN.txt VERSION TIME``.

DEBIAN.txt has a line ``NAME VERSION ARCHITECTURE`` for each Debian package. The distributions of
Python in the layer are found by their metadata.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

METADATA = re.compile(r"\./opt/venvs/[^/]+/lib/python[^/]+/site-packages/[^/]+\.dist-info/METADATA")


def debian(lines: str) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        name, version, architecture = line.split()
        purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}&distro=bookworm"
        yield {"type": "library", "name": name, "version": version, "purl": purl}


def python(layer: Path) -> Iterator[dict[str, Any]]:
    with tarfile.open(layer) as files:
        for member in files:
            content = files.extractfile(member) if METADATA.fullmatch(member.name) else None
            if content is None:
                continue
            head = HeaderParser().parsestr(content.read().decode())
            name, version = str(head["Name"]), str(head["Version"])
            purl = f"pkg:pypi/{name.lower()}@{version}"
            yield {"type": "library", "name": name, "version": version, "purl": purl}


def main(layer: str, packages: str, version: str, made: str) -> int:
    found = [*debian(Path(packages).read_text(encoding="utf-8")), *python(Path(layer))]
    components = {part["purl"]: {"bom-ref": part["purl"], **part} for part in found}
    image = {"type": "container", "name": "laas", "version": version, "bom-ref": "laas"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": made, "component": image},
        "components": [components[purl] for purl in sorted(components)],
    }
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
