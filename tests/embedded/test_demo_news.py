"""What the demo tells of gangs, in the words that a newcomer reads first."""

from controlplane.embedded.demo.sampling import leaving


def test_a_gang_leaves_its_devices_whole_and_a_single_one_is_no_devices() -> None:
    assert leaving("train", 64) == "train has to leave its 64 devices, whole"
    assert leaving("notebook", 1) == "notebook has to leave its 1 device"
