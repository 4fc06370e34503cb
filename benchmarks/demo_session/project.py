"""The imaginary project of the demo: `harbor`, bookings for a ferry line, about a hundred files.

Made from the templates in `benchmarks.demo_session.pieces` and `benchmarks.demo_session.outside`,
each thing with its own fields, rules and figures.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from benchmarks.demo_session import outside, pieces

T = TypeVar("T")

THINGS = """
hold holds|a seat kept for a passenger while they pay|sailing seat fare expires_at|extend place convert release|open converted released expired|14C 22A
booking bookings|a paid place on one sailing|customer reference total departs_at|confirm create transfer cancel|pending confirmed cancelled lapsed|HB-7Q2K HB-1XZ9
payment payments|money that a customer sent or wants back|booking method amount settles_at|capture authorise retry void|authorised captured voided failed|card sepa
waiter waitlist|a passenger who takes what others give back|sailing rank deposit answer_by|offer join promote withdraw|waiting offered withdrawn missed|7 8
boarding boardings|a pass that opens the gate once|booking gate surcharge closes_at|scan issue reassign revoke|issued scanned revoked missed|G3 G5
cabin cabins|a cabin for a night crossing|sailing number price ready_by|assign block upgrade vacate|free assigned vacated closed|4107 5212
vehicle vehicles|a car, van or lorry on the deck|booking lane toll check_in_by|admit weigh relocate reject|expected admitted rejected absent|L2 L6
voucher vouchers|credit that a customer can spend later|customer code value valid_until|redeem grant prolong cancel|live redeemed cancelled lapsed|SPRING-88 SORRY-12
refund refunds|money on its way back|payment reason sum pays_out_at|approve request escalate deny|requested approved denied abandoned|storm double
notice notices|a message that must reach a passenger in time|booking channel cost send_by|deliver compose postpone drop|queued delivered dropped stale|sms mail
manifest manifests|the list of people on board that the coast guard gets|sailing port fee files_at|submit open amend withdraw|draft filed withdrawn late|DEKEL NOOSL
shift shifts|hours that a crew member works|member station wage ends_at|start plan swap cancel|planned worked cancelled missed|bridge deck
tariff tariffs|a price list for a season|route season base ends_on_at|activate draft copy retire|draft active retired ended|summer winter
deposit deposits|money that a group pays ahead|contract instalment share due_on_at|book ask remind waive|asked paid waived overdue|first second
permit permits|leave to carry dangerous goods|vehicle grade charge lapses_at|grant apply renew refuse|applied granted refused lapsed|UN1203 UN1950
claim claims|a passenger's claim after a delay|booking cause payout answer_at|accept file review decline|filed accepted declined overdue|delay strike
parcel parcels|freight that travels without a driver|sailing shelf postage collect_by|hand_over register return_to reship|stored collected returned abandoned|A-11 C-04
lease leases|a berth that another line uses|berth tenant rent ends_by|sign offer_lease extend_lease quit_lease|offered signed quit_early ended|P2 P4
session sessions|a login at a desk or on a phone|account device quota expires_on_at|refresh open_session pin close|active refreshed closed timed_out|kiosk app
outage outages|a time in which part of the service is down|system region credit resolves_by|resolve declare widen annul|declared resolved annulled stale|pay gate
"""


@dataclass(frozen=True, slots=True)
class Thing:
    """One part of the project and the words for it."""

    name: str
    plural: str
    about: str
    fields: tuple[str, str, str, str]
    """Names of its fields for owner, text, money and time."""
    actions: tuple[str, ...]
    states: tuple[str, ...]
    samples: tuple[str, ...]

    @property
    def service(self) -> str:
        """Path of the file with its rules."""
        return f"harbor/{self.plural}/service.py"

    @property
    def store(self) -> str:
        """Path of the file with its SQL."""
        return f"harbor/{self.plural}/store.py"

    @property
    def api(self) -> str:
        """Path of the file with its HTTP."""
        return f"harbor/{self.plural}/api.py"

    @property
    def tests(self) -> str:
        """Path of its tests."""
        return f"tests/test_{self.plural}.py"


def pick(options: "list[T] | tuple[T, ...]", *key: object) -> T:
    """Return one of *options*, always the same for one key."""
    return options[number(len(options), *key)]


def number(below: int, *key: object) -> int:
    """Return a number below *below*, always the same for one key."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest()) % below


def things() -> list[Thing]:
    """Return all parts of the project."""
    return [_thing(line) for line in THINGS.strip().splitlines()]


def _thing(line: str) -> Thing:
    names, about, *rest = line.split("|")
    name, plural = names.split()
    of, text, money, time = rest[0].split()
    return Thing(
        name, plural, about, (of, text, money, time), *(tuple(words.split()) for words in rest[1:])
    )


def files() -> dict[str, str]:
    """Return every file of the project by path."""
    project_files = dict(SHARED)
    for thing in things():
        project_files[f"harbor/{thing.plural}/model.py"] = _words(pieces.MODEL, thing)
        project_files[thing.service] = _words(_service(thing), thing)
        project_files[thing.store] = _words(_store(thing), thing)
        project_files[thing.api] = _words(outside.API, thing)
        project_files[thing.tests] = _words(_tests(thing), thing)
    return project_files


def _service(thing: Thing) -> str:
    actions = [text.replace("ctuate", f"ctuate{n}") for n, text in enumerate(pieces.ACTION)]
    blocks = sorted(
        [*actions, *pieces.SERVICE.values()], key=lambda text: number(99, thing.name, text)
    )
    return pieces.SERVICE_HEAD + "".join(blocks)


def _store(thing: Thing) -> str:
    blocks = sorted(pieces.STORE.items(), key=lambda item: number(99, "store", thing.name, item[0]))
    return pieces.STORE_HEAD + "".join(text for _, text in blocks) + pieces.STORE_TAIL


def _tests(thing: Thing) -> str:
    blocks = sorted(outside.TESTS, key=lambda text: number(99, "tests", thing.name, text))
    return outside.TEST_HEAD + "\n".join(["", *blocks])


def _words(text: str, thing: Thing) -> str:
    """Return *text* about a gizmo as a text about *thing*."""
    of, beta, money, time = thing.fields
    n = number(900, thing.name) + 40
    swap = {
        "{about}": thing.about, "{about_cap}": thing.about[:1].upper() + thing.about[1:],
        "{states}": ", ".join(f'"{state}"' for state in thing.states),
        "{state}": thing.states[1], **{f"{{state{k}}}": state for k, state in enumerate(thing.states)},
        "{alpha_word}": of, "{beta_word}": beta, "{sample}": thing.samples[0], "{sample2}": thing.samples[1],
        "{grace}": str(pick((15, 20, 30, 45), thing.name)), "{retries}": str(2 + number(3, thing.name)),
        "{n}": str(n), "{cents}": f"{n * 37 % 9000 + 900:_}",
        **{f"{a}ctuate{k}": action if a == "a" else action.capitalize() for k, action in enumerate(thing.actions) for a in "aA"},
        "actuate": thing.actions[0], "gizmos": thing.plural, "gizmo": thing.name,
        "Gizmo": thing.name.capitalize(), "alpha": of, "beta": beta, "gamma_cents": f"{money}_cents", "due_at": time,
    }  # fmt: skip
    for word, replacement in swap.items():
        text = text.replace(word, replacement)
    return text


SHARED = {
    "harbor/clock.py": '''"""What time it is. The only module that may ask the operating system.

Everything inside is UTC and aware. Local time is for people: convert at the edge, with `local`.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

HOME = ZoneInfo("Europe/Berlin")


def now() -> datetime:
    return datetime.now(UTC)


def local(moment: datetime) -> datetime:
    """*moment* as the clock on the quay shows it."""
    return moment.astimezone(HOME)


def parse(text: str) -> datetime:
    """A time as it stands in the database: rows from before 2026-11 have no offset and are local."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=HOME).astimezone(UTC)
''',
    "tests/fakes.py": '''"""Doubles for tests: a database in memory, settings, a stopped clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from unittest import mock

from harbor.db import MemoryConnection
from harbor.settings import Settings


class FakeDatabase(MemoryConnection):
    def __init__(self, *tables: str) -> None:
        super().__init__(schema="migrations/", only=tables)


def settings(**changes: object) -> Settings:
    return Settings.for_tests(**changes)


@contextmanager
def frozen(text: str, fold: int = 0) -> Iterator[datetime]:
    """The local clock stands at *text*; `fold=1` is the second time that 02:30 happens."""
    moment = datetime.fromisoformat(text).replace(fold=fold)
    with mock.patch("harbor.clock.now", lambda: moment):
        yield moment
''',
    "harbor/worker/jobs.py": '''"""What the worker runs, and when. Times are local, on purpose: the crew reads this file."""

from harbor.worker import every, nightly

every(minutes=1, run="harbor.holds.service:HoldService.sweep")
every(minutes=5, run="harbor.waitlist.service:WaiterService.sweep")
every(minutes=15, run="harbor.notices.service:NoticeService.sweep")
nightly(at="02:30", run="harbor.bookings.service:BookingService.sweep")  # runs twice when the clocks change
nightly(at="03:10", run="harbor.manifests.service:ManifestService.sweep")
''',
    "migrations/0031_holds_expiry.sql": """-- applied in production 2025-03-02; see docs/runbooks/migrations.md before you even think of it
ALTER TABLE holds ADD COLUMN expires_at TEXT NOT NULL DEFAULT '2025-03-02T00:00:00';
CREATE INDEX holds_due_idx ON holds (expires_at) WHERE state = 'open';
""",
    "locales/zh.json": """{
  "hold.conflict": "该座位已被他人预留，请选择其他座位。",
  "hold.not_found": "找不到该预留。",
  "booking.conflict": "该预订已被修改，请刷新后重试。",
  "booking.not_found": "找不到该预订。",
  "payment.conflict": "该付款已处理。"
}
""",
    "CHANGELOG.md": """# Changelog

## 4.11.2 (2026-10-19)

- Vouchers can be prolonged from the desk (#388).
- The manifest export no longer drops passengers whose names have an apostrophe (#401).

## 4.11.1 (2026-10-06)

- Boarding passes are reissued when a gate changes (#379).
""",
}
"""Files that do not belong to a part."""
