"""A thin HTTP client of the plane's REST API.

A token is never shown. Plain HTTP goes to this machine only. What the plane refuses is raised in its own words, with
what to do about it.
"""

import re
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from controlplane.cli.config import Context, token_of
from controlplane.cli.errors import CommandError, Exit

Json = dict[str, Any]
Query = Mapping[str, str | int | list[str] | None]
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
TIMEOUT_SECONDS = 30.0
TRIES_MAX = 3
PAUSE_SECONDS = 0.3
RETRY_AFTER_MAX = 5.0
PAGE = 500
YAML = {"Content-Type": "application/yaml"}  # JSON is YAML, so one type does
_CODES = {
    400: 2, 401: 4, 403: 4, 404: 3, 405: 2, 408: 2, 409: 4, 412: 4, 413: 2, 415: 2, 422: 2, 428: 4, 429: 4,
    502: 5, 503: 5, 504: 5,
}  # fmt: skip
_HINTS = {
    401: "`muster context show` says where your token comes from; an admin makes a new one with `muster token create`",
    403: "`muster whoami` says which roles you have",
    412: "somebody changed it since you looked; look again, then repeat the command",
    429: "wait a moment, then repeat the command",
}
_HINTS_OF_SLUG = {"use-removal": "`muster cluster remove NAME` says what lives there, and asks what becomes of it"}

_MISSING = re.compile(r"(?:there is no|no such) (\w+)")
_WAYS = {
    "workload": "`muster list --all` shows those that you may see",
    "queue": "`muster queue list` shows those that you may see",
    **{noun: f"`muster {noun} list` shows them" for noun in ("cluster", "device", "cycle", "token", "binding")},
}


class Client:
    """Asks the plane; what it refuses is raised as a CommandError."""

    def __init__(self, context: Context, timeout: float = TIMEOUT_SECONDS, tries: int = TRIES_MAX) -> None:
        check_url(context.url)
        self.url = context.url.rstrip("/")
        self._tries = tries
        token = token_of(context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Loading the system's certificates takes longer than most answers; plain HTTP has no use for them.
        is_checked = self.url.startswith("https:")
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, verify=is_checked)

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def get(self, path: str, query: Query | None = None) -> Json:
        """One thing."""
        return _json(self._ask("GET", path, self._tries, params=_given(query)))

    def tagged(self, path: str) -> tuple[Json, str]:
        """One thing, and the ETag under which it may be edited; "" where it has none."""
        answer = self._ask("GET", path, self._tries)
        return _json(answer), answer.headers.get("ETag", "")

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

    def post(self, path: str, body: object = None, tag: str = "") -> Json:
        """A command, with a body of JSON: what it says must hold, so it may be repeated."""
        return _json(self._ask("POST", path, json={} if body is None else body, headers=_match(tag)))

    def make(self, path: str, body: object) -> Json:
        """Make something new, once: an answer that was lost is asked for again under the same key."""
        return _json(self._ask("POST", path, self._tries, json=body, headers={"Idempotency-Key": uuid.uuid4().hex}))

    def send(self, path: str, raw: bytes, query: Query | None = None, tag: str = "") -> Json:
        """Documents as they stand in a file; carried out once, however often they are sent."""
        headers = {**YAML, "Idempotency-Key": uuid.uuid4().hex, **_match(tag)}
        return _json(self._ask("POST", path, self._tries, content=raw, headers=headers, params=_given(query)))

    def put(self, path: str, raw: bytes, tag: str) -> Json:
        """One whole document in the place of what bears this tag."""
        return _json(self._ask("PUT", path, content=raw, headers={**YAML, **_match(tag)}))

    def patch(self, path: str, body: Json, tag: str) -> Json:
        """Change what bears this tag."""
        return _json(self._ask("PATCH", path, json=body, headers=_match(tag)))

    def delete(self, path: str, tag: str = "", query: Query | None = None) -> Json:
        """The end of something; what goes on may be told."""
        return _json(self._ask("DELETE", path, params=_given(query), headers=_match(tag)))

    @contextmanager
    def lines(self, path: str, query: Query, last: str, silence_seconds: float) -> Iterator[Iterator[str]]:
        """The lines of an event stream that goes on after the event `last`; httpx's errors are the caller's."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=silence_seconds)
        with self._http.stream(
            "GET", f"/api/v1{path}", params=_given(query), headers=headers, timeout=timeout
        ) as answer:
            if not answer.is_success:
                answer.read()
                _json(answer)
            yield answer.iter_lines()

    def _ask(self, method: str, path: str, tries: int = 1, **given: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        for left in reversed(range(tries)):
            pause = PAUSE_SECONDS
            try:
                answer = self._http.request(method, f"/api/v1{path}", **given)
            except httpx.TransportError as error:
                if not left or _is_about_certificates(error):
                    raise CommandError(self.silence(error), Exit.UNREACHABLE) from None
            except (httpx.InvalidURL, UnicodeEncodeError):
                words = "a name or the token holds what no address and no header can"
                raise CommandError(words, Exit.WRONG_INPUT) from None
            else:
                if not _passes_by_itself(answer) or not left:
                    return answer
                pause = min(RETRY_AFTER_MAX, max(PAUSE_SECONDS, _seconds(answer.headers.get("Retry-After", ""))))
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def silence(self, error: Exception) -> str:
        """What to say where nobody answers."""
        if _is_about_certificates(error):
            words = f"the certificate of {self.url} is not to be trusted: {error}"
            return f"{words}\nSSL_CERT_FILE names the certificate of an authority of your own"
        hint = "`muster context show` says where commands go, `muster status` whether a plane runs here"
        return f"{self.url} does not answer ({type(error).__name__})\n{hint}"


def check_url(url: str) -> None:
    """Raise CommandError for what is no address of a plane, or one that a token must not be sent to."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host:
        raise CommandError(f"{url} is no address of a plane; it begins with https://", Exit.WRONG_INPUT)
    if parts.scheme == "http" and host not in LOOPBACK:
        raise CommandError(f"{url} is not encrypted; http:// is for this machine only", Exit.WRONG_INPUT)


def at(*words: str | int) -> str:
    """A path of the API; a slash in a word stays, since queues have paths, and anything odd is quoted."""
    return "/" + "/".join(quote(str(word), safe="/") for word in words)


def refusal(answer: httpx.Response) -> CommandError:
    """What the plane refuses, as a command ends with it."""
    code = Exit(_CODES.get(answer.status_code, Exit.FAILED))
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        return CommandError(f"the plane answered {answer.status_code}, and not as a plane does", code)
    slug = str(body.get("type", "")).rpartition("/")[2]
    words = _problem(body, slug)
    missing = _MISSING.match(words)
    hint = _WAYS.get(missing[1], "") if missing else _HINTS_OF_SLUG.get(slug) or _HINTS.get(answer.status_code, "")
    return CommandError(words, code, slug, hint)


def _is_about_certificates(error: Exception) -> bool:
    cause = error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _passes_by_itself(answer: httpx.Response) -> bool:
    """The plane cannot now, or is still carrying out what we sent before, or was asked too often."""
    return answer.status_code in {429, 503} or (answer.status_code == 409 and "Retry-After" in answer.headers)


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _match(tag: str) -> dict[str, str]:
    return {"If-Match": tag} if tag else {}


def _given(query: Query | None) -> dict[str, str | int | list[str]]:
    return {name: value for name, value in (query or {}).items() if value is not None}


def _json(answer: httpx.Response) -> Json:
    if answer.status_code == 204:
        return {}
    if answer.is_success:
        try:
            body = answer.json()
        except ValueError:
            body = None
        if isinstance(body, dict):
            return body
    raise refusal(answer)


def _problem(body: Json, slug: str) -> str:
    """The detail, then each fault with its place; no sentence is said twice."""
    faults = [(str(each.get("pointer") or ""), str(each.get("detail") or "")) for each in body.get("errors") or []]
    detail = str(body.get("detail") or body.get("title") or "refused")
    if len(faults) == 1 and faults[0][1] and detail.endswith(faults[0][1]):
        where = f" ({faults[0][0]})" if faults[0][0] else ""
        return f"{detail}{where} [{slug}]"
    return "\n".join([f"{detail} [{slug}]", *(f"  {pointer or '/'}: {words}" for pointer, words in faults)])
