"""The command `muster-agent`: reads settings, puts the parts together, and runs the loop until it is told to stop.

Exit codes: 0 stopped by SIGTERM or SIGINT; 2 settings, policy or world that cannot be used; 3 an identity that cannot
be read; 4 another replica leads now; 1 anything else. One JSON object per line on stderr. A plane or an API server that
does not answer is no reason to end.
"""

import argparse
import asyncio
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog
from pydantic import ValidationError

from agents import health, policy
from agents.cluster import Cluster, ClusterUnreachable, LeadershipLost
from agents.enrolment import Enroller
from agents.identity import FileStore, IdentityUnreadable, Keeper, KeyStore
from agents.loop import Agent
from agents.settings import AgentSettings
from agents.transport import Transport

EXIT_UNUSABLE = 2
EXIT_IDENTITY = 3
EXIT_NOT_LEADING = 4
FLAGS = (
    *("plane_url", "cluster", "token_file", "namespace", "policy_file", "state_dir"),
    *("speed", "control_port", "health_port"),
)
log = structlog.get_logger()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what it returns is the exit code."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.command == "release":
        return _release(parser, chosen)
    try:
        settings = AgentSettings(**_stated(chosen))
        configure_logging(settings.log_level)
        local_policy = policy.read(settings.policy_file)
        return asyncio.run(_run(settings, local_policy, chosen))
    except ValidationError as error:
        for fault in error.errors():
            name = ".".join(str(part) for part in fault["loc"]) or "settings"
            sys.stderr.write(f"muster-agent: {name}: {fault['msg'].removeprefix('Value error, ')}\n")
        return EXIT_UNUSABLE
    except (policy.PolicyUnreadable, Unusable) as error:
        sys.stderr.write(f"muster-agent: {error}\n")
        return EXIT_UNUSABLE
    except IdentityUnreadable as error:
        sys.stderr.write(f"muster-agent: {error}\n")
        return EXIT_IDENTITY


class Unusable(Exception):
    """The command cannot be run as it was given."""


def configure_logging(level: str) -> None:
    """One JSON object per line to stderr."""
    number = logging.getLevelNamesMapping()[level]
    logging.basicConfig(level=number, format="%(message)s", stream=sys.stderr, force=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def _run(settings: AgentSettings, local_policy: policy.LocalPolicy, chosen: argparse.Namespace) -> int:
    instance = settings.instance or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"
    settings = settings.model_copy(update={"instance": instance})
    pulse = health.Pulse()
    probes = await _probes(settings, pulse)
    cluster, store, link_is_up = await _cluster(settings, chosen, local_policy, pulse)
    keeper = Keeper(store)
    enroller = Enroller(Transport(settings, keeper, link_is_up), keeper, settings.token_file)
    agent = asyncio.create_task(Agent(settings, cluster, enroller, local_policy, pulse).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.cancel)
    try:
        await agent
    except asyncio.CancelledError:
        log.info("stopped")
    except BaseExceptionGroup as group:
        if group.subgroup(LeadershipLost) is None:
            raise
        log.warning("another replica leads now")
        return EXIT_NOT_LEADING
    finally:
        if probes is not None:
            probes.close()
    return 0


async def _probes(settings: AgentSettings, pulse: health.Pulse) -> asyncio.Server | None:
    if not settings.health_port:
        return None
    try:
        return await health.listen(pulse, settings.health_port)
    except health.PortTaken as error:
        raise Unusable(str(error)) from error


async def _cluster(
    settings: AgentSettings, chosen: argparse.Namespace, local_policy: policy.LocalPolicy, pulse: health.Pulse
) -> tuple[Cluster, KeyStore, Callable[[], bool] | None]:
    """The workload cluster, where the key lies, and (simulated) whether the link to the plane is up."""
    if chosen.simulated is not None:
        return await _simulated(settings, chosen.simulated)
    # Late, because it takes a second and 74 MB that a simulated cluster does not need.
    from agents.kube.client import KubeconfigUnusable  # noqa: PLC0415 - see above
    from agents.kube.cluster import connect  # noqa: PLC0415 - see above

    def is_allowed(namespace: str) -> bool:
        return policy.allows_namespace(local_policy, namespace)

    try:
        cluster, store = await connect(settings, chosen.kubeconfig, settings.instance, is_allowed, pulse)
    except KubeconfigUnusable as error:
        raise Unusable(str(error)) from error
    return cluster, FileStore(settings.state_dir) if settings.state_dir else store, None


async def _simulated(settings: AgentSettings, world_file: Path) -> tuple[Cluster, KeyStore, Callable[[], bool]]:
    from agents.simulated import faults, worlds  # noqa: PLC0415 - a real cluster needs none of it
    from agents.simulated.cluster import SimulatedCluster  # noqa: PLC0415 - the same

    if settings.state_dir is None:
        raise Unusable("a simulated cluster keeps its key in a file: give --state-dir")
    try:
        world = worlds.read(world_file, settings.cluster)
    except worlds.WorldUnreadable as error:
        raise Unusable(str(error)) from error
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    cluster = SimulatedCluster(world, speed=settings.speed)
    await cluster.open()  # before anybody can break it
    if settings.control_port is not None:
        await faults.listen(cluster, settings.control_port, settings.state_dir)
    faults.schedule(cluster, world.faults, [raw["metadata"]["name"] for raw in world.nodes])
    return cluster, FileStore(settings.state_dir), cluster.link_is_up


def _release(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    """Exit code 0: nothing that was asked for is gated any more; 1: something is, and it was said what and why."""
    if chosen.all == bool(chosen.namespace or chosen.workload):
        parser.error("release: say which pods: --all, or --namespace and --workload")
    # Late, as in `_cluster`.
    from agents.kube.client import KubeconfigUnusable, connect  # noqa: PLC0415 - see above
    from agents.release import ReleaseImpossible, Selection, release, summary  # noqa: PLC0415 - see above

    async def carried_out() -> int:
        client = await connect(chosen.kubeconfig)
        selection = Selection(tuple(chosen.namespace), tuple(chosen.workload), even_ended=chosen.even_ended)
        try:
            report = await release(client, selection, _say, dry_run=chosen.dry_run)
        finally:
            await client.close()
        _say(summary(report, dry_run=chosen.dry_run))
        return 1 if report.failed else 0

    configure_logging("WARNING")
    try:
        return asyncio.run(carried_out())
    except KubeconfigUnusable as error:
        sys.stderr.write(f"muster-agent: {error}\n")
        return EXIT_UNUSABLE
    except (ClusterUnreachable, ReleaseImpossible) as error:
        sys.stderr.write(f"muster-agent: {error}\n")
        return 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _stated(chosen: argparse.Namespace) -> dict[str, Any]:
    """Flags that were given; the environment has the rest."""
    return {name: value for name in FLAGS if (value := getattr(chosen, name)) is not None}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="muster-agent", description="Carries out in one cluster what Muster decides.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_release(commands.add_parser("release", help="break glass: take our gates off; needs no plane and no agent"))
    run = commands.add_parser("run", help="run until stopped; every flag is also MUSTER_AGENT_<FLAG>")
    where = run.add_mutually_exclusive_group()
    where.add_argument("--kubeconfig", type=Path, help="speak to the cluster of this file; absent: the one we run in")
    where.add_argument("--simulated", type=Path, metavar="WORLD", help="play the cluster of this world file in memory")
    run.add_argument("--plane-url", help="the plane's listener for agents")
    run.add_argument("--cluster", help="name of the Cluster, as the plane knows it")
    run.add_argument("--token-file", type=Path, help="one-time enrolment token")
    run.add_argument("--namespace", help="where our Secret and Lease are")
    run.add_argument("--policy-file", type=Path, help="local policy")
    run.add_argument("--state-dir", type=Path, help="keep the key in a file here")
    run.add_argument("--speed", type=float, help="of a simulated cluster's time")
    run.add_argument("--control-port", type=int, help="loopback port for faults of a simulated cluster; 0: any")
    run.add_argument("--health-port", type=int, help="answer /livez and /readyz here, on all interfaces; 0: nowhere")
    return parser


def _add_release(release: argparse.ArgumentParser) -> None:
    release.add_argument("--kubeconfig", type=Path, help="speak to the cluster of this file; absent: the one we run in")
    release.add_argument("--all", action="store_true", help="every gated pod of ours in the cluster")
    release.add_argument("--namespace", action="append", default=[], help="only here; may be repeated")
    release.add_argument("--workload", action="append", default=[], help="only of this name or uid; may be repeated")
    release.add_argument("--even-ended", action="store_true", help="also of Attempts that were ordered to end")
    release.add_argument("--dry-run", action="store_true", help="say what would be let go, and change nothing")


if __name__ == "__main__":
    sys.exit(main())
