"""Asking a process of ours that may not listen yet, again and again until it does."""

import httpx


def probe(url: str) -> tuple[int, str]:
    """Status and text of the answer; (0, "") while nobody answers."""
    try:
        # Plain HTTP on the loopback: loading certificates would take longer than the question.
        answer = httpx.get(url, trust_env=False, verify=False)
    except httpx.TransportError:
        return 0, ""
    return answer.status_code, answer.text
