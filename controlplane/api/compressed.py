"""Large answers, compressed for whoever takes that: a Pool's world is megabytes of JSON that says the same words often.

Only what is for those who watch the whole plane: what mixes secrets with a stranger's words is never compressed.
"""

import gzip

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

LEVEL = 1  # three quarters of what the best level saves, in a tenth of its time


def answer(request: Request, model: BaseModel) -> Response:
    """The model as JSON."""
    body = model.model_dump_json(by_alias=True).encode()
    headers = {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers = gzip.compress(body, LEVEL), {**headers, "Content-Encoding": "gzip"}
    return Response(body, media_type="application/json", headers=headers)
