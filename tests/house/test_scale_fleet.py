"""The simulation of a fleet: laws of any run, and comparison with queueing theory."""

from dataclasses import replace

import pytest
from benchmarks.scale_fleet import Costs, Fleet, Run, find_limits
from hypothesis import given, settings
from hypothesis import strategies as st

SMALL = Fleet(sessions=60, replicas=3, processes=2, answer=3.0, pause=2.0, turns_between=6, summary=2.0, death_every=5.0, restart=3.0, known_sessions=8)  # fmt: skip
FLEETS = st.builds(
    Fleet,
    sessions=st.integers(1, 60),
    replicas=st.integers(1, 4),
    processes=st.integers(1, 3),
    database_cores=st.integers(1, 3),
    routing=st.sampled_from(["session", "any"]),
    known_sessions=st.integers(1, 50),
    model_waits=st.integers(1, 3),
    answer=st.just(2.0),
    pause=st.just(2.0),
    turns_between=st.integers(2, 9),
    ahead=st.integers(1, 3),
    summary=st.just(2.0),
    death_every=st.sampled_from([0.0, 4.0]),
    restart=st.just(3.0),
)


@settings(max_examples=30, deadline=None)
@given(FLEETS, st.integers(0, 3))
def test_law_every_turn_is_answered_lost_or_under_way(fleet, seed):
    run = Run(fleet, Costs(), 30.0, seed).run()
    counts = run.counts
    assert counts["turns"] == counts["answers"] + counts["requests_lost"] + run.under_way
    assert (
        counts["cold"] <= counts["turns"] and counts["saves"] <= counts["loads"] + counts["turns"]
    )
    assert all(0 <= share <= 1.5 for share in run.loads().values())
    assert run.most["summaries"] <= fleet.model_waits
    if not fleet.death_every:
        assert not counts["requests_lost"] and not counts["summaries_lost"]


def test_the_same_seed_gives_the_same_run():
    first, second, third = (Run(SMALL, Costs(), 60.0, seed).run() for seed in (1, 1, 2))
    assert (first.waits, first.counts) == (second.waits, second.counts)
    assert first.waits != third.waits
    assert first.counts["deaths"] > 3 and first.counts["requests_lost"] > 3


def test_a_single_session_waits_exactly_as_long_as_its_turn_costs():
    fleet = replace(
        SMALL, sessions=1, replicas=1, processes=1, death_every=0.0, turns_between=10**6
    )
    run, costs = Run(fleet, Costs(), 200.0).run(), Costs()
    assert run.waits[0] == pytest.approx(costs.cold + costs.version + costs.load)
    assert {round(wait, 6) for wait in run.waits[1:]} == {round(costs.warm + costs.version, 6)}


def test_waits_at_a_process_match_those_of_an_m_d_1_queue():
    """Many sessions approximate a Poisson stream. With constant work they wait as in an M/D/1
    queue."""
    costs = Costs(warm=0.01, cold=0.01, version=0.0, load=0.0)
    fleet = Fleet(sessions=1_500, replicas=1, processes=1, known_sessions=2_000, known_bytes=10**12, answer=15.0, pause=15.0, turns_between=10**6, death_every=0.0)  # fmt: skip
    run = Run(fleet, costs, 600.0, warm=60.0).run()
    busy = run.loads()["gateways"]
    assert busy == pytest.approx(0.5, abs=0.02)
    expected = costs.warm * (1 + busy / (2 * (1 - busy)))
    assert sum(run.waits) / len(run.waits) == pytest.approx(expected, rel=0.1)


def test_routing_by_session_avoids_cold_turns():
    fleet = replace(SMALL, sessions=24, known_sessions=8, death_every=0.0)
    by_session, by_chance = (
        Run(replace(fleet, routing=way), Costs(), 200.0, warm=50.0).run()
        for way in ("session", "any")
    )
    assert by_session.counts["cold"] < 0.2 * by_chance.counts["cold"]


def test_the_calculated_limits_match_the_load_of_the_simulation():
    fleet = replace(SMALL, death_every=0.0, known_sessions=10**6, known_bytes=10**12)
    costs = Costs(warm=0.05, cold=0.05)
    limit = find_limits(fleet, costs)["gateways' cores, sessions known"]
    run = Run(replace(fleet, sessions=int(limit * 0.7)), costs, 100.0, warm=30.0).run()
    assert run.loads()["gateways"] == pytest.approx(0.7, abs=0.06)
