# SPDX-License-Identifier: Apache-2.0

"""Answers as HTTP responses: JSON, compressed if it is long, and made once for each ETag."""

import gzip
import threading
from collections import OrderedDict

from flask import Response, request, send_file
from pydantic import BaseModel

from laas_service.api import schemas
from laas_service.api.auth import REQUEST_ID
from laas_service.api.resource import Answer

LONG = 16_384
"""Bytes from which JSON is compressed for clients that take it."""

KEPT = 16
"""Answers that are kept by ETag, the last ones asked for. The map of 11,664 hosts has 0.4 MB."""


class Rendering:
    """Makes responses; may be shared by threads.

    An answer whose body is made when it is needed is made once while its ETag is asked for:
    many open pages see the same map.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._making = threading.Lock()

    def response(self, answer: Answer) -> Response:
        if answer.status == 304:
            return Response(status=304, headers=dict(answer.headers))
        body = answer.body
        if isinstance(body, BaseModel):
            return response(answer, body)
        etag = answer.headers["ETag"]
        with self._making:
            packed = self._kept.get(etag)
            if packed is None:
                packed = gzip.compress(_text(answer, body()).encode(), 4)
            self._kept[etag] = packed
            self._kept.move_to_end(etag)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return _json(answer, packed, b"")


def response(answer: Answer, body: BaseModel) -> Response:
    """An answer with this body."""
    if isinstance(body, schemas.Problem):
        body = body.model_copy(update={"request_id": request.environ.get(REQUEST_ID)})
    if isinstance(body, schemas.Octets):
        return send_file(body.root, schemas.media(type(body)), etag=False)
    media, text = schemas.media(type(body)), _text(answer, body)
    if media == "application/json" and len(text) >= LONG:
        plain = text.encode()
        return _json(answer, gzip.compress(plain, 4) if _takes_gzip() else b"", plain)
    made = Response(text, answer.status, content_type=media)
    made.headers.update(answer.headers)
    return made


def _json(answer: Answer, packed: bytes, plain: bytes) -> Response:
    """JSON that was compressed before, or is at hand plain."""
    if _takes_gzip():
        made = Response(packed, answer.status, content_type="application/json")
        made.headers["Content-Encoding"] = "gzip"
    else:
        text = plain or gzip.decompress(packed)
        made = Response(text, answer.status, content_type="application/json")
    made.headers.update(answer.headers)
    made.vary.add("Accept-Encoding")
    return made


def _takes_gzip() -> bool:
    return request.accept_encodings.quality("gzip") > 0


def _text(answer: Answer, body: BaseModel) -> str:
    if isinstance(body, schemas.Text):
        return body.root
    return body.model_dump_json(
        by_alias=True,
        exclude=answer.without,
        exclude_none=isinstance(body, schemas.Problem),
    )
