"""More templates of the demo's imaginary project: HTTP and tests (see
`benchmarks.demo_session.pieces`)."""

API = '''"""HTTP for gizmos. Field names are a public contract: three travel agencies parse them."""

from datetime import datetime
from typing import Any

from harbor.errors import Conflict, NotFound
from harbor.gizmos.model import Gizmo
from harbor.gizmos.service import GizmoService
from harbor.http import Request, Response, Router, translate

router = Router(prefix="/v2/gizmos")


def to_json(gizmo: Gizmo) -> dict[str, Any]:
    return {
        "id": gizmo.id,
        "alpha": gizmo.alpha_id,
        "beta": gizmo.beta,
        "amount": {"cents": gizmo.gamma_cents, "currency": "EUR"},
        "dueAt": gizmo.due_at.isoformat(timespec="seconds"),
        "state": gizmo.state,
    }


@router.get("/{id:int}")
def show(request: Request, gizmos: GizmoService) -> Response:
    try:
        return Response(to_json(gizmos.store.get(request.path["id"])))
    except NotFound:
        return Response({"error": translate("gizmo.not_found", request.locale)}, status=404)


@router.post("/{id:int}/actuate")
def actuate(request: Request, gizmos: GizmoService) -> Response:
    """409 when somebody else was faster; the client shows `error` to the passenger as it is."""
    try:
        changed = gizmos.actuate(request.path["id"], actor=request.user.id)
    except Conflict as conflict:
        return Response({"error": translate("gizmo.conflict", request.locale), "detail": str(conflict)}, status=409)
    return Response(to_json(changed))


@router.get("/")
def index(request: Request, gizmos: GizmoService) -> Response:
    since = datetime.fromisoformat(request.query.get("since", "2020-01-01"))
    page = gizmos.store.page(after=int(request.query.get("after", 0)))
    return Response({"items": [to_json(gizmo) for gizmo in page if gizmo.created_at >= since]})
'''

TEST_HEAD = """from datetime import datetime, timedelta

import pytest

from harbor.errors import Conflict
from harbor.gizmos.api import to_json
from harbor.gizmos.model import STATES, Gizmo
from harbor.gizmos.service import GRACE, GizmoService
from tests.fakes import FakeDatabase, frozen, settings


@pytest.fixture
def service() -> GizmoService:
    return GizmoService.over(FakeDatabase("gizmos"), settings(gizmo_minutes={grace}))


def make(service: GizmoService, **fields: object) -> Gizmo:
    values = {"alpha_id": {n}, "beta": "{sample}", "gamma_cents": {cents}, "due_at": datetime(2026, 6, 1, 12), **fields}
    return service.store.insert(Gizmo(id=0, **values))
"""

TESTS = [
    """
def test_gizmo_starts_{state0}(service):
    assert make(service).state == STATES[0]
""",
    """
def test_a_taken_{beta_word}_is_a_conflict(service):
    make(service)
    with pytest.raises(Conflict, match="is taken by gizmo 1"):
        make(service)
""",
    """
@pytest.mark.parametrize("state", STATES[-2:])
def test_a_final_gizmo_does_not_change(service, state):
    gizmo = make(service, state=state)
    with pytest.raises(Conflict):
        service.actuate(gizmo.id, actor=7)
    assert service.store.get(gizmo.id).state == state
""",
    """
def test_sweep_leaves_what_is_not_due(service):
    with frozen("2026-06-01 11:00"):
        make(service, beta="{sample}")
        make(service, beta="{sample2}", due_at=datetime(2026, 6, 1, 10, 59))
        assert service.sweep() == 1
    assert [gizmo.beta for gizmo in service.store.by_alpha({n}, state=STATES[0])] == ["{sample}"]
""",
    '''
def test_gizmo_across_the_clock_change(service):
    """2026-10-25: 03:00 CEST becomes 02:00 CET, so 02:30 happens twice."""
    with frozen("2026-10-25 02:50", fold=0) as start:
        gizmo = make(service, due_at=start + timedelta(minutes={grace}))
    with frozen("2026-10-25 02:01", fold=1):
        assert service.remaining(gizmo) == timedelta(minutes={grace} - 11)
        assert service.sweep() == 0
''',
    """
def test_json_field_names_are_a_contract(service):
    body = to_json(make(service))
    assert sorted(body) == sorted(["id", "alpha", "beta", "amount", "dueAt", "state"])
    assert body["dueAt"] == "2026-06-01T12:00:00"
    assert body["amount"] == {"cents": {cents}, "currency": "EUR"}
""",
    """
def test_too_late_to_actuate(service):
    gizmo = make(service, due_at=datetime(2026, 6, 1, 12) - GRACE)
    with frozen("2026-06-01 12:30"), pytest.raises(Conflict, match="too late"):
        service.actuate(gizmo.id, actor=7)
""",
    """
def test_totals_by_state(service):
    make(service)
    make(service, beta="{sample2}", state="{state2}", gamma_cents=1_250)
    assert service.store.totals({n}) == {"{state0}": {cents}, "{state2}": 1250}
""",
    """
def test_explain_names_a_purged_gizmo(service):
    assert "never existed, or was purged" in service.explain(404)
""",
]
