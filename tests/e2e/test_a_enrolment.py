"""Story (a): clusters come in, and the plane knows what they have."""

from tests.e2e.federation import A100, H100, Federation
from tests.kube.objects import A100 as A100_CARD
from tests.kube.objects import BLOCK, RACK, NodeShape


def test_both_clusters_are_accepted_and_their_inventory_is_right(federation: Federation) -> None:
    """Story (a)."""
    federation.add_nodes(federation.east, 8, NodeShape(gpus=8, topology={BLOCK: 8, RACK: 4}))
    federation.add_nodes(federation.west, 3, NodeShape(gpus=4, product=A100_CARD, topology={RACK: 2}))

    for site in federation.sites:
        seen = federation.cluster(site)
        assert seen["state"] == "ready"
        assert seen["acceptedAt"]
        assert set(seen["namespaces"]) == {"nlp", "vision"}
        assert seen["kubernetesVersion"].startswith("v1.37")
        assert seen["levels"][-2:] == ["rack", "host"]
    east, west = (federation.cluster(site) for site in federation.sites)
    assert [(each["flavor"], each["owned"], each["free"]) for each in east["flavors"]] == [(H100, 64, 64)]
    assert [(each["flavor"], each["owned"], each["free"]) for each in west["flavors"]] == [(A100, 12, 12)]

    nodes = {each["name"]: each for each in federation.nodes(cluster="east")}
    assert {name: node["domains"]["rack"] for name, node in nodes.items()} == {
        f"node-{index}": f"rack-{index // 4}" for index in range(8)
    }
    assert {node["domains"]["block"] for node in nodes.values()} == {"block-0"}
    for name, count, flavor in (("east", 64, H100), ("west", 12, A100)):
        devices = federation.ask("GET", "/devices", cluster=name, limit="500")["items"]
        assert len({(each["node"], each["deviceKey"]) for each in devices}) == len(devices) == count
        assert {(each["vendor"], each["flavor"], each["health"]) for each in devices} == {("nvidia", flavor, "ok")}
    assert federation.doctor() == []
