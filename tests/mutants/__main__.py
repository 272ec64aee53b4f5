"""`make mutants`: each mistake in the core is made in a copy and must be found. Names given as arguments pick some."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.machine import Fate, Verdict, copied_to, run_tests, tried
from tests.mutants.mutants import MUTANTS, Mutant


def main(names: list[str]) -> int:
    """0 if every one was killed."""
    chosen = [mutant for mutant in MUTANTS if not names or any(name in mutant.name for name in names)]
    with tempfile.TemporaryDirectory(prefix="muster-mutants-") as folder:
        sound = Path(folder) / "sound"
        copied_to(sound)
        status, output = run_tests(sound, dict.fromkeys(test for mutant in chosen for test in mutant.found_by))
        if status != 0:
            print(f"muster: these tests fail without any mutant:\n{output}")
            return 1

        def attempt(number_and_mutant: tuple[int, Mutant]) -> Verdict:
            number, mutant = number_and_mutant
            return tried(mutant, Path(folder) / str(number))

        fates = []
        with ThreadPoolExecutor(max(1, min(4, os.cpu_count() or 1))) as workers:
            for verdict in workers.map(attempt, enumerate(chosen)):
                print(f"{verdict.fate:9} {verdict.mutant.name} ({verdict.mutant.file}): {verdict.words}", flush=True)
                fates.append(verdict.fate)
    print(f"muster: {fates.count(Fate.KILLED)} of {len(fates)} mutants killed")
    return 0 if all(fate is Fate.KILLED for fate in fates) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
