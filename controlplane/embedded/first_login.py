"""Runs once per start, after the migrations: the first admin's token is made and the CLI learns where the plane is.

The token goes into a 0600 file of the folder; the CLI's config names that file and never holds the token itself.
"""

import os
import sys
from pathlib import Path

import yaml

from controlplane.bootstrap import first_admin_token
from controlplane.embedded.home import Home, default_folder, write_private
from controlplane.settings import Settings

CONTEXT = "local"


def config_file() -> Path:
    """The CLI's own config: `MUSTER_CONFIG`, else in the folder that `MUSTER_HOME` names, else the user's."""
    if chosen := os.environ.get("MUSTER_CONFIG"):
        return Path(chosen).expanduser().absolute()
    if os.environ.get("MUSTER_HOME"):
        return default_folder() / "config.yaml"
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser().absolute() / "muster" / "config.yaml"


def remember(url: str, token_file: Path) -> None:
    """Point the CLI's context `local` at this plane; other contexts, and a choice among them, stay."""
    file = config_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    config = found if isinstance(found, dict) else {}
    contexts = config.get("contexts")
    contexts = contexts if isinstance(contexts, dict) else {}
    contexts[CONTEXT] = {"url": url, "token_file": str(token_file)}
    write_private(file, yaml.safe_dump({"current": CONTEXT, **config, "contexts": contexts}, sort_keys=False))


def main() -> None:
    """`python -m controlplane.embedded.first_login FOLDER URL`."""
    home, url = Home.open(Path(sys.argv[1])), sys.argv[2]
    if not home.admin_token.exists():
        token = first_admin_token(Settings())
        if token is None:
            sys.exit(
                f"the database has an admin already, but {home.admin_token} is gone: log in with a token of theirs"
            )
        write_private(home.admin_token, token + "\n")
    remember(url, home.admin_token)


if __name__ == "__main__":
    main()
