"""Text templates of the demo's imaginary project.

They are written about a *gizmo* with the fields `alpha_id`, `beta` and `gamma_cents`, the time
`due_at` and the action `actuate`. `benchmarks.demo_session.project` replaces these with a real
thing's words.
"""

MODEL = '''"""What a gizmo is: {about}."""

from dataclasses import dataclass, field
from datetime import datetime

STATES = ({states})


@dataclass(slots=True)
class Gizmo:
    """{about_cap}."""

    id: int
    alpha_id: int
    beta: str
    gamma_cents: int
    due_at: datetime
    state: str = STATES[0]
    created_at: datetime = field(default_factory=datetime.now)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise ValueError(f"unknown gizmo state {self.state!r}")
        if self.gamma_cents < 0:
            raise ValueError(f"gamma_cents must not be negative: {self.gamma_cents}")

    @property
    def is_final(self) -> bool:
        return self.state in STATES[-2:]

    def note(self, text: str) -> None:
        self.notes.append(text.strip())
'''

STORE_HEAD = '''"""Reads and writes gizmos. Nothing else in the code base speaks SQL about them."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from harbor.db import Connection, Row, rows
from harbor.errors import Conflict, NotFound
from harbor.gizmos.model import Gizmo

COLUMNS = "id, alpha_id, beta, gamma_cents, due_at, state, created_at"


class GizmoStore:
    def __init__(self, db: Connection) -> None:
        self.db = db

    def get(self, id: int) -> Gizmo:
        row = self.db.one(f"SELECT {COLUMNS} FROM gizmos WHERE id = :id", id=id)
        if row is None:
            raise NotFound("gizmo", id)
        return _from_row(row)
'''

STORE = {
    "by_alpha": """
    def by_alpha(self, alpha_id: int, *, state: str | None = None) -> list[Gizmo]:
        sql = f"SELECT {COLUMNS} FROM gizmos WHERE alpha_id = :alpha_id"
        if state is not None:
            sql += " AND state = :state"
        return [_from_row(row) for row in rows(self.db, sql + " ORDER BY id", alpha_id=alpha_id, state=state)]
""",
    "due_before": '''
    def due_before(self, moment: datetime, limit: int = 500) -> list[Gizmo]:
        """Gizmos whose time is up. The index gizmos_due_idx covers this."""
        sql = f"SELECT {COLUMNS} FROM gizmos WHERE due_at <= :moment AND state = '{state0}' LIMIT :limit"
        return [gizmo for gizmo in map(_from_row, rows(self.db, sql, moment=moment, limit=limit)) if gizmo.due_at <= moment]
''',
    "insert": """
    def insert(self, gizmo: Gizmo) -> Gizmo:
        found = self.db.one("SELECT id FROM gizmos WHERE alpha_id = :a AND beta = :b AND state = :s",
                            a=gizmo.alpha_id, b=gizmo.beta, s=gizmo.state)
        if found is not None:
            raise Conflict(f"{gizmo.beta} is taken by gizmo {found['id']}")
        gizmo.id = self.db.insert("gizmos", alpha_id=gizmo.alpha_id, beta=gizmo.beta, gamma_cents=gizmo.gamma_cents,
                                  due_at=gizmo.due_at, state=gizmo.state, created_at=gizmo.created_at)
        return gizmo
""",
    "update": '''
    def update(self, gizmo: Gizmo, *, expected: str) -> None:
        """Write a new state, unless somebody else was faster."""
        changed = self.db.run(
            "UPDATE gizmos SET state = :state, due_at = :due_at WHERE id = :id AND state = :expected",
            state=gizmo.state, due_at=gizmo.due_at, id=gizmo.id, expected=expected,
        )
        if changed != 1:
            raise Conflict(f"gizmo {gizmo.id} is no longer {expected}")
''',
    "page": """
    def page(self, after: int = 0, size: int = 100) -> Sequence[Gizmo]:
        sql = f"SELECT {COLUMNS} FROM gizmos WHERE id > :after ORDER BY id LIMIT :size"
        return tuple(map(_from_row, rows(self.db, sql, after=after, size=min(size, 1000))))
""",
    "stream": '''
    def stream(self, since: datetime, until: datetime) -> Iterator[Gizmo]:
        """Every gizmo created in [since, until), oldest first, without holding them all."""
        last = 0
        while batch := self.db.all(
            f"SELECT {COLUMNS} FROM gizmos WHERE id > :last AND created_at >= :since AND created_at < :until "
            "ORDER BY id LIMIT 1000", last=last, since=since, until=until,
        ):
            yield from map(_from_row, batch)
            last = batch[-1]["id"]
''',
    "totals": """
    def totals(self, alpha_id: int) -> dict[str, int]:
        sql = "SELECT state, SUM(gamma_cents) AS cents FROM gizmos WHERE alpha_id = :a GROUP BY state"
        return {row["state"]: int(row["cents"] or 0) for row in rows(self.db, sql, a=alpha_id)}
""",
    "purge": '''
    def purge(self, before: datetime) -> int:
        """Delete what is final and older than *before*; the audit log keeps its own copy."""
        return self.db.run("DELETE FROM gizmos WHERE state IN ('{state2}', '{state3}') AND created_at < :before", before=before)
''',
}

STORE_TAIL = """

def _from_row(row: Row) -> Gizmo:
    return Gizmo(
        id=row["id"],
        alpha_id=row["alpha_id"],
        beta=row["beta"],
        gamma_cents=row["gamma_cents"],
        due_at=datetime.fromisoformat(row["due_at"]),
        state=row["state"],
        created_at=datetime.fromisoformat(row["created_at"]),
    )
"""

SERVICE_HEAD = '''"""The rules for gizmos ({about})."""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from harbor.events import Event, publish
from harbor.errors import Conflict, Forbidden, NotFound
from harbor.gizmos.model import STATES, Gizmo
from harbor.gizmos.store import GizmoStore
from harbor.settings import Settings

log = logging.getLogger(__name__)

GRACE = timedelta(minutes={grace})
RETRIES = {retries}


class GizmoService:
    """{about_cap}: what may be done with it, and when."""

    def __init__(self, store: GizmoStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings
'''

ACTION = [
    '''
    def actuate(self, id: int, *, actor: int) -> Gizmo:
        """Actuate a gizmo on behalf of *actor*."""
        gizmo = self.store.get(id)
        if gizmo.is_final:
            raise Conflict(f"gizmo {id} is {gizmo.state} and cannot be changed any more")
        now = datetime.now()
        if now > gizmo.due_at + GRACE:
            raise Conflict(f"gizmo {id} was due {gizmo.due_at:%H:%M}, too late to actuate it")
        changed = replace(gizmo, state="{state}")
        self.store.update(changed, expected=gizmo.state)
        publish(Event("gizmo.actuate", id=id, actor=actor, at=now))
        return changed
''',
    '''
    def actuate(self, alpha_id: int, beta: str, *, minutes: int | None = None) -> Gizmo:
        """Actuate {beta_word} of one {alpha_word}; raises Conflict when it is taken."""
        minutes = minutes or self.settings.gizmo_minutes
        if not 1 <= minutes <= 24 * 60:
            raise ValueError(f"minutes must be between 1 and 1440, not {minutes}")
        due_at = datetime.now() + timedelta(minutes=minutes)
        gizmo = Gizmo(0, alpha_id, beta, self._price(alpha_id, beta), due_at)
        for attempt in range(RETRIES):
            try:
                return self.store.insert(gizmo)
            except Conflict as conflict:
                log.info("actuate gizmo: attempt %d: %s", attempt + 1, conflict)
                self._free_stale(alpha_id)
        raise Conflict(f"{beta} of {alpha_id} is taken")
''',
    '''
    def actuate(self, gizmo: Gizmo, by: timedelta = GRACE) -> Gizmo:
        """Actuate once; a second time only for staff (see docs/policies/gizmos.md)."""
        if gizmo.notes.count("actuate") >= self.settings.gizmo_limit:
            raise Forbidden(f"gizmo {gizmo.id} was already changed {len(gizmo.notes)} times")
        later = max(gizmo.due_at, datetime.now()) + by
        changed = replace(gizmo, due_at=later)
        changed.note("actuate")
        self.store.update(changed, expected=gizmo.state)
        return changed
''',
    '''
    def actuate(self, id: int, reason: str) -> None:
        """Actuate without asking; *reason* goes to the audit log word for word."""
        gizmo = self.store.get(id)
        if gizmo.state == "{state}":
            return
        self.store.update(replace(gizmo, state="{state}"), expected=gizmo.state)
        publish(Event("gizmo.actuate", id=id, reason=reason[:500], at=datetime.now()))
''',
]

SERVICE = {
    "sweep": '''
    def sweep(self) -> int:
        """Expire everything whose time is up. Runs every minute (see harbor/worker/jobs.py)."""
        now = datetime.now()
        count = 0
        for gizmo in self.store.due_before(now):
            try:
                self.store.update(replace(gizmo, state="{state3}"), expected=gizmo.state)
            except Conflict:
                continue  # paid for while we were looking
            publish(Event("gizmo.expired", id=gizmo.id, at=now))
            count += 1
        if count:
            log.info("swept %d gizmos due before %s", count, now.isoformat(timespec="seconds"))
        return count
''',
    "free_stale": '''
    def _free_stale(self, alpha_id: int) -> None:
        """Release what this {alpha_word} holds past its time, before anybody is told 'sold out'."""
        for gizmo in self.store.by_alpha(alpha_id, state=STATES[0]):
            if gizmo.due_at < datetime.now():
                self.store.update(replace(gizmo, state="{state3}"), expected=STATES[0])
''',
    "price": '''
    def _price(self, alpha_id: int, beta: str) -> int:
        """Cents. Rounded half up to whole cents once, at the end; never in between."""
        base = self.settings.base_cents.get(beta[:1], self.settings.default_cents)
        factor = 1_000 + self.settings.season_permille(alpha_id)
        return (base * factor + 500) // 1_000
''',
    "remaining": '''
    def remaining(self, gizmo: Gizmo) -> timedelta:
        """How long until it is due; zero when it is over."""
        return max(gizmo.due_at - datetime.now(), timedelta())
''',
    "summary": '''
    def summary(self, alpha_id: int) -> dict[str, object]:
        """What the dashboard shows for one {alpha_word}."""
        found = self.store.by_alpha(alpha_id)
        by_state = {state: [gizmo for gizmo in found if gizmo.state == state] for state in STATES}
        return {
            "total": len(found),
            "cents": sum(gizmo.gamma_cents for gizmo in found),
            **{state: len(gizmos) for state, gizmos in by_state.items()},
            "next_due": min((gizmo.due_at for gizmo in by_state[STATES[0]]), default=None),
        }
''',
    "merge": '''
    def merge(self, first: int, second: int) -> Gizmo:
        """Two gizmos of one {alpha_word} become one, as the desk staff do by hand on busy days."""
        keep, gone = sorted((self.store.get(first), self.store.get(second)), key=lambda gizmo: gizmo.created_at)
        if keep.alpha_id != gone.alpha_id:
            raise Conflict(f"gizmos {first} and {second} belong to different {alpha_word}s")
        merged = replace(keep, gamma_cents=keep.gamma_cents + gone.gamma_cents, notes=[*keep.notes, *gone.notes])
        self.store.update(replace(gone, state="{state2}"), expected=gone.state)
        self.store.update(merged, expected=keep.state)
        return merged
''',
    "report": '''
    def day(self, moment: datetime | None = None) -> list[Gizmo]:
        """The gizmos of the local day of *moment* (today): from midnight to midnight."""
        start = (moment or datetime.now()).replace(hour=0, minute=0, second=0, microsecond=0)
        return list(self.store.stream(start, start + timedelta(days=1)))
''',
    "explain": '''
    def explain(self, id: int) -> str:
        """One line for the support desk."""
        try:
            gizmo = self.store.get(id)
        except NotFound:
            return f"gizmo {id}: never existed, or was purged after {self.settings.keep_days} days"
        when = f"due {gizmo.due_at:%d %b %H:%M}" if not gizmo.is_final else f"closed, was due {gizmo.due_at:%d %b %H:%M}"
        return f"gizmo {gizmo.id}: {gizmo.beta} of {gizmo.alpha_id}, {gizmo.state}, {when}, {gizmo.gamma_cents / 100:.2f} EUR"
''',
}
