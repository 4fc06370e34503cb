"""What a preview on the page says of cache and cost."""

from types import SimpleNamespace
from typing import Any

import pytest

from refold import Budget, Compactor
from refold.gateway.api.context import PendingPreview
from refold.gateway.api.previews import _effect
from refold.session_files import demo_session
from refold.strategies import Summarize
from refold.tokens.model_table import Rates

RATES = Rates(2.0, 10.0, 0.2, 2.5, cliffs=((200_000, 2.0, 1.5),))


def make_pending() -> PendingPreview:
    compactor = Compactor([Summarize(keep=4)], Budget(20_000, 10_000))
    unknown: Any = SimpleNamespace()  # no part of the effect
    return PendingPreview(unknown, compactor.preview(demo_session(40)))


@pytest.mark.parametrize(("before", "read"), [(200_000, 0.2), (200_001, 0.4)])
def test_what_a_call_saves_is_priced_above_the_cliff_before_and_below_it_after(
    before: int, read: float
) -> None:
    effect = _effect(make_pending(), before, 50_000, RATES)
    assert effect.per_call == pytest.approx((before * read - 50_000 * 0.2) / 1e6)
    assert effect.once == pytest.approx(effect.written * (2.5 - 0.2) / 1e6)
    assert effect.pays_after == pytest.approx(effect.once / effect.per_call)


def test_a_preview_without_known_prices_names_no_cost() -> None:
    effect = _effect(make_pending(), 60_000, 50_000, None)
    assert (effect.once, effect.per_call, effect.pays_after) == (None, None, None)
