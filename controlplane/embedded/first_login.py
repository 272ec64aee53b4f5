"""A step of the first start, after the migrations: the first admin's token is made, and the CLI learns of the plane."""

import sys
from pathlib import Path

from controlplane.bootstrap import first_admin_token, knows_token
from controlplane.embedded.cli_config import remember
from controlplane.embedded.home import Home, write_private
from controlplane.settings import Settings


def main() -> None:
    """`python -m controlplane.embedded.first_login FOLDER URL DATABASE`; a token of another database is replaced."""
    home, url, database = Home.open(Path(sys.argv[1])), sys.argv[2], sys.argv[3]
    settings = Settings()
    if not home.admin_token.exists() or not knows_token(settings, home.admin_token.read_text(encoding="utf-8").strip()):
        write_private(home.admin_token, first_admin_token(settings) + "\n")
    remember(home, url, database)


if __name__ == "__main__":
    main()
