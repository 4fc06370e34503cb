"""The page at `/refold/`: its files, and what it does in a real browser. Without one those tests are skipped."""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import refold
from refold.economics.prices import Rates
from refold.gateway.config import Config
from refold.gateway.serve import create_gateway
from refold.gateway.upstreams import Upstream
from refold.testing.scripted_gateway import Serving, serving
from refold.testing.scripted_provider import ScriptedProvider
from tests.support.api_gateway import (
    SECRET,
    TOKEN,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    serve_api,
)
from tests.support.browser import Browser, ChromeDriver
from tests.support.gateway_processes import GatewayProcess, run_processes
from tests.support.raw_http import eventually

pytestmark = pytest.mark.slow
FILES = {
    "/refold/": "text/html; charset=utf-8",
    "/refold/page.css": "text/css; charset=utf-8",
    "/refold/page.js": "text/javascript; charset=utf-8",
    "/refold/icon.svg": "image/svg+xml",
}
PAGE = Path(refold.__file__).parent / "gateway" / "api" / "page"
CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const rgb = (text) => text.startsWith('rgb') ? text.match(/[\\d.]+/g).map(Number) : null;
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const found = rgb(getComputedStyle(one).backgroundColor);
    if (found && (found.length === 3 || found[3] === 1)) return found;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')].filter((one) => one.checkVisibility() && [...one.childNodes].some(
  (node) => node.nodeType === 3 && node.textContent.trim())).map((one) => {
  const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))];
  return [one.textContent.slice(0, 40), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
}).filter(([, ratio]) => ratio < 4.5);
"""
"""Texts that stand out less than WCAG's 4.5 to 1."""


@pytest.fixture(scope="module")
def browser():
    with ChromeDriver() as window:
        yield window


def entered(browser: Browser, at: ApiGateway) -> Browser:
    """The page, with the token given."""
    browser.open(f"{at.served.url}/refold/")
    browser.type("#token", TOKEN)
    browser.click("#entry button")
    browser.find("#glance")
    return browser


def complaints(browser: Browser) -> list[str]:
    """What the console says, but for the refusal by which the page learns that a token is wanted."""
    return [one for one in browser.console_messages() if "401 (Unauthorized)" not in one]


# --- its files --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES)
def test_the_files_are_anybody_s_and_hold_no_data(at: ApiGateway, path: str) -> None:
    at.say(chat_request(40))
    answer = at.client.get(path)
    assert answer.status_code == 200 and answer.headers["content-type"] == FILES[path]
    assert (
        answer.content
        == (PAGE / {"/refold/": "page.html"}.get(path, path.rpartition("/")[2])).read_bytes()
    )
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    head = at.client.head(path)
    assert head.status_code == 200 and head.content == b""
    assert at.client.post(path).status_code == 401, "anything else wants the token"


def test_the_way_to_the_page(at: ApiGateway) -> None:
    door = at.client.get("/", headers={"accept": "text/html,*/*"}, follow_redirects=False)
    assert (door.status_code, door.headers["location"]) == (307, "/refold/")
    answer = at.client.get("/refold")
    assert answer.status_code == 308 and answer.headers["location"] == "/refold/"
    for other in ("/refold/page", "/refold/page.html", "/refold/%70age.jsx"):
        assert at.client.get(other).status_code in {400, 401}


def test_a_gateway_without_the_api_has_no_page() -> None:
    with serving(
        Config(upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),), salt=b"s")
    ) as served:
        assert httpx.get(f"{served.url}/refold/").status_code == 404


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    html, script = ((PAGE / name).read_text(encoding="utf-8") for name in ("page.html", "page.js"))
    assert not re.search(r"<script(?! src)|<style|\son\w+=|\sstyle=|javascript:", html)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", script
    )
    assert "localStorage" not in script and "cookie" not in script
    for name in FILES:
        text = (PAGE / {"/refold/": "page.html"}.get(name, name.rpartition("/")[2])).read_text(
            encoding="utf-8"
        )
        assert (
            re.findall(
                r"(?:https?:)?//[\w.-]+\.\w+", text.replace("http://www.w3.org/2000/svg", "")
            )
            == []
        )


# --- in a browser -----------------------------------------------------------------------------


def test_the_token_is_asked_for_and_stays_in_the_tab(browser: Browser, at: ApiGateway) -> None:
    browser.open(f"{at.served.url}/refold/")
    browser.type("#token", "wrong")
    browser.click("#entry button")
    assert browser.wait("#status", "not the admin token")
    assert (
        browser.run("return sessionStorage.length + localStorage.length + document.cookie.length")
        == 0
    )
    entered(browser, at)
    assert browser.run("return Object.values(sessionStorage)") == [TOKEN]
    assert browser.run("return localStorage.length + document.cookie.length") == 0
    assert browser.text("#none") == "No request has come yet."
    browser.click("#forget")
    browser.find("#token")
    assert browser.run("return sessionStorage.length") == 0
    assert complaints(browser) == []


def test_without_a_token_set_this_machine_sees_all_at_once(browser: Browser) -> None:
    alone = Config(
        upstreams=(Upstream(name="up", url="http://127.0.0.1:9"),), store=":memory:", salt=b"s"
    )
    with Serving(create_gateway(alone)) as served:
        browser.open(f"{served.url}/refold/")
        browser.find("#glance")
        assert not browser.ask("GET", f"/element/{browser.all('#entry')[0]}/displayed")


def test_what_was_done_is_seen_previewed_accepted_and_undone(
    browser: Browser, at: ApiGateway
) -> None:
    at.say(chat_request(40))
    at.say(chat_request(10), **{"x-session-id": "another"})
    entered(browser, at)
    small, large = at.get("sessions").json()["sessions"]
    rows = [browser.ask("GET", f"/element/{one}/text") for one in browser.all("#rows tr")]
    assert small["id"][:8] in rows[0] and f"{large['tokens_before']:,}" in rows[1]
    assert browser.text("#metrics").split("\n")[:2] == ["Requests", "2"]

    browser.click("#rows tr:nth-child(2) button")
    assert "Summary of the earlier part" in browser.wait("#edits", "Summarize")
    rest = "const page = document.documentElement.cloneNode(true);"
    rest += "page.querySelector('#edits').remove(); return page.outerHTML"
    assert SECRET not in browser.run(rest), "a summary quotes; nothing else does"

    browser.click("#rows tr:nth-child(1) button")
    browser.wait("#edits", "sent unedited")
    browser.click("#preview")
    assert "tokens become" in browser.wait("#offer", "Accept")
    browser.click("#offer details summary")
    browser.type("#offer textarea", " Small commits.")
    browser.click("#offer .main")
    browser.wait("#status", "Accepted")
    at.say(chat_request(10), **{"x-session-id": "another"})
    assert (
        b"Small commits." in at.upstream.received[-1].body
        and SECRET.encode() + b" 0" not in at.upstream.received[-1].body
    )

    browser.click("#edits button")
    assert browser.text("#edits button") == "Really undo?"
    browser.click("#edits button")
    browser.wait("#status", "Done: the next request")
    browser.wait("#edits", "sent unedited")
    at.say(chat_request(10), **{"x-session-id": "another"})
    assert json.loads(at.upstream.received[-1].body) == chat_request(10)
    browser.click("#ledger summary")
    assert [line.split(" ")[-1] for line in browser.text("#attempts").split("\n")][:2] == [
        "page",
        "page",
    ]
    assert complaints(browser) == []


def test_what_a_local_strategy_did_can_be_undone_and_done_again(
    browser: Browser, at: ApiGateway
) -> None:
    body = chat_request(3, "large")
    body["messages"][-1]["content"] = "一行日志\n" * 30_000
    at.say(body)
    entered(browser, at)
    browser.click("#rows button")
    browser.wait("#edits", "ClipResults")
    for name, then in (("Undo", "This was reverted."), ("Redo", "ClipResults")):
        assert browser.text("#edits button") == name
        browser.click("#edits button")
        browser.click("#edits button")
        browser.wait("#edits", then)
        at.say(body)
        assert (json.loads(at.upstream.received[-1].body) == body) == (name == "Undo")


def test_what_was_said_can_become_no_markup(browser: Browser, at: ApiGateway) -> None:
    evil = "<img src=x onerror='window.bad=1'><script>window.bad=1</script>"
    body = chat_request(40, f"local{evil}")
    body["messages"][1]["content"] = f"Never {evil} in src/<b>.py."
    at.say(body)
    assert at.get("sessions").json()["sessions"][0]["model"].endswith(evil)
    entered(browser, at)
    assert evil in browser.wait("#rows", "local")
    browser.click("#rows button")
    browser.find("#detail")
    browser.click("#preview")
    assert "<img src=x" in browser.wait("#offer", "Accept")
    assert browser.run(
        "return [window.bad, document.querySelectorAll('main img, main script').length]"
    ) == [None, 0]
    assert complaints(browser) == []


def test_the_policy_holds_and_nothing_is_loaded_from_elsewhere(
    browser: Browser, at: ApiGateway
) -> None:
    entered(browser, at)
    loaded = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert loaded and all(one.startswith(at.served.url) for one in loaded)
    assert complaints(browser) == []
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s)"
    )
    assert browser.run("return window.bad") is None
    assert any("Content Security Policy" in one for one in complaints(browser))


def test_a_history_that_is_not_remembered_is_asked_for(browser: Browser, at: ApiGateway) -> None:
    body = chat_request(10)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    body["messages"][1]["content"] = [{"type": "text", "text": "Look."}, image]
    at.say(body)
    entered(browser, at)
    browser.click("#rows button")
    browser.find("#detail")
    browser.click("#preview")
    browser.find("#history")
    browser.run("document.getElementById('history').value = arguments[0]", json.dumps(body))
    browser.click("#offer .main")
    browser.wait("#offer", "Accept")


def test_everything_can_be_reached_by_keyboard_and_has_a_name(
    browser: Browser, at: ApiGateway
) -> None:
    at.say(chat_request(40))
    browser.open(f"{at.served.url}/refold/")
    browser.find("#token")
    assert browser.accessible_name("#token") == "Admin token"
    browser.press(*TOKEN, "\ue007")  # Enter; the field has the focus
    browser.find("#rows button")
    for _ in range(12):
        browser.press("\ue004")  # Tab
        if browser.run("return document.activeElement.closest('#rows') !== null"):
            break
    browser.press("\ue007")
    browser.find("#detail")
    assert browser.run("return document.activeElement.id") == "detail", (
        "the focus goes where the news is"
    )
    browser.press("\ue004", "\ue007")
    browser.find("#offer .main")
    assert browser.run("return document.activeElement.closest('#offer') !== null")
    for selector in ("button", "textarea", "input", "progress", "table", "section"):
        for one in browser.all(selector):
            if browser.ask("GET", f"/element/{one}/displayed"):
                assert browser.ask("GET", f"/element/{one}/computedlabel"), (
                    f"a {selector} without a name"
                )
    assert browser.run("return document.documentElement.lang") == "en"


def delayed(browser: Browser, path: str) -> None:
    """Answers to *path* wait until `release()` is called in the page."""
    browser.run(
        """const asked = window.fetch; const until = new Promise((done) => { window.release = done; });
        window.fetch = async (path, more) => {
          const answer = await asked(path, more);
          if (String(path).includes(arguments[0])) await until;
          return answer;
        };""".replace("arguments[0]", json.dumps(path))
    )


def failing(browser: Browser, path: str) -> None:
    """Questions to *path* fail as long as `down` is true in the page, which it is."""
    browser.run(
        """const asked = window.fetch; window.down = true;
        window.fetch = async (path, more) => {
          if (window.down && String(path).includes(PATH)) throw new TypeError("down");
          return asked(path, more);
        };""".replace("PATH", json.dumps(path))
    )


@pytest.fixture
def two(browser: Browser, at: ApiGateway) -> tuple[str, str]:
    """Two sessions, the latest first, and the page that lists them."""
    at.say(chat_request(40))
    at.say(chat_request(12), **{"x-session-id": "another"})
    entered(browser, at)
    return tuple(one["id"][:8] for one in at.get("sessions").json()["sessions"])


def test_a_preview_that_comes_late_is_not_shown_under_another_session(
    browser: Browser, two: tuple[str, str]
) -> None:
    """It was, and could be accepted there."""
    later, former = two
    browser.click("#rows tr:nth-child(1) button")
    browser.wait("#detail-title", later)
    delayed(browser, "/preview")
    browser.click("#preview")
    browser.wait("#status", "Working on a preview")
    browser.click("#rows tr:nth-child(2) button")
    browser.wait("#detail-title", former)
    browser.run("window.release()")
    browser.click("#preview")  # that of the session that is open; it comes after the late one
    browser.find("#offer h3")
    assert browser.text("#offer h3") == f"Preview of session {former}"
    browser.click("#offer .main")
    assert f"session {former}" in browser.wait("#status", "Accepted")


def test_a_late_preview_alone_leaves_the_other_session_as_it_is(
    browser: Browser, two: tuple[str, str]
) -> None:
    browser.click("#rows tr:nth-child(1) button")
    browser.wait("#detail-title", two[0])
    delayed(browser, "/preview")
    browser.click("#preview")
    browser.click("#rows tr:nth-child(2) button")
    browser.wait("#detail-title", two[1])
    late = "window.release(); return new Promise((done) => setTimeout(done, 300))"
    browser.run(late)
    assert browser.run(
        "return [document.getElementById('offer').hidden, document.querySelectorAll('#offer *').length]"
    ) == [
        True,
        0,
    ]


def test_a_token_that_no_header_can_carry_is_refused_at_once(
    browser: Browser, at: ApiGateway
) -> None:
    """It was stored, and the page said that the gateway could not be reached, until the tab was closed."""
    browser.open(f"{at.served.url}/refold/")
    browser.find("#token")
    browser.run("document.getElementById('token').value = '密码密码'")
    browser.click("#entry button")
    browser.wait("#status", "ASCII")
    assert browser.run("return sessionStorage.length") == 0
    browser.run("sessionStorage.setItem('refold-admin-token', '密码')")  # as an older page left it
    entered(browser, at)
    assert browser.run("return Object.values(sessionStorage)") == [TOKEN]


def test_a_page_that_cannot_load_offers_the_way_in(browser: Browser, at: ApiGateway) -> None:
    browser.open(f"{at.served.url}/refold/")
    browser.find("#token")
    failing(browser, "/sessions")
    browser.type("#token", TOKEN)
    browser.click("#entry button")
    browser.wait("#status", "cannot be reached")
    assert browser.run("return sessionStorage.length") == 0, "only what was right is kept"
    browser.find("#entry button")
    browser.find("#forget")
    browser.run("window.down = false")
    browser.click("#entry button")
    browser.find("#glance")
    assert browser.text("#status") == "", "the error is over"
    assert browser.run("return Object.values(sessionStorage)") == [TOKEN]


def shown_figures(browser: Browser, where: str) -> dict[str, str]:
    """The tiles below *where*."""
    lines = browser.text(where).split("\n")
    return dict(zip(lines[::2], lines[1::2], strict=True))


def test_f16_the_page_after_a_restart_shows_what_the_store_has(
    browser: Browser, tmp_path: Path
) -> None:
    """It said that no request had come yet, and summed the money of the listed page alone: $0.00 of $5.06."""
    browser.console_messages()  # those of the tests before
    prices = Rates(input=200.0, output=900.0, read=20.0, write=250.0)
    with ScriptedProvider(answer_briefly) as upstream:
        made = replace(build_config(upstream, prices=prices), store=str(tmp_path / "refold.db"))
        with (
            Serving(create_gateway(made)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            for n in range(102):
                at.say(chat_request(40 if n == 0 else 3), **{"x-session-id": f"s{n}"})
        with closing(sqlite3.connect(f"{made.store}.ledger")) as connection, connection:
            connection.execute(
                "UPDATE refold_sessions SET last_seen = 0 WHERE session NOT IN "
                "(SELECT session FROM refold_sessions ORDER BY last_seen DESC LIMIT 3)"
            )
        with (
            Serving(create_gateway(made)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            assert eventually(lambda: at.get("sessions", scope="remembered").json()["total"] == 3)
            entered(browser, at)
            totals, sessions = (
                at.get("totals").json(),
                at.get("sessions", limit=200).json()["sessions"],
            )
            assert totals["saved"] > 0.5 and len(sessions) == 102
            tiles = shown_figures(browser, "#books")
            assert tiles["Answered requests"] == "102" and tiles["Sessions"] == "102"
            assert tiles["Saved net"] == f"${totals['saved']:,.4f}".rstrip("0")
            assert sum(one["saved_dollars"] for one in sessions) == pytest.approx(totals["saved"])
            assert not browser.ask("GET", f"/element/{browser.all('#none')[0]}/displayed")
            assert "Not seen for a week" in browser.text("#rows tr:nth-child(4)")
            assert (
                len(browser.all("#rows button")) == 3
                and browser.text("#span") == "Sessions 1 to 100 of 102"
            )
            browser.click("#rows button")
            browser.wait("#detail-title", sessions[0]["id"][:8])
            browser.click("#preview")
            assert "before a restart" in browser.wait("#offer", "Paste the request")
            assert all("409" in complaint for complaint in complaints(browser))
            at.say(chat_request(40), **{"x-session-id": "s0"})
            browser.click("#refresh")
            (latest,) = at.get("sessions", limit=1).json()["sessions"]
            browser.wait("#rows", f"{latest['tokens_before']:,}")
            browser.click("#rows button")
            browser.wait("#edits", "Summarize")
            assert browser.text("#books-title") == "All calls in the ledger"
            assert shown_figures(browser, "#metrics")["Requests"] == "1"
    assert complaints(browser) == []


def test_with_several_processes_the_page_finds_the_one_that_can_do_it(
    browser: Browser, tmp_path: Path
) -> None:
    """Each connection may be another process's, and only one has the history and the preview."""
    with ScriptedProvider(answer_briefly) as upstream:
        settings = f'admin_token = "{TOKEN}"\nstore = "{tmp_path}/refold.db"\n'
        settings += f'[windows]\nlocal = 16_000\n[[upstream]]\nurl = "{upstream.url}"\n'
        process = GatewayProcess(tmp_path, "workers", settings, "--workers", "3")
        with run_processes(process), httpx.Client(base_url=process.url, timeout=60) as client:
            for n in range(3):
                at = ApiGateway(upstream, process, client)
                at.say(chat_request(10), **{"x-session-id": f"s{n}"})
                total = n + 1
                assert eventually(
                    lambda at=at, total=total: at.get("sessions").json()["total"] == total
                )
                entered(browser, at) if n == 0 else browser.click("#refresh")
                browser.wait("#rows", at.session()[:8])
                browser.click("#rows tr:nth-child(1) button")
                browser.wait("#detail-title", at.session()[:8])
                browser.click("#preview")
                browser.wait("#offer", "Accept")
                browser.click("#offer .main")
                browser.wait("#status", "Accepted")
                browser.wait("#edits", "Undo")
                browser.click("#edits button")
                browser.click("#edits button")
                browser.wait("#status", "Done: the next request")
                browser.wait("#edits", "sent unedited")
    browser.console_messages()  # the answers that said to try again


def test_f21_what_was_said_can_be_read_to_its_end(browser: Browser) -> None:
    """20,000 characters were shown as if they were all."""
    with serve_api(record="1d") as at:
        body = chat_request(40)
        body["messages"][3]["content"] = (
            "".join(f"line {n} 行 \U0001f600\n" for n in range(12_000)) + "the very end"
        )
        at.say(body)
        session = at.session()
        assert eventually(lambda: at.get("history", session=session).json()["edits"][-1]["hidden"])
        entered(browser, at)
        browser.click("#rows button")
        browser.wait("#edits", "Summarize")
        browser.click("#edits details summary")
        said = "const all = [...document.querySelectorAll('#edits details pre')]; return all.at(-1).textContent"
        assert "the very end" not in browser.run(said)
        assert "more characters." in browser.text("#edits details .row")
        for _ in range(8):
            if not browser.run(
                "return !document.querySelector('#edits details .row button').hidden"
            ):
                break
            before = browser.run(f"{said}.length")
            browser.click("#edits details .row button")
            assert eventually(lambda before=before: browser.run(f"{said}.length") > before)
        browser.wait("#edits details .row", "That is all of it.")
        whole, offset = "", 0
        edit = at.get("history", session=session).json()["edits"][-1]["id"]
        while offset is not None:
            part = at.get(
                "edit_text", session=session, edit=edit, of="hidden", offset=offset, limit=10**6
            ).json()
            whole, offset = whole + part["text"], part["next"]
        assert browser.run(said) == whole and body["messages"][3]["content"] in whole
        assert complaints(browser) == []


def test_nothing_of_one_session_stays_on_the_page_of_another(
    browser: Browser, at: ApiGateway
) -> None:
    """Whatever was open before: summary, preview, ledger; words and figures are those of the session that is named."""
    words = {}
    for name in ("alpha", "beta"):
        body = chat_request(10)
        words[name] = f"src/{name}_only.py"
        body["messages"][1]["content"] = f"Mend {words[name]}. Never touch {name}_ledger."
        at.say(body, authorization=f"Bearer sk-{name}")
    entered(browser, at)
    for row, mine, other in ((1, "beta", "alpha"), (2, "alpha", "beta"), (1, "beta", "alpha")):
        browser.run("window.scrollTo(0, 0)")
        browser.click(f"#rows tr:nth-child({row}) button")
        browser.wait("#about", "openai_chat")
        html = "return document.documentElement.outerHTML + [...document.querySelectorAll('textarea')].map((one) => one.value)"
        assert f"{other}_" not in browser.run(html)
        browser.click("#preview")
        browser.find("#offer .main")
        assert f"{mine}_" in browser.run(html) and f"{other}_" not in browser.run(html)
        if row == 2:
            browser.click("#offer .main")
            browser.wait("#status", "Accepted")
            assert f"{mine}_" in browser.wait(
                "#edits", "Summarize"
            ) and f"{other}_" not in browser.run(html)


SEEN = """
const box = document.getElementById('status').getBoundingClientRect();
const mid = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
return [box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth,
  mid !== null && mid.closest('#status') !== null, document.getElementById('status').ariaLive];
"""
"""Is the status in the viewport, with nothing before it, and read to who cannot see it?"""


@pytest.mark.parametrize("width", [360, 1_280])
@pytest.mark.parametrize("place", ["start", "center", "end"])
def test_f19_what_was_done_is_shown_where_one_looks(
    browser: Browser, at: ApiGateway, width: int, place: str
) -> None:
    """Accept and Undo said that they were done 423 pixels above what was on the screen."""
    for n in range(30):
        at.say(chat_request(3), **{"x-session-id": f"s{n}"})
    at.say(chat_request(10), **{"x-session-id": "another"})
    browser.resize(width, 640)
    try:
        entered(browser, at)
        browser.click("#rows tr:nth-child(1) button")
        browser.find("#detail")
        browser.click("#preview")
        browser.find("#offer .main")
        for selector, news, clicks in (
            ("#offer .main", "Accepted", 1),
            ("#edits button", "Done", 2),
        ):
            found = "document.querySelector(arguments[0])"
            browser.wait("#edits", "" if news == "Accepted" else "Summarize")
            browser.run(f"{found}.scrollIntoView({{block: arguments[1]}})", selector, place)
            for _ in range(clicks):
                browser.run(f"{found}.focus({{preventScroll: true}}); {found}.click()", selector)
            browser.wait("#status", news)
            assert browser.run(SEEN) == [True, True, "polite"]
            for y in (0, 200, 10**6):
                browser.run("window.scrollTo(0, arguments[0])", y)
                assert browser.run(SEEN)[:2] == [True, True], "it goes with who scrolls on"
    finally:
        browser.resize(0)


def test_f19_long_news_fit_on_the_screen_too(browser: Browser, at: ApiGateway) -> None:
    """An error can be as long as a provider makes it: its beginning is seen, the rest is scrolled to."""
    at.say(chat_request(3))
    browser.resize(360, 640)
    try:
        entered(browser, at)
        say = "document.getElementById('status').textContent = arguments[0].repeat(2000)"
        browser.run(say, "It could not be done. ")
        browser.run("window.scrollTo(0, 0)")
        assert browser.run(SEEN)[:2] == [True, True]
    finally:
        browser.resize(0)


def test_what_comes_back_and_does_not_fit_is_announced_so(browser: Browser, at: ApiGateway) -> None:
    at.say(chat_request(40))
    entered(browser, at)
    browser.click("#rows button")
    browser.wait("#edits", "Summarize")
    before = browser.accessible_name("#edits button")
    browser.click("#edits button")
    assert (
        before.startswith("Undo edit")
        and browser.accessible_name("#edits button") == before.replace("Undo", "Really undo") + "?"
    )
    browser.click("#edits button")
    browser.wait("#status", "do not fit: the next request")
    assert int(at.say(chat_request(40)).headers["refold-edits"]) == 1


def test_an_undo_that_fails_must_be_wanted_twice_again(browser: Browser, at: ApiGateway) -> None:
    at.say(chat_request(40))
    entered(browser, at)
    browser.click("#rows button")
    browser.wait("#edits", "Summarize")
    failing(browser, "/revert")
    browser.click("#edits button")
    browser.click("#edits button")
    browser.wait("#status", "cannot be reached")
    assert browser.text("#edits button") == "Undo" and browser.accessible_name(
        "#edits button"
    ).startswith("Undo edit")


def test_a_session_that_cannot_be_read_does_not_stay_under_the_name_of_the_former(
    browser: Browser, two: tuple[str, str]
) -> None:
    browser.click("#rows tr:nth-child(1) button")
    browser.wait("#detail-title", two[0])
    failing(browser, "/history")
    browser.click("#rows tr:nth-child(2) button")
    browser.wait("#status", "cannot be reached")
    assert browser.run("return document.getElementById('detail').hidden")
    assert browser.run("return document.querySelectorAll('#rows [aria-current]').length") == 0
    browser.run("window.down = false")
    browser.click("#rows tr:nth-child(2) button")
    browser.wait("#detail-title", two[1])
    assert browser.text("#status") == "", "the error is over"


def test_all_sessions_can_be_reached(browser: Browser, at: ApiGateway) -> None:
    for n in range(105):
        at.say(chat_request(3), **{"x-session-id": f"s{n}"})
    entered(browser, at)
    ids = [one["id"] for one in at.get("sessions", limit=200).json()["sessions"]]
    rows = "return [...document.querySelectorAll('#rows tr')].map((one) => one.dataset.session)"
    assert browser.run(rows) == ids[:100]
    assert browser.text("#span") == "Sessions 1 to 100 of 105"
    browser.click("#rows button")
    browser.wait("#detail-title", ids[0][:8])
    browser.click("#older")
    browser.wait("#span", "101 to 105")
    assert browser.run(rows) == ids[100:] and browser.run(
        "return document.getElementById('older').disabled"
    )
    browser.wait("#detail-title", ids[0][:8])
    browser.click("#newer")
    browser.wait("#span", "1 to 100")
    assert browser.run(rows) == ids[:100] and browser.run(
        "return document.getElementById('newer').disabled"
    )


def test_nothing_is_wider_than_a_telephone(browser: Browser, at: ApiGateway) -> None:
    """A model's name of 158 characters made the page 1,334 pixels wide."""
    body = chat_request(40, "accounts/fireworks/models/" + "a_very_long_model_name" * 6)
    body["messages"][1]["content"] = (
        "Never touch " + "identifier_without_breaks_" * 8 + " in /" + "nested_" * 30 + "/a.py."
    )
    at.say(body)
    browser.resize(400)
    try:
        entered(browser, at)
        browser.click("#rows button")
        browser.wait("#about", "a_very_long_model_name")
        browser.click("#preview")
        browser.find("#offer .main")
        browser.click("#ledger summary")
        assert browser.run(
            "return [document.documentElement.scrollWidth <= innerWidth, innerWidth]"
        ) == [True, 400]
    finally:
        browser.resize(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_in_both_colour_schemes(
    at: ApiGateway, scheme: str, tmp_path: Path
) -> None:
    at.say(chat_request(40))
    with ChromeDriver(
        f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}"
    ) as browser:
        entered(browser, at)
        browser.click("#rows button")
        browser.find("#detail")
        browser.click("#preview")
        browser.find("#offer .main")
        assert browser.run(
            "return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", scheme
        )
        assert browser.run(CONTRAST) == []
        browser.save_screenshot(tmp_path / "narrow.png", width=500)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), (
            "it fits a narrow window"
        )
