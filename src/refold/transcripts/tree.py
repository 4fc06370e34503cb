"""Sessions kept as trees: every record names its parent, and one branch is the active one."""

from collections.abc import Mapping
from types import MappingProxyType

NONE: Mapping[str, str] = MappingProxyType({})


def branch(leaf: str, parents: Mapping[str, str], before: Mapping[str, str] = NONE) -> list[str]:
    """Ids from the root down to *leaf*. An unknown parent ends the walk. Where parents go in a circle it goes on with
    the line *before* instead, and ends where none is given."""
    path = dict[str, None]()
    while leaf in parents:
        path[leaf] = None
        above = parents[leaf]
        if above in path:
            above = before.get(leaf, "")
        while above in path:
            above = before.get(above, "")
        leaf = above
    return list(reversed(path))
