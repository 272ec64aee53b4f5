"""Raw pods of a simulated cluster: how one is born from a Job, and what its status says at each turn of its life.

Shapes are those of the API server, so that the same projection reads real and simulated objects. No time and no chance:
the caller gives both.
"""

import copy
from datetime import datetime

from agents.facts import JOB_INDEX, Json

RUN_SECONDS = "simulated.muster.dev/run-seconds"
EXIT_CODE = "simulated.muster.dev/exit-code"
START_SECONDS = "simulated.muster.dev/start-seconds"


def of_job(job: Json, index: int, uid: str, now: datetime) -> Json:
    """A new pod of an Indexed Job, gated as its template says."""
    meta, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
    labels = {**(template["metadata"].get("labels") or {}), JOB_INDEX: str(index)}
    return {
        "metadata": {
            **template["metadata"],
            "labels": labels,
            "name": f"{meta['name']}-{index}-{uid[:5]}",
            "namespace": meta["namespace"],
            "uid": uid,
            "creationTimestamp": _text(now),
            "ownerReferences": [{"kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}],
        },
        "spec": {**template["spec"], "hostname": f"{meta['name']}-{index}"},
        "status": {"phase": "Pending"},
    }


def set_condition(raw: Json, kind: str, status: str, now: datetime, reason: str = "", message: str = "") -> None:
    conditions: list[Json] = raw["status"].setdefault("conditions", [])
    before = next((each for each in conditions if each["type"] == kind), None)
    if before is not None and before["status"] == status and before.get("reason") == reason:
        before["message"] = message
        return
    raw["status"]["conditions"] = [each for each in conditions if each["type"] != kind] + [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": _text(now)}
    ]


def run(raw: Json, now: datetime) -> None:
    """All containers have started and are ready."""
    raw["status"]["phase"] = "Running"
    raw["status"]["startTime"] = _text(now)
    set_condition(raw, "Ready", "True", now)
    raw["status"]["containerStatuses"] = [
        {"name": each.get("name", ""), "ready": True, "state": {"running": {"startedAt": _text(now)}}}
        for each in raw["spec"].get("containers") or []
    ]


def end(raw: Json, exit_code: int, now: datetime, reason: str = "") -> None:
    """All containers have ended."""
    raw["status"]["phase"] = "Failed" if exit_code else "Succeeded"
    if reason:
        raw["status"]["reason"] = reason
    set_condition(raw, "Ready", "False", now)
    ended = {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": raw["status"].get("startTime"),
        "finishedAt": _text(now),
    }
    raw["status"]["containerStatuses"] = [
        {"name": each.get("name", ""), "ready": False, "state": {"terminated": ended}}
        for each in raw["spec"].get("containers") or []
    ]


def mark_deleted(raw: Json, now: datetime) -> None:
    raw["metadata"].setdefault("deletionTimestamp", _text(now))


def is_deleted(raw: Json) -> bool:
    return "deletionTimestamp" in raw["metadata"]


def is_finished(raw: Json) -> bool:
    return raw["status"].get("phase") in ("Succeeded", "Failed")


def number(raw: Json, annotation: str, otherwise: float) -> float:
    """A pod's own word about its life; what is no number counts as absent."""
    try:
        return max(0.0, float((raw["metadata"].get("annotations") or {})[annotation]))
    except (KeyError, ValueError, TypeError):
        return otherwise


def _text(now: datetime) -> str:
    return now.isoformat()
