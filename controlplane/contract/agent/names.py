"""The names of an Attempt's objects: made by agents, and told to members in other clusters by the plane.

Made from workload, its uid and the attempt, so that a second creation meets the first, and no other try.
"""

import re

from controlplane.contract.agent.attempts import ApplyBody

NAME_MAX = 52  # leaves room for "-<index>" in a pod's host name of 63
NOT_DNS = re.compile(r"[^a-z0-9-]+")


def base_name(body: ApplyBody, workload: str, attempt: int) -> str:
    """Of the Service, and the stem of every other name: short, readable, and one try's own."""
    return _short(body.name, f"{_tail(workload)}-{attempt}")


def job_name(body: ApplyBody, workload: str, attempt: int, pod_set: str) -> str:
    """Of a PodSet's Job."""
    if len(body.pod_sets) == 1:
        return base_name(body, workload, attempt)
    return _short(f"{body.name[:30]}-{pod_set}", f"{_tail(workload)}-{attempt}")


def pod_name(body: ApplyBody, workload: str, attempt: int, pod_set: str, index: int) -> str:
    """Of a plain pod, and the host name of any: an Indexed Job gives its pods the same."""
    return f"{job_name(body, workload, attempt, pod_set)}-{index}"


def _short(stem: str, tail: str) -> str:
    """A DNS label: `stem` in its letters, cut so that `tail` always survives."""
    letters = NOT_DNS.sub("-", stem.lower()).strip("-")[: NAME_MAX - len(tail) - 1].strip("-")
    return f"{letters}-{tail}" if letters and letters[0].isalpha() else f"w{letters}-{tail}"


def _tail(workload: str) -> str:
    """Five signs of the uid's end: its start is time, and the same for all of one minute."""
    return NOT_DNS.sub("", workload.lower())[-5:].strip("-")
