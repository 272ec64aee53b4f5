"""A process of its own that holds servers until it is told or made to end: `holder.py FOLDER`."""

import json
import sys
from pathlib import Path

from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.servers import running


def main() -> None:
    """Say in one JSON line where the servers are, then hold them until standard input ends."""
    try:
        with running(Path(sys.argv[1])) as servers:
            assert servers.postgres
            assert servers.valkey
            urls = {"postgres": servers.postgres.url(), "valkey": servers.valkey.url()}
            kind = servers.postgres.identity.kind.value
            print(json.dumps({**urls, "title": servers.postgres.title, "identity": kind}), flush=True)
            sys.stdin.read()
    except (AlreadyRunning, Refusal, StartFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
