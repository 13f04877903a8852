# SPDX-License-Identifier: Apache-2.0

"""Stubs of Glance and Neutron: the calls that Nova needs to boot a server without network.

``/image`` holds one image; ``/network`` answers every list with an empty one.
"""

from __future__ import annotations

from flask import Flask, jsonify, request

IMAGE = "155d900f-4e14-4e4c-a73d-069cbf4541e6"

_IMAGE = {
    "id": IMAGE,
    "name": "image",
    "status": "active",
    "visibility": "public",
    "protected": False,
    "owner": None,
    "checksum": "0" * 32,
    "container_format": "raw",
    "disk_format": "raw",
    "size": 1024,
    "virtual_size": None,
    "min_disk": 0,
    "min_ram": 0,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "tags": [],
    "os_hidden": False,
    "file": f"/v2/images/{IMAGE}/file",
    "self": f"/v2/images/{IMAGE}",
    "schema": "/v2/schemas/image",
}

application = Flask(__name__)


@application.get("/image/", strict_slashes=False)
@application.get("/image/versions")
def image_versions():
    link = {"rel": "self", "href": f"{request.host_url}image/v2/"}
    return jsonify(versions=[{"id": "v2.9", "status": "CURRENT", "links": [link]}])


@application.get("/image/v2/schemas/image")
def image_schema():
    """Schema with every attribute of an image; Nova's client drops all others."""
    properties: dict[str, object] = {name: {} for name in _IMAGE}
    return jsonify(
        name="image", properties=properties, additionalProperties={"type": "string"}, links=[]
    )


@application.get("/image/v2/images/<id>")
def image(id: str):
    return jsonify(_IMAGE) if id == IMAGE else (jsonify(), 404)


@application.get("/network/", strict_slashes=False)
def network_versions():
    link = {"rel": "self", "href": f"{request.host_url}network/v2.0/"}
    return jsonify(versions=[{"id": "v2.0", "status": "CURRENT", "links": [link]}])


@application.get("/network/v2.0/<path:what>")
def network(what: str):
    kind = what.removesuffix(".json").rstrip("/").replace("-", "_")
    return jsonify({kind: []})
