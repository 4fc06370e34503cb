"""Messages of the user and the model in the demo session."""

from benchmarks.demo_session.project import Thing, pick

FROZEN = "parcel"

ISSUE = """Hi! Here is what I need help with today, #412:

> **Seats are sold twice in the night the clocks change**
> On 2026-10-25 between 02:00 and 03:00 we sold four seats to two passengers each. The dashboard of that night is attached (the dark bar is the double hour). Support has refunded 8 passengers so far (SORRY-12). It also happened in 2025, when nobody could explain it. Next chance: 2027-10-31.

A snapshot of the database is in snapshots/2026-10-26.db, the worker's log of that night in logs/. Find the cause and fix it everywhere, not only for holds.

Two rules. Never touch anything under migrations/: those files have run in production and their checksums are compared at start. And keep the diff reviewable: one part of the project after another, no reformatting."""

THINK_FIRST = "The night the clocks go back: 02:00 to 03:00 happens twice in Europe/Berlin. If expiry times are naive local times, a hold made at 02:50 (first time) with 30 minutes expires at 03:20, but the sweep that runs at 02:05 (second time) compares naive values... Or the reverse: a hold made at 02:10 in the first hour is 'due' at 02:40, and in the second hour it is 02:01 again, so the remaining time grows by an hour. Two people can then hold one seat: one by the old hold, one after the sweep. I should look at data before I theorise: which seats, at what times, and what the worker did at those times."
LOOK = "Let me first see which seats were sold twice, and what the worker did in that hour."
SEARCH = "Seat 14C on sailing 88412 was swept at 02:51 and sold again at 02:29, in the second pass through the same hour: the order of the clock times is wrong, the order of events is not. So a naive local clock decides what is expired. Where do we ask for the time?"
TRY_FREEZE = "Every service asks `datetime.now()` for itself, while `harbor/clock.py` exists and is hardly used. For the tests I need a clock that can be stopped."
THINK_FREEZE = "No network here, so no freezegun. tests/fakes.py has its own `frozen`, imported by the tests already. Let me look at what it patches: if it patches harbor.clock.now then the services must go through the clock module for it to have any effect, which is what I want anyway."
OWN_FAKE = "There is no package index here. The tests already import `frozen` from tests/fakes.py, which may be all that is needed."
THINK_PLAN = "`frozen` patches harbor.clock.now. So the plan is clear: each service uses clock.now() (aware, UTC), each store reads with clock.parse (old rows are naive and local, new ones have an offset, the column is TEXT so no migration is needed: good, since migrations are off limits), each API writes local time without an offset, as today. Twenty parts. I will go through them one by one and keep a list."
RECORD = "Before I start, I write down what was decided, so that the reviewers of twenty small diffs have one place to look."
ADR = """# 12. Times are aware UTC inside, local at the edge

Date: 2026-11-20. Status: accepted. Issue: #412.

## Context

Every service asked `datetime.now()` and compared the answer with naive local times from the database.
On 2026-10-25 the hour from 02:00 to 03:00 happened twice. Holds made in the first pass looked unexpired
or long expired in the second, depending on the minute; `sweep` and `_free_stale` disagreed about them, and
four seats were sold twice (88412 14C, 88412 15A, 88413 22F, 88415 11D).

## Decision

1. `harbor.clock.now()` is the only source of the current time. It is aware and in UTC.
2. Stores read with `clock.parse`, which takes a time without an offset for local time. No migration:
   columns are TEXT, and the files under migrations/ stay as they are.
3. APIs write local time without an offset, as they always did (`clock.local(...).replace(tzinfo=None)`):
   the format is a public contract.
4. Tests stop the clock with `tests.fakes.frozen`; no new dependency.

## Consequences

A time from before this change that lies in the doubled hour is read as its first occurrence. Four such
rows exist, all final. `harbor/worker/jobs.py` still names local times; see the note there.
"""

USER = {
    0: "Good start. 补充一下：必须保持 API 返回的字段名和时间格式不变，旅行社的程序在解析它们；另外不要修改 locales/zh.json 里的键，翻译组正在改。",
    3: "Looks right. I saw the pip attempt: Don't add a dependency for this, zoneinfo and our own fakes are enough.",
    8: "From now on always run a part's own tests first, and the whole suite only once at the end: it blocks the shared runner for six minutes. Go on.",
    12: "One thing changed here: harbor/parcels is frozen until 4.12 is out, leave it alone, tests included. Go on with the rest.",
    15: "claims 的 answer_at 按工作日计算，改的时候务必和法务的规定一致（14 个工作日）。其余继续。",
}
"""The user's messages after a part, by its number."""

ANSWERS = {
    5: "Six of twenty parts are done (holds, bookings, payments, waitlist, boardings, cabins), each with green tests. All six had the same three places: the service asks for the local time, the store reads naive times, the API writes whatever it gets. Nothing under migrations/ or in locales/zh.json is touched. Next is vehicles.",
    10: 'Half way. One finding beside the bug: `nightly(at="02:30")` in harbor/worker/jobs.py itself runs twice in that night. I have not changed it, since the crew reads that file; the root cause of the double sale was the naive comparison in `_free_stale`, not the schedule.',
}
GO_ON = {5: "Fine, go on.", 10: "Noted, leave the schedule for later. Continue please."}

THINK_FROZEN = "Everything is green but parcels: its clock-change test fails because its service still asks datetime.now(). That is the frozen part: I must not edit harbor/parcels, tests included. So the failure stays, and I have to say so clearly instead of skipping or marking the test."
WHOLE = "All parts but the frozen one are done. Now the whole suite, once."
CHANGELOG = "Good, that is as agreed. Now write the changelog entry for 4.12.0 in the style of the others (one line each, issue number at the end), and tell me every place in harbor/ that still calls datetime.now() outside clock.py."
LEFT = "Let me look instead of trusting my list."
ENTRY = """
## 4.12.0 (unreleased)

- Seats are no longer sold twice in the night the clocks change: times are aware UTC inside and local at the edge (#412).
- Parcels follow in 4.12.1; their times are still local (#412).
"""
DONE = "The entry is in CHANGELOG.md. Still on the local clock: harbor/parcels/service.py (frozen), and the `default_factory=datetime.now` of `created_at` in each model.py. The latter only orders rows and is never compared with the clock, but `stream` filters by it: I would change it in a second step, since it touches twenty more files."
LAST = "One more thing before I merge: does the 02:30 job in harbor/worker/jobs.py still do harm when it runs twice? Look, but do not change the schedule."
LOOK_JOBS = "I look at the schedule again and at every sweep that it starts."

RUN_FIRST = (
    "First the tests as they are:",
    "The clock-change test should fail here as well:",
    "Before I change anything:",
    "Red first.",
)
EDIT_SERVICE = (
    "Now the service.",
    "The same change as before, in this service.",
    "I put the service on the clock.",
    "Service first: one import, then every call.",
    "",
)
RUN_AGAIN = ("And the tests:", "Again:", "Let me see what that breaks.", "Tests of this part:", "")
EDIT_STORE = (
    "The store reads both kinds of rows from now on.",
    "The store, with `clock.parse`:",
    "Old rows have no offset; `clock.parse` takes them for local time.",
    "",
)
RECALL = (
    "What exactly does that test expect?",
    "I look at the test again before I go on.",
    "The tests once more, to be sure of the times in them:",
)
RUN_LAST = ("Once more:", "That should be all for this part:", "And now?", "")
REREAD = (
    "I read the whole service once more before I leave it.",
    "Let me check the result with fresh eyes.",
    "One look over the finished file:",
)
DIFF = (
    "The diff of this part, as a reviewer will see it:",
    "Is the diff small enough?",
    "Diff and linter:",
)


def start(n: int, thing: Thing, count: int) -> str:
    """Return the text before a part is read."""
    return pick((
        f"Next: {thing.plural}. The service asks for the time in {count} places.",
        f"Now {thing.plural} ({thing.about}).",
        f"`{thing.service}` has {count} calls of `datetime.now()`; I read it together with its tests.",
        f"On to {thing.plural}.",
    ), "start", n)  # fmt: skip


def think(n: int, thing: Thing, count: int) -> str:
    """Return the thinking before a part is read."""
    of, count_field, _, time = thing.fields
    return pick((
        f"{thing.plural.capitalize()} next. {count} calls of datetime.now() in the service. Here {time} belongs to a {of} and decides what may still be done with a {count_field}. I expect the same three places as before, but the order of the checks may matter: {thing.actions[0]} compares with GRACE, {thing.actions[1]} computes a new {time}.",
        f"What does {time} mean for a {thing.name}? It is {thing.about}. If the comparison is naive, the doubled hour makes it {thing.states[3]} too early or an hour late. Read service and tests together, then decide.",
        f"I should not assume that {thing.plural} look like the part before. Read first. The clock-change test exists in every test file, so there is a red test to start from.",
        f"{thing.name.capitalize()}: states {', '.join(thing.states)}. Only the step from {thing.states[0]} to {thing.states[3]} depends on the clock. Let me see whether `{thing.actions[2]}` does, too.",
    ), "think", n)  # fmt: skip


def store(n: int, thing: Thing, line: int) -> str:
    """Return the text when the service is timezone-aware and the store is not."""
    return pick((
        f"As expected: the service is aware now and the rows are not. `_from_row` in `{thing.store}`, line {line}.",
        f"The naive values come from `{thing.store}`.",
        "Aware against naive. The store has to change as well:",
        f"`{thing.fields[3]}` is read without an offset (line {line} of the store).",
    ), "store", n)  # fmt: skip


def think_store(n: int, thing: Thing, line: int) -> str:
    """Return the thinking when the service is timezone-aware and the store is not."""
    return pick((
        f"TypeError in the comparison with {thing.fields[3]}. That is the good kind of failure: nothing is compared silently wrong any more. Line {line} of {thing.store} parses with datetime.fromisoformat, which gives a naive time for old rows. clock.parse does the right thing for both kinds.",
        "",
        f"due_before passes the moment to SQL as a parameter, too. TEXT comparison of '2026-10-25T00:50:00+00:00' with '2026-10-25T02:50:00'... string order. Old open rows would be off by up to two hours until they are final, which for a {thing.name} is at most a day. The list comprehension filters again in Python, so nothing is {thing.states[3]} too early. Acceptable, and no migration is needed.",
    ), "think store", n)  # fmt: skip


def contract(n: int, thing: Thing) -> str:
    """Return the text when the JSON has changed."""
    return pick((
        f"The contract test caught it: `/v2/{thing.plural}` would now write UTC with an offset. The agencies parse local time without one, so the API converts.",
        f"`dueAt` must stay as it was. I convert in `{thing.api}` and make the tests' own times aware.",
        "The output format must not change, so: local time, no offset, at the edge.",
        f"Only the contract is left. {thing.api}, and aware times in the tests.",
    ), "contract", n)  # fmt: skip


def think_contract(n: int, thing: Thing) -> str:
    """Return the thinking when the JSON has changed."""
    return pick((
        "",
        f"The format of dueAt is a public contract and the user said that it has to stay. clock.local(...) and then replace(tzinfo=None) gives exactly the old spelling. In the doubled hour the text is ambiguous, as it always was; the agencies would need an offset to tell, and that is not ours to decide here. The test's literal times become 10:00 UTC, which is 12:00 on the quay in June. That keeps the expected string in {thing.tests} untouched: good, since that line is the contract.",
        "",
    ), "think contract", n)  # fmt: skip


def think_reread(n: int, thing: Thing) -> str:
    """Return the thinking of a last check."""
    return f"Let me make sure that I have not missed a place in {thing.service} where a local day is meant: `day()` computes midnight from the moment it gets. With an aware UTC moment, replace(hour=0) is midnight in UTC, not on the quay. Callers pass nothing or a local time. Part {n + 1}: I keep the behaviour and note it."


def report(n: int, thing: Thing, parts_left: int) -> str:
    """Return the last text of the model's turn."""
    return pick((
        f"{thing.plural.capitalize()} are done: service, store and API are on `harbor.clock`, and the clock-change test passes. The cause in this part was the naive comparison in `{thing.service}`. {parts_left - 1} parts to go.",
        f"That is {thing.plural}. I found that `_free_stale` and `sweep` used two different readings of the clock within one call; they agree now. {parts_left - 1} parts are left.",
        f"Part {n + 1} ({thing.plural}) is finished and its tests are green. I decided to keep `replace(tzinfo=None)` in the API only, so that the format stays. {parts_left - 1} to go.",
    ), "report", n)  # fmt: skip


def frozen_fails(frozen: Thing) -> str:
    """Return the text after the whole test suite."""
    return f"The whole suite passes except `tests/test_{frozen.plural}.py::test_{frozen.name}_across_the_clock_change`. That is the part you froze: harbor/{frozen.plural} still asks `datetime.now()`, and I have left it and its tests alone. Everything else is on the clock; nothing under migrations/ and no key of locales/zh.json has changed."
