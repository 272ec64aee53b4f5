"""Files and folders that somebody names: read whole and in order, or refused with the name of what is wrong."""

import json
import os
from pathlib import Path

import pytest

from controlplane.cli.files import BYTES_MAX
from tests.cli.running import Muster

QUEUE = "apiVersion: muster.dev/v1\nkind: Queue\nmetadata: {name: %s}\n"


def queue(file: Path, name: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(QUEUE % name, encoding="utf-8")


def test_a_folder_is_read_deep_by_name_without_what_is_hidden(muster: Muster, tmp_path: Path) -> None:
    org = tmp_path / "org"
    queue(org / "10-root.yaml", "lab")
    queue(org / "20-teams" / "a.yml", "lab/vision")
    document = {"apiVersion": "muster.dev/v1", "kind": "Queue"}
    both = [{**document, "metadata": {"name": name}} for name in ("lab/nlp", "lab/speech")]
    (org / "30.json").write_text(json.dumps(both), encoding="utf-8")
    queue(org / ".git" / "hidden.yaml", "hidden")
    (org / "README.md").write_text("no document", encoding="utf-8")
    real = tmp_path / "elsewhere"
    queue(real / "linked.yaml", "lab/audio")
    (org / "40-linked").symlink_to(real)
    assert muster.fine(f"apply -f {org} -o name").split() == [
        "Queue/lab", "Queue/lab/vision", "Queue/lab/nlp", "Queue/lab/speech", "Queue/lab/audio",
    ]  # fmt: skip


def test_a_link_that_leads_back_is_refused(lonely: Muster, tmp_path: Path) -> None:
    org = tmp_path / "org"
    queue(org / "a.yaml", "lab")
    (org / "deep").mkdir()
    (org / "deep" / "up").symlink_to(org)
    ran = lonely(f"apply -f {org}")
    assert (ran.code, f"{org}/deep/up is a link to a folder that it lies in" in ran.err) == (2, True)


@pytest.mark.timeout(30)
def test_what_is_no_file_of_documents_is_refused_at_once(lonely: Muster, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "itself.yaml").symlink_to(tmp_path / "itself.yaml")
    (tmp_path / "empty").mkdir()
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(1 << 30)
    for name, words in (
        ("fifo.yaml", "fifo.yaml is no regular file"),
        ("itself.yaml", "cannot read"),
        ("empty", "there is no .yaml, .yml, .json in"),
        ("huge.yaml", "huge.yaml is larger than 1024 KiB"),
        ("nowhere.yaml", "nowhere.yaml: No such file"),
    ):
        for command in ("apply", "submit"):
            ran = lonely(f"{command} -f {tmp_path / name}")
            assert ran.code == 2, name
            assert words in ran.err or command == "submit"


def test_a_folder_of_more_than_the_plane_takes_is_refused_before_it_is_sent(lonely: Muster, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("#" * (BYTES_MAX // 2 + 1), encoding="utf-8")
    ran = lonely(f"apply -f {tmp_path}")
    assert (ran.code, "all files together are larger than 1024 KiB" in ran.err) == (2, True)


def test_a_fault_among_many_files_names_its_file(muster: Muster, tmp_path: Path) -> None:
    queue(tmp_path / "org" / "a.yaml", "lab")
    (tmp_path / "org" / "b.yaml").write_text(QUEUE % "lab/vision" + "spec: {frobnicate: 1}\n", encoding="utf-8")
    ran = muster(f"apply -f {tmp_path / 'org'}")
    assert (ran.code, "org/b.yaml" in ran.err, "org/a.yaml" in ran.err) == (2, True, False)
    (tmp_path / "org" / "b.yaml").write_text("kind: [", encoding="utf-8")
    ran = muster(f"apply -f {tmp_path / 'org'}")
    assert (ran.code, "org/b.yaml" in ran.err) == (2, True)
    assert muster("queue list -o json").json == [], "all of them, or none"
