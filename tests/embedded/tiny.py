"""A supervisor over real servers and a table of trivial processes: `python -m tests.embedded.tiny FOLDER [KIND…]`.

KIND: `steady` runs on; `short` ends at once, always; `parent` starts a child of its own; `unable` is a step that fails.
"""

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded.children import Spec
from controlplane.embedded.errors import AlreadyRunning, Refusal, StartFailed
from controlplane.embedded.home import Home
from controlplane.embedded.supervisor import Supervisor
from controlplane.embedded.table import Step

SLEEP = "import time; time.sleep(600)"
PROGRAMS = {
    "steady": SLEEP,
    "short": "print('began', flush=True); raise SystemExit(5)",
    "parent": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}, sys.argv[1] + '/grandchild'])",
}


@dataclass(frozen=True, slots=True)
class Tiny:
    """A table whose processes need nothing of the plane."""

    home: Home
    kinds: list[str]
    api_url: str = "http://127.0.0.1:1"
    agent_url: str = "http://127.0.0.1:2"

    def environment(self) -> dict[str, str]:
        return {}

    def steps(self) -> list[Step]:
        code = (
            "raise SystemExit('the step is unable')" if "unable" in self.kinds else "import os; os.environ['REDIS_URL']"
        )
        return [Step("prepare", (sys.executable, "-c", code))]

    def specs(self, told: Mapping[str, str]) -> list[Spec]:
        return [
            Spec(kind, (sys.executable, "-c", PROGRAMS[kind], str(self.home.path)), self.home.log(kind), env=told)
            for kind in self.kinds
            if kind in PROGRAMS
        ]


def main() -> None:
    home = Home.open(Path(sys.argv[1]))
    try:
        with home.lock():
            Supervisor(Tiny(home, sys.argv[2:]), random.Random(1).uniform).run()
    except (AlreadyRunning, Refusal, StartFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
