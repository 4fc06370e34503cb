"""Sessions kept as trees: every record names its parent, and one branch is the active one."""

from collections.abc import Mapping


def branch(leaf: str, parents: Mapping[str, str]) -> list[str]:
    """Ids from the root down to *leaf*. An unknown parent ends the walk, and so does a cycle."""
    path = dict[str, None]()
    while leaf in parents and leaf not in path:
        path[leaf] = None
        leaf = parents[leaf]
    return list(reversed(path))
