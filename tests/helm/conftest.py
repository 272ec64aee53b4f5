"""A cluster in which the plane may be installed, and only as the strictest Pod Security allows."""

import pytest

from tests.helm.render import PLANE_NAMESPACE
from tests.kube.cluster import KubeCluster
from tests.kube.objects import NodeShape


@pytest.fixture
def restricted(kube: KubeCluster) -> KubeCluster:
    """A cluster with nodes, and the plane's namespace with Pod Security "restricted" enforced."""
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    kube.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLANE_NAMESPACE, "labels": labels}}])
    kube.add_nodes(2, NodeShape())
    return kube
