"""A record in parts that fit, cut where messages may be cut."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from refold.summarizers.model.record import Element, halves

Cost = Callable[[Element], int]
SMALLEST = 200
"""Characters of an element that is not cut further."""


def chunks(record: Iterable[Element], cuts: Iterable[int], room: int, cost: Cost) -> list[list[Element]]:
    """*record* in successive parts of at most *room* tokens by *cost*. What stands between two of
    *cuts*, such as a call and its result, stays together if it fits into one part; an element that
    does not fit alone is cut. Nothing is left out. Empty if even the smallest piece does not fit.
    """
    out, left = list[list[Element]](), 0
    for unit in _units(record, cuts):
        whole = sum(map(cost, unit))
        if whole > room:
            pieces = [piece for element in unit for piece in _pieces(element, room, cost)]
        else:
            pieces = list(unit)
            left = left if whole <= left else 0
        for piece in pieces:
            price = cost(piece)
            if price > room:
                return []
            if price > left or not out:
                out.append([])
                left = room
            out[-1].append(piece)
            left -= price
    return out


def _units(record: Iterable[Element], cuts: Iterable[int]) -> Iterator[Sequence[Element]]:
    """Elements that stand between the same two cuts."""
    places = sorted(cuts)
    for _, unit in groupby(record, key=lambda element: bisect_right(places, element.at)):
        yield tuple(unit)


def _pieces(element: Element, room: int, cost: Cost) -> Iterator[Element]:
    if cost(element) <= room or len(element.text) <= SMALLEST:
        yield element
        return
    for half in halves(element):
        if half.text.strip():
            yield from _pieces(half, room, cost)
