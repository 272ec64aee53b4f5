"""Becomes one child process: takes an identity that may run it, ties its life to its parent's, and execs.

Run as a script by `children.spawn` with a bare interpreter (`-I -S`), so it imports the standard library only and
nothing of this project. It does not stay: after `exec` no memory of it is left. Tying a life to a parent's is
Linux only; elsewhere a killed supervisor leaves its servers behind and the next start stops them.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
REFUSED = 125
"""Exit code for "this identity is not to be had here", which no server program uses."""


def enter_user_namespace(inner_uid: int, inner_gid: int) -> None:
    """Let our uid, whatever it is, look like `inner_uid`: a server that refuses to run as root then runs.

    Files stay owned by the outer uid and nothing on the machine is changed.
    """
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{inner_gid} {outer_gid} 1"),
        ("uid_map", f"{inner_uid} {outer_uid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def drop_to(uid: int, gid: int) -> None:
    """Become an ordinary user for good."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def die_with(parent: int, death_signal: int) -> None:
    """Ask the kernel to send `death_signal` when the parent ends; must come after every change of identity."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(REFUSED)


def main(arguments: list[str]) -> None:
    """`PARENT DEATH_SIGNAL IDENTITY UID GID COMMAND…`; without a command it only tries the identity."""
    parent, death_signal, identity, uid, gid = arguments[:5]
    command = arguments[5:]
    try:
        if identity == "namespace":
            enter_user_namespace(int(uid), int(gid))
        elif identity == "dropped":
            drop_to(int(uid), int(gid))
        die_with(int(parent), int(death_signal))
        if command:
            os.execv(command[0], command)  # noqa: S606  # no shell is the point
    except OSError as error:
        sys.stderr.write(f"{' '.join(command[:1])}: {error}\n")
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(sys.argv[1:])
