"""Values for both charts: the least that each asks for, and all at once."""

from collections.abc import Mapping

from tests.helm.render import AGENT_VALUES, PLANE_VALUES

DIGEST = "sha256:" + "a" * 64
ANYWHERE: Mapping[str, object] = {
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "nodeSelector": {"e": "f"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}

AGENT_EVERYTHING: Mapping[str, object] = {
    **AGENT_VALUES,
    **ANYWHERE,
    "plane": {"url": "https://muster.example.com:8443/agents", "caBundle": "-----BEGIN CERTIFICATE-----\nx\n"},
    "policy": {"registries": ["registry.example/team"], "requireDigest": True, "devicesMax": 64},
    "image": {"digest": DIGEST, "pullSecrets": ["pull"]},
}

PLANE_EVERYTHING: Mapping[str, object] = {
    **ANYWHERE,
    "agents": {
        "url": "https://agents.muster.example.com:8443/muster",
        "service": {"port": 8443, "annotations": {"g": "h"}, "sourceRanges": ["192.0.2.0/24"]},
    },
    "people": {
        "service": {"annotations": {"g": "h"}},
        "ingress": {
            "enabled": True, "className": "nginx", "host": "muster.example.com", "tlsSecretName": "people-tls",
            "annotations": {"i": "j"},
        },
    },
    "tls": {"certManager": {"enabled": True, "dnsNames": ["agents.muster.example.com"], "issuer": {"name": "company"}}},
    "image": {"digest": DIGEST, "pullSecrets": ["pull"]},
    "trust": {"configMapName": "company-authorities", "key": "bundle.pem"},
    "networkPolicy": {
        "peopleFrom": [{"namespaceSelector": {"matchLabels": {"team": "platform"}}}],
        "agentsFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egressPorts": [5432, 6380],
        "egressTo": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
    },
    "settings": {"MUSTER_LEASE_SECONDS": "90"},
    "logLevel": "DEBUG",
    "listenOn": "::",
    "priorityClassName": "system-cluster-critical",
}  # fmt: skip

PLANE_BARE: Mapping[str, object] = {
    **PLANE_VALUES,
    "agents": {"url": "https://agents.muster.example.com", "service": {"type": "ClusterIP"}},
    "tls": {"terminatedElsewhere": True},
    "signingKey": {"generate": False},
    "migration": {"enabled": False},
    "api": {"autoscaling": {"enabled": False}},
    "worker": {"autoscaling": {"enabled": False}},
    "networkPolicy": {"enabled": False},
}
"""Everything switched off that can be."""
