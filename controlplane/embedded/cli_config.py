"""The CLI's own config file, as far as an embedded plane writes it: the context `local` points at this plane.

`cli.client` reads it. The file names the token's file and never holds the token itself.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from controlplane.embedded.home import Home, default_folder, write_private

CONTEXT = "local"


def config_file() -> Path:
    """`MUSTER_CONFIG`, else in the folder that `MUSTER_HOME` names, else in the user's config folder."""
    if chosen := os.environ.get("MUSTER_CONFIG"):
        return Path(chosen).expanduser().absolute()
    if os.environ.get("MUSTER_HOME"):
        return default_folder() / "config.yaml"
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser().absolute() / "muster" / "config.yaml"


def database_named(environment: Mapping[str, str] = os.environ) -> str:
    """The database that the user names, without its password; "" for the embedded one. Tokens are a database's."""
    return urlsplit(environment.get("DATABASE_URL", ""))._replace(scheme="", query="").geturl().rpartition("@")[2]


def is_remembered(home: Home, url: str, database: str = "") -> bool:
    """Whether an earlier start did all this already; whatever the user changed since stays as it is."""
    files = (home.admin_token, config_file(), _mark(home))
    return all(file.exists() for file in files) and _mark(home).read_text(encoding="utf-8") == _what(url, database)


def remember(home: Home, url: str, database: str = "") -> None:
    """Point `local` at this plane; other contexts, and a choice among them, stay."""
    file = config_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    config = found if isinstance(found, dict) else {}
    contexts = config.get("contexts")
    contexts = contexts if isinstance(contexts, dict) else {}
    contexts[CONTEXT] = {"url": url, "token_file": str(home.admin_token)}
    write_private(file, yaml.safe_dump({"current": CONTEXT, **config, "contexts": contexts}, sort_keys=False))
    write_private(_mark(home), _what(url, database))


def _mark(home: Home) -> Path:
    return home.path / "remembered"


def _what(url: str, database: str) -> str:
    return f"{url}\n{config_file()}\n{database}\n"
