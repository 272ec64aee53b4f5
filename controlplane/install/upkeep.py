"""What an operator does to a plane now and then: change its signing key, restore it, have agents say hello anew.

Each command says what it did on stderr and can be run again. They act on the database and on the folder of secrets;
the API's processes read a changed key when they start.
"""

import argparse
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from controlplane.bootstrap import build_container, settle_transactions
from controlplane.services import recovery, signing_keys
from controlplane.services.errors import Conflict
from controlplane.services.ports.unit_of_work import UnitOfWork, UnitOfWorkFactory, run
from controlplane.services.recovery import Recovery
from controlplane.settings import settings_of_environment

ACTOR = "operator"
PAUSE_SECONDS = 0.5
WAIT_SECONDS = 120
STEPS: dict[str, Callable[[Path], str | None]] = {
    "next": signing_keys.make_next,
    "promote": signing_keys.promote,
    "retire": signing_keys.retire,
}


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Put the commands beside the others."""
    rotate = commands.add_parser("rotate-signing-key", help="one step: next, promote, retire; new-sessions in between")
    rotate.add_argument("step", choices=sorted(STEPS))
    rotate.add_argument("--folder", type=folder, required=True, help="where the plane's signing key is")
    rotate.set_defaults(upkeep=_rotate)
    hello = commands.add_parser("new-sessions", help="have every agent say hello again, and wait until all have")
    hello.add_argument("--wait", type=int, default=WAIT_SECONDS, metavar="SECONDS", help=f"default: {WAIT_SECONDS}")
    hello.set_defaults(upkeep=_new_sessions)
    recover = commands.add_parser("recovery", help="after a restore: order nothing before each cluster told everything")
    recover.add_argument("what", choices=["begin", "status", "end"])
    recover.add_argument("--without", action="append", default=[], metavar="CLUSTER", help="that will not come (end)")
    recover.set_defaults(upkeep=_recovery)


def folder(given: str) -> Path:
    """A folder's name; "", as an unset variable gives, is refused: it would be the folder that one stands in."""
    if not given.strip():
        raise argparse.ArgumentTypeError("names no folder (is its variable set?)")
    return Path(given)


def _rotate(asked: argparse.Namespace) -> None:
    if not (asked.folder / signing_keys.KEY_FILE).exists():
        raise FileNotFoundError(f"there is no signing key in {asked.folder}")
    signs = STEPS[asked.step](asked.folder)
    _say(
        {
            "next": f"key {signs} comes next; start the API anew, then new-sessions, then promote",
            "promote": f"key {signs} signs now; start the API anew, then new-sessions, then retire",
            "retire": "the key before is offered no longer, once the API has started anew",
        }[asked.step]
    )


def _new_sessions(asked: argparse.Namespace) -> None:
    """Raise Conflict with the names of those that were not heard in time."""

    def work(factory: UnitOfWorkFactory) -> None:
        def ended(uow: UnitOfWork) -> datetime:
            for cluster in uow.agents.end_all_sessions():
                uow.notify_cluster(cluster)
            return uow.now

        since = run(factory, ended)
        deadline = time.monotonic() + asked.wait
        while True:
            with factory() as uow:
                left = uow.agents.without_session_since(since)
            if not left:
                _say("every cluster has said hello")
                return
            if time.monotonic() > deadline:
                raise Conflict(f"not heard within {asked.wait} s: {', '.join(left)}", slug="not-heard")
            time.sleep(PAUSE_SECONDS)

    _with_database(work)


def _recovery(asked: argparse.Namespace) -> None:
    if asked.what == "begin":
        settled = settle_transactions(settings_of_environment())
        if settled:
            _say(f"{settled} rows bore numbers of another server's transactions, and have ours now")

    def work(factory: UnitOfWorkFactory) -> None:
        steps: dict[str, Callable[[UnitOfWork], Recovery]] = {
            "begin": lambda uow: recovery.begin(uow, ACTOR),
            "status": recovery.status,
            "end": lambda uow: recovery.end(uow, ACTOR, asked.without),
        }
        found = run(factory, steps[asked.what])
        if found.since is None:
            _say("no recovery is under way")
        else:
            _say(f"recovering since {found.since.isoformat(timespec='seconds')}; to tell everything: {_names(found)}")

    _with_database(work)


def _names(found: Recovery) -> str:
    return ", ".join(found.waiting) or "nobody any more"


def _with_database(work: Callable[[UnitOfWorkFactory], None]) -> None:
    container = build_container(settings_of_environment())
    try:
        work(container.uow_factory)
    finally:
        container.close()


def _say(line: str) -> None:
    sys.stderr.write(f"muster: {line}\n")
