"""What the demonstration asks of the plane, over the same REST API that everybody uses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

Json = dict[str, Any]
PAGE = 500


class PlaneClient:
    """A small client with the admin's token; raises httpx.HTTPError where the plane refuses or is away."""

    def __init__(self, url: str, token_file: Path) -> None:
        self._token_file = token_file
        self._http = httpx.Client(base_url=f"{url}/api/v1", timeout=10, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"}

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, **query: str | int) -> Any:  # noqa: ANN401 - JSON as it comes
        """The answer's JSON."""
        answer = self._http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: object) -> Any:  # noqa: ANN401 - JSON as it comes
        """The answer's JSON."""
        answer = self._http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()

    def items(self, path: str, **query: str | int) -> Iterator[Json]:
        """All items of a list, page after page."""
        cursor = ""
        while True:
            page = self.get(path, limit=PAGE, **query, **({"cursor": cursor} if cursor else {}))
            yield from page["items"]
            cursor = page.get("next") or ""
            if not cursor:
                return
