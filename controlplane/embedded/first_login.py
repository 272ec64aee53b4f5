"""A step of the first start, after the migrations: the first admin's token is made, and the CLI learns of the plane."""

import sys
from pathlib import Path

from controlplane.bootstrap import first_admin_token
from controlplane.embedded.cli_config import remember
from controlplane.embedded.home import Home, write_private
from controlplane.settings import Settings


def main() -> None:
    """`python -m controlplane.embedded.first_login FOLDER URL`."""
    home, url = Home.open(Path(sys.argv[1])), sys.argv[2]
    if not home.admin_token.exists():
        write_private(home.admin_token, first_admin_token(Settings()) + "\n")
    remember(home, url)


if __name__ == "__main__":
    main()
