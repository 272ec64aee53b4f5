"""What happens when: the stream of gangs, and between them a borrow, a reclaim, failures and a dark cluster.

Each scene is told as a sentence. Times are seconds from the first gang.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from controlplane.embedded.demo.cast import Cast
from controlplane.embedded.demo.stream import Gang, gangs

SEED = 20
STREAM_SECONDS = 40.0
PER_SECOND = 3.2
BORROWED_FLAVOR = "nvidia-h200-141gb"


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing that happens `at` seconds; `play` does it and returns the sentence."""

    at: float
    play: Callable[[], str]


def scenes(cast: Cast, submit: Callable[[Gang], None], seconds: float = STREAM_SECONDS) -> list[Scene]:
    """All scenes of the demonstration, in order of time; a shorter one has the same scenes closer together."""
    pace = seconds / STREAM_SECONDS
    stream = [Scene(gang.at / pace, _submitting(gang, submit)) for gang in gangs(SEED, seconds, PER_SECOND)]
    borrow = [Scene(6.0 + number / 4, _submitting(gang, submit)) for number, gang in enumerate(_borrowers())]
    owners = [Scene(14.0 + number / 4, _submitting(gang, submit)) for number, gang in enumerate(_owners())]
    special = [
        Scene(6.0, lambda: "language borrows: gangs for H200 cards beyond its own quota"),
        Scene(14.0, lambda: "assistant wants its own H200 cards back"),
        Scene(22.0, lambda: _fault(cast, "us-h100", do="fail-node", lasting=15)),
        Scene(28.0, lambda: _fault(cast, "eu-gb200", do="cut-link", lasting=12)),
        Scene(34.0, lambda: _killed(cast, "worker")),
        Scene(38.0, lambda: _killed(cast, "planner")),
    ]
    told = [*stream, *borrow, *owners, *special]
    return sorted((Scene(scene.at * pace, scene.play) for scene in told), key=lambda scene: scene.at)


def _submitting(gang: Gang, submit: Callable[[Gang], None]) -> Callable[[], str]:
    def play() -> str:
        submit(gang)
        return ""

    return play


def _borrowers() -> Iterator[Gang]:
    for number in range(4):
        yield Gang(
            name=f"language-pretrain-{number + 1}",
            queue="company/research/language",
            pods=8,
            devices=8,
            flavors=(BORROWED_FLAVOR,),
            run_seconds=14,
            level="rack",
        )


def _owners() -> Iterator[Gang]:
    for number in range(2):
        yield Gang(
            name=f"assistant-tune-{number + 1}",
            queue="company/product/assistant",
            pods=8,
            devices=8,
            flavors=(BORROWED_FLAVOR,),
            run_seconds=8,
            level="rack",
        )


def _fault(cast: Cast, cluster: str, **fault: object) -> str:
    return f"{cluster}: {cast.agents[cluster].tell(**fault)}"


def _killed(cast: Cast, name: str) -> str:
    return f"kill -9 of the {name}" if cast.kill(name) else f"no {name} was there to kill"
