"""The OpenAPI documents of both listeners as files: `python -m tests.contract.documents` (`make openapi`) writes them.

`--release` writes them also as those of the last release, against which later ones may break nothing.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from controlplane.api.app import create_agent_app, create_app
from controlplane.bootstrap import build_container
from controlplane.settings import Settings

FOLDER = Path(__file__).parent / "openapi"
RELEASED = FOLDER / "released"
NAMES = ("people", "agents")


def documents() -> dict[str, dict[str, Any]]:
    """Both, as they are served; nothing that they are made of asks a database."""
    nowhere = {"DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
    with tempfile.TemporaryDirectory() as secrets:
        container = build_container(Settings.model_validate({**nowhere, "secrets_dir": secrets}))
        try:
            apps = dict(zip(NAMES, (create_app(container), create_agent_app(container)), strict=True))
            return {name: asyncio.run(_served(app)) for name, app in apps.items()}
        finally:
            container.close()


def text_of(document: dict[str, Any]) -> str:
    """How it stands in a file."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


async def _served(app: ASGIApp) -> dict[str, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        document: dict[str, Any] = (await client.get("/openapi.json")).json()
        return document


def main() -> None:
    """Write the files, and say which differ from what they were."""
    folders = [FOLDER, RELEASED] if "--release" in sys.argv else [FOLDER]
    for name, document in documents().items():
        for folder in folders:
            folder.mkdir(exist_ok=True)
            file = folder / f"{name}.json"
            was = file.read_text(encoding="utf-8") if file.exists() else ""
            file.write_text(text_of(document), encoding="utf-8")
            print(f"{file.relative_to(Path.cwd())}: {'unchanged' if was == text_of(document) else 'written'}")


if __name__ == "__main__":
    main()
