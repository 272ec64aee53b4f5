"""A thin HTTP client of the plane's REST API, and the config file that says where the plane is.

A token comes from a file or from the environment, never from the command line, and is never shown. Plain HTTP goes
to this machine only.
"""

import os
import stat
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from controlplane.cli.errors import CommandError, Exit

Json = dict[str, Any]
Query = Mapping[str, str | int | list[str] | None]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
TIMEOUT_SECONDS = 30.0
TRIES_MAX = 3
PAUSE_SECONDS = 0.3
PAGE = 500
_CODES = {400: 2, 401: 4, 403: 4, 404: 3, 405: 2, 408: 2, 409: 4, 413: 2, 415: 2, 422: 2, 429: 4, 503: 5}


@dataclass(frozen=True, slots=True)
class Context:
    """One plane: where it is, and the file that holds its token."""

    name: str
    url: str
    token_file: str = ""


def config_file() -> Path:
    """`MUSTER_CONFIG`, else in the folder that `MUSTER_HOME` names, else in the user's config folder."""
    if chosen := os.environ.get("MUSTER_CONFIG"):
        return Path(chosen).expanduser()
    if home := os.environ.get("MUSTER_HOME"):
        return Path(home).expanduser() / "config.yaml"
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "muster" / "config.yaml"


def read_config() -> tuple[str, dict[str, Context]]:
    """The name of the current context and all contexts; nothing where there is no file."""
    file = config_file()
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "", {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {file}: {error}", Exit.WRONG_INPUT) from None
    if file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        print(f"muster: others can read {file}; `chmod 600` it", file=sys.stderr)
    contexts = found.get("contexts") if isinstance(found, dict) else None
    if not isinstance(contexts, dict):
        return "", {}
    known = {
        str(name): Context(str(name), str(each.get("url", "")), str(each.get("token_file", "")))
        for name, each in contexts.items()
        if isinstance(each, dict)
    }
    return str(found.get("current", "")), known


def write_config(current: str, contexts: Mapping[str, Context]) -> None:
    """Write the config file, readable by its owner alone."""
    file = config_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listed = {each.name: {"url": each.url, "token_file": each.token_file} for each in contexts.values()}
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        yaml.safe_dump({"current": current, "contexts": listed}, out, sort_keys=False)
    draft.replace(file)


def current_context() -> Context:
    """Where to go: `MUSTER_URL`, else the context that `MUSTER_CONTEXT` or the config file names."""
    if url := os.environ.get("MUSTER_URL"):
        return Context("environment", url, "")
    current, contexts = read_config()
    name = os.environ.get("MUSTER_CONTEXT") or current
    if name not in contexts:
        words = f"there is no context {name} in {config_file()}" if name else f"no plane is known ({config_file()})"
        raise CommandError(f"{words}; `muster up` starts one here, `muster context set` names one", Exit.WRONG_INPUT)
    return contexts[name]


def token_of(context: Context) -> str:
    """The token: of `MUSTER_TOKEN`, else in the file of `MUSTER_TOKEN_FILE` or the context; "" where there is none."""
    if token := os.environ.get("MUSTER_TOKEN"):
        return token.strip()
    file = os.environ.get("MUSTER_TOKEN_FILE") or context.token_file
    if not file:
        return ""
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the token: {error}", Exit.WRONG_INPUT) from None


class Client:
    """Asks the plane; what it refuses is raised as a CommandError in its own words."""

    def __init__(self, context: Context) -> None:
        parts = urlsplit(context.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise CommandError(f"{context.url} is no address of a plane", Exit.WRONG_INPUT)
        if parts.scheme == "http" and parts.hostname not in LOOPBACK:
            raise CommandError(f"{context.url} is not encrypted; http:// is for this machine only", Exit.WRONG_INPUT)
        self.url = context.url.rstrip("/")
        token = token_of(context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Json:
        """One thing."""
        return self._ask("GET", path, params=_given(query))

    def items(self, path: str, query: Query | None = None, limit: int = 0) -> Iterator[Json]:
        """Everything in a list, page by page; at most `limit` if it is not 0."""
        asked = dict(query or {})
        left = limit
        while True:
            page = self.get(path, {**asked, "limit": min(PAGE, left) if limit else PAGE})
            yield from page["items"]
            left -= len(page["items"])
            if page["next"] is None or (limit and left <= 0):
                return
            asked["cursor"] = page["next"]

    def whole(self, path: str) -> list[Json]:
        """A list that is always one page."""
        return list(self.get(path)["items"])

    def post(self, path: str, body: object = None) -> Json:
        """A deed, with a body of JSON."""
        return self._ask("POST", path, json={} if body is None else body)

    def send(self, path: str, raw: bytes) -> Json:
        """Documents as they stand in a file. JSON is YAML, so one type does. Carried out once, however often it is
        sent: an answer that was lost is asked for again under the same key.
        """
        headers = {"Content-Type": "application/yaml", "Idempotency-Key": uuid.uuid4().hex}
        return self._ask("POST", path, content=raw, headers=headers, tries=TRIES_MAX)

    def delete(self, path: str) -> None:
        """The end of something, whatever stands there now."""
        self._ask("DELETE", path, headers={"If-Match": "*"})

    def _ask(self, method: str, path: str, tries: int = 1, **given: Any) -> Json:  # noqa: ANN401 - httpx's own
        for left in reversed(range(tries)):
            try:
                answer = self._http.request(method, f"/api/v1{path}", **given)
            except httpx.TransportError as error:
                if not left:
                    words = f"{self.url} does not answer ({type(error).__name__})"
                    raise CommandError(words, Exit.UNREACHABLE) from None
            else:
                if not _passes_by_itself(answer) or not left:
                    return _json(answer)
            time.sleep(PAUSE_SECONDS)
        raise AssertionError("the last try returns or raises")


def _passes_by_itself(answer: httpx.Response) -> bool:
    """The plane cannot now, or is still carrying out what we sent before."""
    return answer.status_code == 503 or (answer.status_code == 409 and "Retry-After" in answer.headers)


def _given(query: Query | None) -> dict[str, str | int | list[str]]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def _json(answer: httpx.Response) -> Json:
    if answer.status_code == 204:
        return {}
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and isinstance(body, dict):
        return body
    code = Exit(_CODES.get(answer.status_code, Exit.FAILED))
    if not isinstance(body, dict):
        raise CommandError(f"the plane answered {answer.status_code}, and not as a plane does", code)
    raise CommandError(_problem(body), code)


def _problem(body: Json) -> str:
    lines = [str(body.get("detail") or body.get("title") or "refused")]
    faults = body.get("errors") or []
    lines += [f"  {each.get('pointer') or '/'}: {each.get('detail')}" for each in faults]
    slug = str(body.get("type", "")).rpartition("/")[2]
    return "\n".join([f"{lines[0]} [{slug}]", *lines[1:]])
