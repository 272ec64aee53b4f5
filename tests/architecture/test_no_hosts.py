"""No file names a package index, a mirror or a path of the machine that it was written on.

Where packages come from is the business of each machine's own settings; a lock or a script that names a host breaks
behind a company's mirror. The patterns are put together from parts here, so that this file does not find itself.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.architecture.sources import ROOT, named, source_files

PUBLIC_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("pypi", "python", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("goproxy", "io"),
        ("goproxy", "cn"),
        ("crates", "io"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("repo", "maven", "apache", "org"),
    )
)
# What a machine's own clients say about where they fetch: (program, arguments).
CLIENTS = (
    ("pip", ("config", "list")),
    ("pip3", ("config", "list")),
    ("npm", ("config", "get", "registry")),
    ("go", ("env", "GOPROXY", "GOSUMDB")),
)
VARIABLES = re.compile(r"^(PIP|UV|NPM|GO|CARGO|npm_config)_?.*(INDEX|REGISTRY|PROXY|LINKS|MIRROR)", re.IGNORECASE)
APT = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d"))
PIP = (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"), Path.home() / ".config/pip/pip.conf")
HOST = re.compile(r"^(?=.{4,253}$)[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)*\.[a-z]{2,}$")
URL = re.compile(r"(?:https?|ftp|mirror\+[a-z]+)://[^\s'\"\\,|\]]+")
NOT_IN_A_NAME = (r"(?<![A-Za-z0-9-])", r"(?![A-Za-z0-9-])")
COMMON_TOPS = frozenset({"", "app", "builds", "code", "home", "mnt", "opt", "src", "srv", "tmp", "usr", "var"})
NEVER = frozenset({"localhost", "localhost.localdomain", "github.com"})


def test_no_file_names_a_package_index_or_a_mirror() -> None:
    pattern = _any_of(forbidden_hosts())
    assert sorted(_hits(pattern)) == []


def test_no_file_names_a_path_of_this_machine() -> None:
    pattern = _any_of(_machine_paths(), before=r"(?<![\w.$}/-])", after="")
    assert sorted(_hits(pattern)) == []


@pytest.mark.parametrize("host", PUBLIC_HOSTS)
def test_a_host_that_is_there_would_be_found(host: str) -> None:
    pattern = _any_of(forbidden_hosts())
    assert pattern.search(f"    --index-url https://{host}/simple")
    assert pattern.search(f"resolved https://files.{host}/x.whl")
    assert not pattern.search(f"x{host}") or host.startswith(("pypi", "npm"))


def test_the_machines_own_settings_are_read() -> None:
    address = "://".join(("https", "wheels.corp.example:8443/simple"))
    assert _hosts_in(f"global.index-url='{address}'") == {"wheels.corp.example"}
    assert _hosts_in("http://localhost:4873/ http://127.0.0.1:3141/ direct off") == set()


@cache
def forbidden_hosts() -> frozenset[str]:
    told = "\n".join([*_what_clients_say(), *_what_files_say(), *_what_variables_say()])
    return frozenset(PUBLIC_HOSTS) | _hosts_in(told)


def _what_clients_say() -> Iterator[str]:
    for program, arguments in CLIENTS:
        if shutil.which(program):
            run = subprocess.run(
                (program, *arguments), capture_output=True, text=True, check=False, timeout=60, cwd=ROOT.parent
            )
            yield run.stdout


def _what_files_say() -> Iterator[str]:
    for place in (*APT, *PIP):
        files = place.glob("*") if place.is_dir() else [place]
        yield from (file.read_text(errors="replace") for file in files if file.is_file() and os.access(file, os.R_OK))


def _what_variables_say() -> Iterator[str]:
    yield from (value for name, value in os.environ.items() if VARIABLES.match(name))


def _hosts_in(text: str) -> set[str]:
    hosts = {(urlsplit(url).hostname or "").removeprefix("www.") for url in URL.findall(text)}
    return {host for host in hosts if HOST.match(host) and host not in NEVER}


def _machine_paths() -> frozenset[str]:
    """Where the clone and its owner live; a path of one common step (`/src`) would mean nothing."""
    homes = {"/".join(("", "root")), str(Path.home()), str(ROOT)}
    top = {f"/{ROOT.parts[1]}/"} if ROOT.parts[1] not in COMMON_TOPS else set()
    return frozenset(top | {home for home in homes if home.strip("/") not in COMMON_TOPS})


def _any_of(words: frozenset[str], before: str = NOT_IN_A_NAME[0], after: str = NOT_IN_A_NAME[1]) -> re.Pattern[str]:
    return re.compile(before + "(?:" + "|".join(re.escape(word) for word in sorted(words)) + ")" + after)


def _hits(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in source_files():
        raw = path.read_bytes()
        if b"\0" in raw:
            continue
        for number, line in enumerate(raw.decode(errors="replace").splitlines(), start=1):
            if match := pattern.search(line):
                yield f"{named(path)}:{number}: {match[0]}"
