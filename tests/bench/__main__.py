"""`python -m tests.bench [--profile] [FIGURE …]`: measures figures, a line each, and writes build/bench.json.

Without names it runs the default set. Exit code 2 for a name that is not there; a missed target is told, not punished:
whoever wants a gate reads the verdicts. `--profile` prints where planners' time went.
"""

import sys
import time

from tests.bench.figure_api import cli_start, dry_run, list_of_workloads, submits
from tests.bench.figure_core import cycle_over_many_queues, large_gang_placed, shares_of_random_trees
from tests.bench.figure_explain import advice_done
from tests.bench.figure_node import devices_withdrawn, large_gang
from tests.bench.figure_offline import plan_of_a_thousand_nodes
from tests.bench.figure_placement import large_fleet, other_loads, placement
from tests.bench.figure_plane import idle_memory, warm_start
from tests.bench.figure_planner import decision_among_waiting, planner_killed, whole_lives
from tests.bench.figure_release import release
from tests.bench.figure_start import submit_to_running
from tests.bench.figures import Figure, Result, write_report
from tests.bench.profiling import profiled

FIGURES: dict[str, Figure] = {
    "submit-to-running": submit_to_running,
    "A": placement,
    "A-loads": other_loads,
    "A-large": large_fleet,
    "B": decision_among_waiting,
    "L": planner_killed,
    "Q": whole_lives,
    "D": large_gang_placed,
    "I": cycle_over_many_queues,
    "J": shares_of_random_trees,
    "P": advice_done,
    "warm-start": warm_start,
    "idle-memory": idle_memory,
    "submits": submits,
    "list-first-page": list_of_workloads,
    "apply-dry-run": dry_run,
    "cli-start": cli_start,
    "plan-1000": plan_of_a_thousand_nodes,
    "release": release,
    "devices-withdrawn": devices_withdrawn,
    "large-gang-bound": large_gang,
}


def main(asked: list[str]) -> int:
    profile, names = "--profile" in asked, [name for name in asked if name != "--profile"]
    unknown = sorted(set(names) - set(FIGURES))
    if unknown:
        sys.stderr.write(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}\n")
        return 2
    results: list[Result] = []
    for name in names or FIGURES:
        started = time.monotonic()
        sys.stderr.write(f"bench: {name} …\n")
        for result in _profiled(FIGURES[name]) if profile else FIGURES[name]():
            results.append(result)
            sys.stdout.write(result.line() + "\n")
            sys.stdout.flush()
        sys.stderr.write(f"bench: {name} took {time.monotonic() - started:.0f} s\n")
        write_report(results)
    return 0


def _profiled(figure: Figure) -> list[Result]:
    with profiled() as table:
        results = figure()
        sys.stdout.write(table() + "\n")
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
