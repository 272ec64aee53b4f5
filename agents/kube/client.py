"""Speaks raw JSON with one API server: the only module that knows the Kubernetes client library.

It takes from the library what is tedious (kubeconfigs, in-cluster accounts, tokens that change, certificates) and
nothing of its models, which cost seconds per list. Every request has time-outs; nothing is repeated here.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from kubernetes_asyncio import client as library
from kubernetes_asyncio import config as library_config
from kubernetes_asyncio.config.config_exception import ConfigException

from agents.cluster import ClusterUnreachable
from agents.facts import Json

CONNECT_SECONDS = 10
ANSWER_SECONDS = 30
APPLY = "application/apply-patch+yaml"  # JSON is YAML
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
LINE_BYTES_MAX = 2**21
GOODBYE_SECONDS = 0.1
ERROR_FROM = 400
OPENED = "OPENED"


class KubeconfigUnusable(Exception):
    """No account to speak with."""


class KubeError(Exception):
    """The API server said no."""

    def __init__(self, status: int, reason: str, message: str, retry_seconds: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_seconds = retry_seconds


@dataclass(frozen=True, slots=True)
class Target:
    """A collection: how its paths are built."""

    prefix: str
    plural: str
    namespace: str = ""

    @property
    def path(self) -> str:
        inside = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{self.prefix}{inside}/{self.plural}"


KINDS = {
    "Node": Target("/api/v1", "nodes"),
    "Namespace": Target("/api/v1", "namespaces"),
    "Pod": Target("/api/v1", "pods"),
    "Service": Target("/api/v1", "services"),
    "Event": Target("/api/v1", "events"),
    "Secret": Target("/api/v1", "secrets"),
    "Job": Target("/apis/batch/v1", "jobs"),
    "Lease": Target("/apis/coordination.k8s.io/v1", "leases"),
}


def collection(kind: str, namespace: str = "") -> str:
    known = KINDS[kind]
    return Target(known.prefix, known.plural, namespace).path


class KubeClient:
    """One account at one API server."""

    def __init__(self, api: library.ApiClient, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.is_answered = True  # False from a request that nobody answered in time until anything is answered
        self._api = api
        self._answer_seconds = answer_seconds
        rest = api.rest_client
        # The library's own session would take a proxy from the environment, which leads nowhere inside a cluster.
        self._http = aiohttp.ClientSession(
            connector=rest.pool_manager.connector, connector_owner=False, trust_env=False, read_bufsize=LINE_BYTES_MAX
        )
        self._proxy: str | None = rest.proxy
        self._host: str = api.configuration.host.rstrip("/")

    async def close(self) -> None:
        await self._http.close()
        await self._api.close()
        await asyncio.sleep(GOODBYE_SECONDS)  # TLS connections end a little after they are told to

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        """Return the answer's object. Raise KubeError for a refusal, ClusterUnreachable for none."""
        timeout = aiohttp.ClientTimeout(total=self._answer_seconds, sock_connect=CONNECT_SECONDS)
        headers = {"Content-Type": content_type, "Accept": "application/json", **await self._authorization()}
        data = None if body is None else json.dumps(body)
        try:
            async with self._http.request(
                method,
                self._host + path,
                params=query,
                data=data,
                headers=headers,
                timeout=timeout,
                proxy=self._proxy,
            ) as answer:
                raw = await answer.read()
                self.is_answered = True
                if answer.status >= ERROR_FROM:
                    raise _error(answer.status, raw, answer.headers.get("Retry-After"))
        except asyncio.TimeoutError as error:  # noqa: UP041 - 3.11 has one, aiohttp its own
            self.is_answered = False  # watches that were open stay so, and notice it late
            raise ClusterUnreachable(str(error) or f"no answer within {self._answer_seconds} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ClusterUnreachable(str(error) or type(error).__name__) from error
        found: Json = json.loads(raw) if raw else {}
        return found

    async def lines(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[Json]:
        """The events of a watch, until it ends or is silent for too long; raises as `request` does.

        The first one is our own, OPENED: a quiet watch has been answered, too.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silence_seconds)
        headers = {"Accept": "application/json", **await self._authorization()}
        try:
            async with self._http.get(
                self._host + path, params=query, headers=headers, timeout=timeout, proxy=self._proxy
            ) as answer:
                if answer.status >= ERROR_FROM:
                    raise _error(answer.status, await answer.read(), answer.headers.get("Retry-After"))
                self.is_answered = True
                yield {"type": OPENED}
                async for line in answer.content:
                    self.is_answered = True
                    if line.strip():
                        yield json.loads(line)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:  # noqa: UP041 - as above
            raise ClusterUnreachable(str(error) or type(error).__name__) from error

    async def _authorization(self) -> dict[str, str]:
        """Asked anew for each request: a service account's token changes while we run."""
        headers: dict[str, str] = {}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"])
        return headers


async def connect(kubeconfig: Path | None) -> KubeClient:
    """Speak as the account of a kubeconfig, or of the pod that we run in; raise KubeconfigUnusable."""
    configuration = library.Configuration()
    try:
        if kubeconfig is not None:
            await library_config.load_kube_config(
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
        else:
            library_config.load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise KubeconfigUnusable(f"no account for the API server: {error}") from error
    return KubeClient(library.ApiClient(configuration))


def _error(status: int, raw: bytes, retry_after: str | None) -> KubeError:
    try:
        body = json.loads(raw)
    except ValueError:
        body = {}
    said = body if isinstance(body, dict) else {}
    seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return KubeError(status, str(said.get("reason", "")), str(said.get("message", ""))[:4096], seconds)
