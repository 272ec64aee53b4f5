"""Images made on the spot from a static busybox, for a node that has no registry to ask.

A pod names them with `imagePullPolicy: Never`. They are docker archives, which `ctr images import` takes.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path

PAUSE = "muster.test/pause:1"
PROGRAM = "muster.test/program:1"
"""A shell and the usual small tools; what it does, a pod says by `command`."""

FOLDERS = ("bin", "etc", "tmp", "usr", "usr/bin", "var", "dev", "proc", "sys")


def write(folder: Path, busybox: Path) -> list[Path]:
    """One archive per image, in `folder`."""
    layer = _layer(busybox)
    commands = {PAUSE: ["/bin/sleep", "2147483647"], PROGRAM: ["/bin/sh"]}
    archives = []
    for name, command in commands.items():
        archive = folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar"
        archive.write_bytes(_archive(name, command, layer))
        archives.append(archive)
    return archives


def _layer(busybox: Path) -> bytes:
    """A file system: busybox, and a link to it for each of its commands."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True, timeout=10)
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in FOLDERS:
            each = tarfile.TarInfo(name)
            each.type, each.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(each)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)
        for command in listed.stdout.split():
            if command != "busybox":
                link = tarfile.TarInfo(f"bin/{command}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
    return sink.getvalue()


def _archive(name: str, command: list[str], layer: bytes) -> bytes:
    config = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin:/usr/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created_by": "the tests"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        _add(tar, "layer.tar", layer)
        _add(tar, config_name, config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    return sink.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    each = tarfile.TarInfo(name)
    each.size, each.mode = len(content), mode
    tar.addfile(each, io.BytesIO(content))
