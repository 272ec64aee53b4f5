"""The test agent over real HTTP: the same messages, signed, to the agents' own listener."""

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field

import httpx
from joserfc import jws
from joserfc.jwk import ECKey
from pydantic import BaseModel

from controlplane.contract.agent.enrolment import EnrolReply, EnrolRequest, HelloReply, HelloRequest
from controlplane.contract.agent.inventory import NodeReport
from controlplane.contract.agent.sync import SyncReply, SyncRequest
from tests.services.agents import Agent, create, envelope, token_for
from tests.services.planes import Plane
from tests.support.api import Api

HELLO, SYNC, ENROL = "/agent/v1/hello", "/agent/v1/sync", "/agent/v1/enrol"
JSON = {"Content-Type": "application/json"}


@dataclass
class HttpAgent(Agent):
    """One cluster's agent, speaking HTTP."""

    http: httpx.Client = field(kw_only=True)
    audience: str = ""

    def enrol(self, token: str) -> EnrolReply:
        request = EnrolRequest(token=token, fingerprint=self.fingerprint, instance_id="pod-1")
        answer = self.http.post(ENROL, json={"jws": envelope(self.key, request)})
        assert answer.status_code == 200, answer.text
        reply = EnrolReply.model_validate_json(answer.content)
        self.audience, self.plane_keys = reply.audience, reply.plane_keys
        return reply

    def hello(self, **more: object) -> HelloReply:
        stated = {"instance_id": "pod-1", "fingerprint": self.fingerprint, "namespaces": ["team"]}
        self.signed_at = max(int(time.time()), self.signed_at + 1)
        answer = self.post(HELLO, HelloRequest.model_validate({**stated, **more}), iat=self.signed_at)
        assert answer.status_code == 200, answer.text
        reply = HelloReply.model_validate_json(answer.content)
        self.epoch, self.seq, self.cursor = reply.session_epoch, 0, 0
        return reply

    def send(self, request: SyncRequest) -> SyncReply:
        answer = self.post(SYNC, request, se=request.session_epoch, seq=request.seq)
        assert answer.status_code == 200, answer.text
        reply = SyncReply.model_validate_json(answer.content)
        self.keep(reply)
        return reply

    def post(self, path: str, message: BaseModel | bytes, **claims: object) -> httpx.Response:
        """One signed request; `claims` instead of the right ones."""
        body = message if isinstance(message, bytes) else message.model_dump_json(exclude_defaults=True).encode()
        signed = self.sign(path, body, self.key, claims)
        return self.http.post(path, content=body, headers={**JSON, "Authorization": f"AgentPoP {signed}"})

    def sign(self, path: str, body: bytes, key: ECKey, claims: dict[str, object]) -> str:
        """A signature over this request, unless `claims` say otherwise."""
        now = int(time.time())
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        signed_at = claims.get("iat", now)
        until = signed_at + 60 if isinstance(signed_at, int) else now + 60
        stated = {
            "sub": self.name, "aud": self.audience, "htm": "POST", "htu": path, "bh": digest, "iat": now,
            "exp": until, "se": self.epoch, "seq": self.seq, **claims,
        }  # fmt: skip
        header = {"alg": "ES256", "typ": "agent-pop+jwt", "kid": key.thumbprint()}
        return jws.serialize_compact(header, json.dumps(stated), key, algorithms=["ES256"])


def http_agent(plane: Plane, api: Api, name: str, *nodes: NodeReport, **spec: int) -> HttpAgent:
    """A cluster that is ready, over HTTP all the way."""
    agent = met(plane, api, name, True, **spec)
    agent.hello()
    agent.report(*nodes, whole=True)
    return agent


def met(plane: Plane, api: Api, name: str, auto_accept: bool = True, **spec: int) -> HttpAgent:
    """A cluster that is enrolled, and no more."""
    cluster = create(plane, name, **spec)
    http = httpx.Client(base_url=api.agent_url, timeout=40, trust_env=False, verify=False)
    api.clients[f"agent {name}"] = http
    agent = HttpAgent(plane, cluster, name, http=http)
    agent.enrol(token_for(plane, cluster, auto_accept=auto_accept))
    return agent
