"""What `apply` shows and asks: a diff, a basis for exactly that, and a question before anything is deleted."""

import json
import re

from tests.api.bodies import QUEUES, workload
from tests.cli.running import Muster
from tests.cli.terminal import on_a_terminal
from tests.services.planes import Plane
from tests.support.api import Api
from tests.support.databases import Database

QUEUE = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: %s, labels: {managed-by: git}}
spec: {weight: %d, quotas: [{flavor: nvidia-h100-80gb, nominal: %d}]}
---
"""


def queues(*rows: tuple[str, int, int]) -> str:
    return "".join(QUEUE % row for row in rows)


def test_a_dry_run_shows_each_field_and_its_basis_applies_exactly_that(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 1, 8), ("lab/nlp", 2, 8), ("old", 1, 0)))
    wanted = queues(("lab", 1, 8), ("lab/nlp", 3, 4), ("lab/vision", 1, 4))
    said = muster.fine("apply -f - --dry-run", stdin=wanted)
    lines = said.splitlines()
    assert "~ Queue lab/nlp would be changed" in lines
    assert "    /spec/weight: 2 → 3" in lines
    assert "    /spec/quotas/nvidia-h100-80gb/nominal: 8 → 4" in lines
    assert "+ Queue lab/vision would be created" in lines
    assert "= 1 unchanged" in lines
    assert muster("queue show lab/vision").code == 3, "nothing was done"
    basis = re.search(r"--basis (\S+) ", said)
    assert basis
    muster.fine("apply -f -", stdin=queues(("lab/nlp", 5, 8)))
    late = muster(f"apply -f - --basis {basis[1]}", stdin=wanted)
    assert (late.code, "look again" in late.err) == (4, True)
    assert muster("queue show lab/nlp -o json").json["weight"] == 5
    fresh = muster("apply -f - --dry-run -o json", stdin=wanted).json["basis"]
    assert "~ Queue lab/nlp changed" in muster.fine(f"apply -f - --basis {fresh}", stdin=wanted)


def test_the_basis_of_a_dry_run_applies_nothing_where_the_files_say_something_else_by_now(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 1, 8)))
    shown = queues(("lab", 2, 8))
    said = muster.fine("apply -f - --dry-run", stdin=shown)
    basis = said.rpartition("--basis ")[2].split()[0]
    assert muster("apply -f - --dry-run -o json", stdin=shown).json["basis"] == basis, "scripts get the same"
    edited = muster(f"apply -f - --basis {basis}", stdin=queues(("lab", 7, 8)))
    assert (edited.code, "the files or --label say something else" in edited.err) == (4, True)
    pruned = muster(f"apply -f - --basis {basis} --prune --label managed-by=git --yes", stdin=shown)
    assert (pruned.code, "the files or --label say something else" in pruned.err) == (4, True)
    assert muster("queue show lab -o json").json["weight"] == 1
    muster.fine(f"apply -f - --basis {basis}", stdin=shown)
    assert muster("queue show lab -o json").json["weight"] == 2


def test_prune_shows_what_goes_and_asks(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 1, 8), ("old", 1, 0)))
    file = muster.home / "queues.yaml"
    file.write_text(queues(("lab", 1, 8)), encoding="utf-8")
    line = f"apply -f {file} --prune --label managed-by=git"
    alone = muster(line)
    assert (alone.code, "- Queue old would be deleted" in alone.err, "--yes" in alone.err) == (2, True, True)
    no = on_a_terminal(muster, line, typed="n\n")
    assert (no.code, "Go on? [y/N]" in no.out, "nothing was done" in no.out) == (1, True, True)
    assert muster("queue show old").code == 0
    yes = on_a_terminal(muster, line, typed="y\n")
    assert (yes.code, "- Queue old deleted" in yes.out) == (0, True)
    assert muster("queue list -o name").out == "lab\n"
    assert muster.fine(f"{line} --yes") == "= 1 unchanged\n", "nothing goes, so nothing is asked"


def test_prune_wants_a_label_and_a_label_wants_prune(muster: Muster) -> None:
    for options, words in (("--prune", "--prune wants --label"), ("--label a=b", "there is no --prune")):
        ran = muster(f"apply -f - {options}", stdin=queues(("lab", 1, 8)))
        assert (ran.code, words in ran.err) == (2, True)


def test_a_document_that_was_got_is_applied_again_without_a_change(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 3, 8)))
    document = muster.fine("document get Queue lab")
    assert "kind: Queue" in document
    assert muster.fine("apply -f -", stdin=document) == "= 1 unchanged\n"
    assert muster("document get queue lab -o json").json["spec"]["weight"] == 3


def test_a_document_is_found_by_what_the_list_prints_of_it(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 1, 8), ("lab/nlp", 2, 8)))
    printed = muster.fine("document list --kind Queue -o name").split()
    assert printed == ["Queue/lab", "Queue/lab/nlp"]
    assert muster(f"document get {printed[1]} -o json").json["spec"]["weight"] == 2
    muster.fine(f"document delete {printed[1]}")
    assert muster(f"document get {printed[1]}").code == 3
    half = muster("document get Queue")
    assert (half.code, "KIND NAME, or KIND/NAME" in half.err) == (2, True)


def test_a_document_is_edited_in_the_editor_and_put_back(muster: Muster) -> None:
    muster.fine("apply -f -", stdin=queues(("lab", 3, 8)))
    script = muster.home / "editor"
    script.write_text("#!/bin/sh\nsed -i 's/weight: 3/weight: 5/' \"$1\"\n", encoding="utf-8")
    script.chmod(0o700)
    assert "~ Queue lab changed" in muster("document edit Queue lab", EDITOR=str(script)).out
    assert muster("queue show lab -o json").json["weight"] == 5
    unchanged = muster("document edit Queue lab", EDITOR="true")
    assert (unchanged.code, "nothing was changed" in unchanged.err) == (0, True)
    assert muster("document edit Queue lab", EDITOR="false").code == 1
    assert muster("document edit Queue lab", EDITOR="/nowhere/editor").code == 2


def test_names_and_json_are_for_scripts(muster: Muster) -> None:
    sent = queues(("lab", 1, 8), ("lab/nlp", 1, 8))
    assert muster.fine("apply -f - -o name", stdin=sent) == "Queue/lab\nQueue/lab/nlp\n"
    assert json.loads(muster.fine("apply -f - -o json", stdin=sent))["applied"][0]["result"] == "unchanged"
    assert muster.fine("document list --kind queue --label managed-by=git -o name") == "Queue/lab\nQueue/lab/nlp\n"


def test_a_dry_run_with_a_plan_shows_who_would_start_wait_and_leave(
    api: Api, database: Database, muster: Muster
) -> None:
    plane = Plane(database)
    plane.cluster("eu-west", nodes=8, namespaces=["nlp", "vision"])
    muster.fine("apply -f -", stdin=QUEUES)
    for name, queue in (("mine", "research/nlp"), ("theirs", "research/vision")):
        muster.fine("submit -f -", stdin=json.dumps(workload(name, queue=queue)))
    plane.planner().step()
    plane.close()
    less = QUEUES.replace("nominal: 128, borrow: 64", "nominal: 64").replace(
        "vision\n  quotas: [{flavor: nvidia-h100-80gb, nominal: 64",
        "vision\n  quotas: [{flavor: nvidia-h100-80gb, nominal: 0",
    )
    said = muster.fine("apply -f - --dry-run --plan", stdin=f"{less}---\n{json.dumps(workload('late'))}\n")
    lines = said.splitlines()
    assert (
        "By the next cycle of pool default: 0 start, 1 wait (without: 0), 1 leave (without: 0), 1 run on (without: 2)"
        in lines
    )
    leaves = "- theirs of research/vision would have to leave in eu-west for late (32 nvidia-h100-80gb)"
    assert f"{leaves}; without these documents it runs on" in lines
    assert "~ late of research/nlp would wait" in lines
    assert any("are being given back for this workload. [waits-for-reclaim]" in line for line in lines)
    assert muster("describe late").code == 3, "nothing was done"


def test_a_plan_wants_a_dry_run(muster: Muster) -> None:
    ran = muster("apply -f - --plan", stdin=queues(("lab", 1, 8)))
    assert (ran.code, "there is no --dry-run" in ran.err) == (2, True)
