"""Keeps tests of one `xdist_group` on one worker, which pytest-xdist 3.8 no longer manages under pytest 9.2.

It tells its scheduler of a group by the end of a test's id, and writes that end where pytest does not read it any more.
Once xdist does it right, this plugin finds nothing to do and can go.
"""

import pytest
from _pytest.nodeid import coerce_node_id


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: name the group at the end of each id."""
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        end = f"@{mark.args[0]}" if mark else ""
        if end and not item.nodeid.endswith(end):
            item._id = coerce_node_id(item.nodeid + end)  # noqa: SLF001 - there is no public way
