"""Images in the place of python, postgres and redis where no registry can be reached: one Debian, made by debootstrap.

They take the same environment and commands as the images whose place they take, so docker-compose.yml stays as it is.
What pip needs to know on this machine (its settings, the certificates that are trusted) goes with them.
"""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.compose.engine import Engine, Failed, NoEngine, run, say

SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates,postgresql,redis-server"
SOURCES = (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*")))
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP = Path("/etc/pip.conf")

BASE = """\
FROM muster-check/debian
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY pip.conf /etc/pip.conf
RUN ln -sf python3 /usr/bin/python
"""
POSTGRES = """\
FROM muster-check/debian
COPY entry /usr/local/bin/entry
RUN chmod 0755 /usr/local/bin/entry && chown -R postgres:postgres /var/lib/postgresql
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
USER postgres
ENTRYPOINT ["entry"]
"""
POSTGRES_ENTRY = """\
#!/bin/sh
set -eu
data=/var/lib/postgresql/data
if [ ! -s "$data/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
  initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \\
    --locale=C --encoding=UTF8
  rm /tmp/password
  echo 'host all all all scram-sha-256' >> "$data/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D "$data" postgres
fi
exec postgres -D "$data" -h '*' -k /tmp
"""
REDIS = """\
FROM muster-check/debian
USER redis
WORKDIR /tmp
"""


def images(engine: Engine, cache: Path) -> dict[str, str]:
    """The variables of docker-compose.yml that name them, once they are built."""
    base = cache / f"debian-{SUITE}.tar"
    if not base.exists():
        if not shutil.which("debootstrap"):
            raise NoEngine("no registry gives python:3.12-slim, and there is no debootstrap to do without")
        _bootstrap(base)
    say("building images in the place of python, postgres and redis")
    with base.open("rb") as archive:
        subprocess.run(
            ("docker", "import", "-", "muster-check/debian"), stdin=archive, env=dict(engine.environment), check=True,
            capture_output=True, timeout=600,
        )  # fmt: skip
    pip = PIP.read_bytes() if PIP.exists() else b""
    _build(
        engine,
        "muster-check/python",
        {"Dockerfile": BASE.encode(), "ca-certificates.crt": CERTIFICATES.read_bytes(), "pip.conf": pip},
    )
    _build(engine, "muster-check/postgres", {"Dockerfile": POSTGRES.encode(), "entry": POSTGRES_ENTRY.encode()})
    _build(engine, "muster-check/redis", {"Dockerfile": REDIS.encode()})
    return {
        "BASE_IMAGE": "muster-check/python",
        "POSTGRES_IMAGE": "muster-check/postgres",
        "REDIS_IMAGE": "muster-check/redis",
    }


def _build(engine: Engine, tag: str, files: Mapping[str, bytes]) -> None:
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for name, raw in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    engine.docker("build", "--network", "none", "--tag", tag, "-", given=context.getvalue())


def _bootstrap(target: Path) -> None:
    """A minimal Debian with what the three images need; raises Failed."""
    say(f"making a Debian with {PACKAGES} by debootstrap; once, a few minutes; it is kept in {target.parent}")
    root = target.with_suffix(".root")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    try:
        run(("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), _mirror()))
        for waste in (root / "var/cache/apt/archives", root / "usr/share/doc", root / "usr/share/locale"):
            shutil.rmtree(waste, ignore_errors=True)
        draft = target.with_suffix(".new")
        run(("tar", "-C", str(root), "--numeric-owner", "-cf", str(draft), "."))
        draft.replace(target)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _mirror() -> str:
    """Where this machine's own apt fetches Debian from; raises Failed."""
    for file in (each for each in SOURCES if each.is_file()):
        for line in file.read_text().splitlines():
            words = line.split()
            if words[:1] == ["URIs:"]:
                return words[1]
            if words[:1] == ["deb"] and SUITE in words:
                return words[words.index(SUITE) - 1]
    raise Failed("apt's sources name no mirror that debootstrap could use")
