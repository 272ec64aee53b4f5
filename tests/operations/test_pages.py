"""What the operations pages tell to type is typed here, as it stands there, on a plane at work."""

import base64
import contextlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.contract.agent.attempts import LABEL_WORKLOAD
from controlplane.embedded.postgres import SUPERUSER, Postgres
from controlplane.services.signing import load_signer
from tests.helm.render import AGENT, AGENT_CHART, NAMESPACE, helm
from tests.kube.client import Json
from tests.kube.cluster import KubeCluster
from tests.kube.objects import NodeShape
from tests.kube.processes import Program
from tests.operations import pages
from tests.operations.fleet import ROOT, Fleet, a_gang, fleet
from tests.support.databases import Database
from tests.support.waiting import eventually

PLANE = ("api-1", "worker-1", "planner-1")


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder to type in, with the charts where the pages expect them."""
    folder = tmp_path / "shell"
    folder.mkdir()
    (folder / "helm").symlink_to(ROOT / "helm")
    return folder


@contextmanager
def a_plane(folder: Path, database: Database, valkey: str) -> Iterator[Fleet]:
    with fleet(folder, database, valkey) as whole:
        for name in PLANE:
            whole.start(name)
        whole.serve_from("api-1")
        whole.open_queue()
        yield whole


@pytest.mark.timeout(400)
def test_every_secret_is_changed_and_the_plane_is_upgraded_as_the_pages_say_while_work_goes_on(
    database: Database, valkey: str, postgres: Postgres, tmp_path: Path, shell: Path
) -> None:
    tokens, offer, hello, sign, drop, _, _, role = pages.blocks("rotate-secrets.md")
    secrets = tmp_path / "secrets"
    with a_plane(tmp_path, database, valkey) as whole:
        whole.add_cluster("east")
        told = whole.environment()
        pages.typed(tokens, shell, told)
        assert (shell / "ada.token").stat().st_mode & 0o777 == 0o600

        first = load_signer(secrets).thumbprint
        for number, (block, is_restarted) in enumerate(((offer, True), (hello, False), (sign, True), (drop, True)), 1):
            said = pages.typed(block, shell, told)
            if is_restarted:
                whole.restart("api-1")
                whole.serve_from("api-1")
            assert "not heard" not in said
            whole.ask("POST", "/workloads", a_gang(f"after-step-{number}", 1), key=os.urandom(8).hex())
            whole.until_done(number)  # so the agent obeyed whichever key signed
        signer = load_signer(secrets)
        assert signer.thumbprint != first
        assert len(signer.public_keys()) == 1
        _upgraded(whole, shell)
        whole.ask("POST", "/workloads", a_gang("after-the-upgrade", 1), key=os.urandom(8).hex())
        whole.until_done(5)

        told["ADMIN_DATABASE_URL"] = postgres.url(SUPERUSER, database.name)
        try:
            pages.typed(role, shell, told, postgres)
            second = told["DATABASE_URL"].partition("@")[2]
            asked = pages.typed(
                "python -m controlplane.install first-admin --again --file - | cut -c1-3",
                shell,
                {**told, "DATABASE_URL": f"postgresql://muster_b:change-me@{second}"},
            )
            assert asked == "mst\n", "the plane's code works as the second role"
        finally:
            with contextlib.suppress(AssertionError):
                pages.typed('psql "$ADMIN_DATABASE_URL" -c "DROP ROLE IF EXISTS muster_b"', shell, told, postgres)


def _upgraded(whole: Fleet, shell: Path) -> None:
    migrate, probe, look = pages.blocks("upgrade.md")
    told = whole.environment()
    pages.typed(migrate, shell, told)
    for name in PLANE:
        whole.restart(name)
    whole.serve_from("api-1")
    assert '"ready":true' in pages.typed(probe, shell, told).replace(" ", "")
    pages.typed(look, shell, told)


@pytest.mark.timeout(400)
def test_an_agent_goes_and_comes_back_and_the_glass_is_broken_as_the_pages_say(
    kube: KubeCluster, database: Database, valkey: str, tmp_path: Path, shell: Path
) -> None:
    """KWOK's pods of the agent's Deployment run nothing; a process with their rights stands for them."""
    _furnish(kube)
    with a_plane(tmp_path, database, valkey) as whole:
        told = _environment(whole, kube)
        _open_queue(whole)
        away, back = pages.blocks("uninstall-an-agent.md")
        pages.typed("muster cluster create eu-west", shell, told)
        agent = _Pod(whole, kube, tmp_path)

        pages.typed(back, shell, told)
        agent.start()
        whole.until_cluster("eu-west", "enrolled")
        pages.typed("muster cluster accept eu-west", shell, told)
        whole.until_cluster("eu-west", "ready")
        submit(whole, "runs", 2)
        until(whole, "runs", "running")
        runs = pods(kube)
        agent.kill()
        _gated_gang(kube, runs[0])
        gated = kube.wait_for(lambda: [raw for raw in pods(kube) if raw["spec"].get("schedulingGates")], "gated pods")

        said = pages.typed(away, shell, told)
        assert runs[0]["metadata"]["name"] in said
        assert helm("list", "--namespace", NAMESPACE, "--kubeconfig", str(kube.kubeconfig)).stdout.count(AGENT) == 0
        assert not kube.client.find("Secret", "muster-agent-key", NAMESPACE)
        assert versions(pods(kube)) == versions([*runs, *gated]), "nothing of any workload was touched"
        assert whole.ask("GET", "/workloads/runs")["state"] == "running"

        look_and_do, part = pages.blocks("break-glass.md")
        assert "would let go 1 pods" in pages.typed(look_and_do, shell, told)
        kube.wait_for(lambda: all(raw["status"]["phase"] == "Running" for raw in pods(kube)), "every pod")
        assert "let go 0 pods" in pages.typed(part, shell, told)

        (shell / "eu-west.token").unlink()
        pages.typed(back, shell, told)
        agent.start()
        eventually(lambda: agent.has_said("session opened"), 60, f"a new Session; {agent.words()}")
        for raw in runs:
            kube.end_pod("nlp", raw["metadata"]["name"])
        until(whole, "runs", "succeeded")

        again, anew = pages.blocks("re-enrol.md")
        (shell / "eu-west.token").unlink()
        ban_and_give, _, wait = again.partition("until")
        pages.typed(ban_and_give, shell, told)
        assert whole.ask("GET", "/clusters/eu-west")["agent"] == "banned", "so that what the page waits for is to come"
        agent.mount()
        eventually(lambda: agent.has_said('"enrolled"'), 60, f"the agent to enrol again; {agent.words()}")
        pages.typed(f"until{wait}", shell, told)
        submit(whole, "after", 1)
        until(whole, "after", "running")
        agent.kill()
        (shell / "eu-west.token").unlink()
        pages.typed(anew, shell, told)
        assert whole.ask("GET", "/clusters/eu-west")["state"] == "created"


class _Pod:
    """Stands for the Deployment's pod: the agent, with the account and the Secrets that the chart gives it."""

    def __init__(self, whole: Fleet, kube: KubeCluster, folder: Path) -> None:
        self._whole = whole
        self._kube = kube
        self._folder = folder
        self._token = folder / "mounted-token"
        self._program: Program | None = None
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        self.mount()
        account = self._kube.service_account_kubeconfig(NAMESPACE, AGENT)
        command = [
            "env", "-C", str(ROOT), "MUSTER_AGENT_BACKOFF_SECONDS_MAX=1", sys.executable, "-m", "agents.main", "run",
            "--kubeconfig", str(account), "--plane-url", f"http://127.0.0.1:{self._whole.agents.port}",
            "--cluster", "eu-west", "--token-file", str(self._token),
        ]  # fmt: skip
        self._program = Program(f"agent-{self._starts}", command, self._folder)
        self._whole.programs["agent"] = self._program
        self._program.start()

    def kill(self) -> None:
        assert self._program is not None
        self._program.kill()

    def mount(self) -> None:
        """What the kubelet does with the Secret: it follows it."""
        secret = self._kube.client.get("Secret", "muster-agent-enrolment", NAMESPACE)
        self._token.write_bytes(base64.b64decode(secret["data"]["token"]))

    def has_said(self, event: str) -> bool:
        return event in self.words()

    def words(self) -> str:
        assert self._program is not None
        return self._program.last_words()


def _furnish(kube: KubeCluster) -> None:
    helm("version")  # skips, and says why, where there is neither helm nor kubectl
    kube.add_nodes(4, NodeShape(gpus=8))
    for name in (NAMESPACE, "nlp"):
        kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    kube.wait_for(lambda: kube.client.find("ServiceAccount", "default", "nlp"), "the account")


def _environment(whole: Fleet, kube: KubeCluster) -> dict[str, str]:
    where = {"KUBECONFIG": str(kube.kubeconfig), "PLANE_URL": f"http://127.0.0.1:{whole.agents.port}"}
    return whole.environment() | where


def _open_queue(whole: Fleet) -> None:
    spec = {"namespace": "nlp", "quotas": [{"flavor": "nvidia-h100-80gb", "nominal": 32}]}
    document = {"apiVersion": "muster.dev/v1", "kind": "Queue", "metadata": {"name": "nlp"}, "spec": spec}
    whole.ask("POST", "/apply", document)


def submit(whole: Fleet, name: str, count: int) -> None:
    document = a_gang(name, count)
    document["spec"]["queue"] = "nlp"
    whole.ask("POST", "/workloads", document, key=os.urandom(8).hex())


def until(whole: Fleet, name: str, state: str) -> None:
    def has_state() -> bool:
        seen = whole.ask("GET", f"/workloads/{name}")["state"]
        assert seen == state, f"{name} is {seen}; {whole.said()}"
        return True

    eventually(has_state, 90, f"{name} {state}", pause=0.2)


def pods(kube: KubeCluster) -> list[Json]:
    found = kube.client.list_all("Pod", "nlp", labels=LABEL_WORKLOAD)
    return sorted(found, key=lambda raw: str(raw["metadata"]["name"]))


def versions(raws: list[Json]) -> dict[str, str]:
    return {raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"] for raw in raws}


def _gated_gang(kube: KubeCluster, like: Json) -> None:
    """A pod of ours that nobody has let go yet: another Workload's, in the shape of one that runs."""
    labels = {**like["metadata"]["labels"], LABEL_WORKLOAD: "0197a000-0000-7000-8000-0000000000aa"}
    labels = {name: text for name, text in labels.items() if name.startswith("muster.dev/")}
    container = {"name": "main", "image": "registry.example/train@sha256:" + "0" * 64}
    gate = {"schedulingGates": [{"name": "muster.dev/placement"}], "priorityClassName": "muster-workload"}
    kube.client.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "waits", "namespace": "nlp", "labels": labels},
            "spec": {"containers": [container], **gate},
        }
    )


def test_every_page_is_typed_by_a_test_and_names_no_page_that_is_not_there() -> None:
    names = {page.name for page in pages.PAGES.glob("*.md")}
    tests = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in sorted(names) if f'blocks("{name}")' not in tests] == []
    linked = {word for page in pages.PAGES.glob("*.md") for word in _links(page)}
    assert linked <= names
    assert AGENT_CHART.is_dir()


def _links(page: Path) -> list[str]:
    return re.findall(r"\]\(([a-z-]+\.md)\)", page.read_text())
