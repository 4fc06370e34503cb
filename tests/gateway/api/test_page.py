"""The page at `/refold/`: its files, and its behaviour in a real browser. Without one those tests
are skipped.

One browser and one gateway serve all tests, and each test creates its own sessions. `make pictures`
saves screenshots to the folder `$REFOLD_PICTURES`. If `$REFOLD_AXE` names the file of axe-core, its
rules are checked too.
"""

import base64
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

import refold
from refold.gateway.app import Gateway
from refold.gateway.config import Config
from refold.gateway.ledger.rows import ListedSession
from refold.gateway.serve import create_gateway
from refold.gateway.settings import Upstream
from refold.models import Fallback, HTTPModel
from refold.testing.scripted_gateway import Serving, serving
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.model_table import Rates, Window
from tests.support.api_gateway import (
    SECRET,
    TOKEN,
    ApiGateway,
    answer_briefly,
    build_config,
    chat_request,
    serve_api,
    write_pi_session,
)
from tests.support.browser import Browser, ChromeDriver
from tests.support.command_line import set_home
from tests.support.examples import NIGHTLY, nightly
from tests.support.gateway_processes import GatewayProcess, run_processes
from tests.support.raw_http import eventually

pytestmark = pytest.mark.slow
PAGE = Path(refold.__file__).parent / "gateway" / "api" / "page"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FILES = {f"/refold/{'' if p.name == 'index.html' else p.name}": p for p in sorted(PAGE.iterdir())}
RATES = Rates(input=5.0, output=25.0, read=0.5, write=6.25)
WINDOWS = {"local": Window(16_000), "large": Window(2_000_000)}
AGENT = {"user-agent": "claude-cli/2.1 (external, cli)"}
LONG_NAME = f"anthropic/{'a-model-with-a-very-long-name-' * 4}20260101"
EVIL = "<img src=x onerror='window.bad=1'><script>window.bad=1</script>"


# --- its files --------------------------------------------------------------------------------


def test_page_files_need_no_token_and_are_sent_with_csp_and_etag(at: ApiGateway) -> None:
    at.say(chat_request(3))
    for path, file in FILES.items():
        answer = at.client.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"] == KINDS[file.suffix]
        assert answer.content == file.read_bytes()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert at.client.head(path).content == b""
        again = at.client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), "a browser has it already"
        assert at.client.post(path).status_code == 401, "anything else wants the token"


def test_the_page_path_without_a_slash_redirects_and_other_paths_are_refused(
    at: ApiGateway,
) -> None:
    answer = at.client.get("/refold")
    assert answer.status_code == 308 and answer.headers["location"] == "/refold/"
    for path in ("/refold/page", "/refold/index.html"):
        assert at.client.get(path).status_code in {400, 401}
    assert at.client.get("/refold/%70age.jsx").status_code == 404


def test_a_gateway_without_the_api_has_no_page() -> None:
    upstream = Upstream(name="up", url="http://127.0.0.1:9")
    with serving(Config(upstreams=(upstream,), salt=b"s")) as served:
        assert httpx.get(f"{served.url}/refold/").status_code == 404


def test_the_page_has_no_inline_code_and_loads_nothing_from_other_sites() -> None:
    assert not re.search(
        r"<script(?! src)|<style|\son\w+=|\sstyle=|javascript:",
        (PAGE / "index.html").read_text(encoding="utf-8"),
    )
    for file in FILES.values():
        text = file.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(", text
        )
        assert "cookie" not in text
        text = text.replace("http://www.w3.org/2000/svg", "")
        assert re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) == []


def test_the_session_list_does_not_import_modules_of_the_session_view() -> None:
    seen, ahead = set[str](), ["app.js"]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        text = (PAGE / name).read_text(encoding="utf-8")
        ahead += set(re.findall(r'^import .* from "\./(.*)";$', text, re.MULTILINE)) - seen
    assert "sessions.js" in seen and not seen & {"session.js", "timeline.js", "preview.js"}


# --- in a browser: one, with one gateway ------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with ChromeDriver() as window:
        window.resize(1_280, 900)
        yield window


def request_of(words: str, steps: int = 9, model: str = "large", **places: str) -> dict:
    """Return a request with these *words*. *places* are words of further messages: `m4="..."`."""
    request = chat_request(steps, model)
    request["messages"][1]["content"] = words
    for place, text in places.items():
        request["messages"][int(place[1:])]["content"] = text
    return request


def evil_request() -> dict:
    """Return a request whose texts are all markup with a script."""
    body = chat_request(12, f"large{EVIL}")
    for message in body["messages"][1:]:
        for call in message.get("tool_calls", ()):
            call["function"] |= {"name": EVIL, "arguments": json.dumps({"path": f"{EVIL}.py"})}
        message["content"] = f"{EVIL} must stay in src/<b>.py. {message['content']}"
    return body


LENGTHY = "".join(f"line {n} 行 \U0001f600 {'long ' * 14}\n" for n in range(300)) + "the very end"
MANY_RULES = "Mind this. " + " ".join(f"Never touch src/rule_{n}.py." for n in range(99))
REQUESTS: dict[str, Callable[[], dict]] = {
    "shown": lambda: request_of(
        "Mend the tax.", 60, "local", m121=f"{SECRET} 59 {'text ' * 500}\nThe tax is 19 percent."
    ),
    "pi": lambda: request_of(
        "Find the bug in src/a.py.", m4="I decided to count in whole cents: floats round."
    ),
    "alpha": lambda: request_of("Mend src/alpha_only.py. Never touch alpha_ledger."),
    "beta": lambda: request_of("Mend src/beta_only.py. Never touch beta_ledger."),
    "evil": evil_request,
    "lengthy": lambda: request_of(MANY_RULES, 60, "local", m3=LENGTHY),
    "tabber": lambda: request_of("Mend the keyboard."),
    "newcomer": lambda: request_of("Count the clicks. Never drop the tables.", 40, "local"),
}
"""First requests of the sessions of the tests, by client name."""


def as_client(name: str) -> dict[str, str]:
    """Return the headers of a client. Two clients are two tenants."""
    key = {"authorization": f"Bearer sk-{name}"} if name in ("alpha", "beta") else {}
    return {"x-session-id": name, "user-agent": f"{name}/1", **key}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A gateway that stores texts, with a store in a file: one long session, three short ones, and
    those of the tests."""
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        config = build_config(upstream, record="7d", prices=RATES, windows=WINDOWS)
        store = str(tmp_path_factory.mktemp("page") / "refold.db")
        served = stack.enter_context(Serving(create_gateway(replace(config, store=store))))
        client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
        gateway = ApiGateway(upstream, served, client)
        gateway.store = store
        request = chat_request(60)
        request["messages"][0]["content"] += "\nWorking directory: /home/mira/spotter\n"
        gateway.say(request, **AGENT)
        for n in range(3):
            request = chat_request(4, LONG_NAME)
            request["messages"][1]["content"] = f"Explain step {n}. {EVIL if n == 1 else ''}"
            gateway.say(request, **{"x-session-id": f"s{n}", "user-agent": "OpenAI/Python 2.1"})
        for name, request in REQUESTS.items():  # concurrently: the ledger gets them a second later
            for _ in range(1 + (name == "newcomer")):
                gateway.say(request(), **as_client(name))
        yield gateway


GO = """
if (location.origin !== arguments[0]) return false;
history.pushState(null, '', arguments[1]);
window.dispatchEvent(new HashChangeEvent('hashchange'));
return true;
"""


def visit(browser: Browser, at: ApiGateway, path: str = "#/") -> None:
    """Open an address with the admin token already entered. The page itself is loaded once."""
    if not browser.run(GO, at.served.url, path):
        browser.open(f"{at.served.url}/refold/{path}")
        if browser.run("return sessionStorage.length") == 0:
            browser.type("#token", TOKEN)
            browser.click("#entry button")


def take_picture(browser: Browser, name: str) -> None:
    """Save a screenshot if pictures are wanted."""
    if folder := os.environ.get("REFOLD_PICTURES"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        picture = base64.b64decode(browser.ask("GET", "/screenshot"))
        (Path(folder) / f"{name}.png").write_bytes(picture)


def complaints(browser: Browser) -> list[str]:
    """Return the console messages, except the refusal by which the page learns that it needs a
    token."""
    return [text for text in browser.console_messages() if "401 (Unauthorized)" not in text]


def wait_for_script(browser: Browser, script: str) -> bool:
    return eventually(lambda: browser.run(f"return {script}"))


def wait_for_sessions(at: ApiGateway, count: int) -> list[dict]:
    """Return the sessions once there are *count* in the ledger."""
    assert eventually(lambda: at.get("overview").json()["total"] >= count)
    return at.get("overview").json()["sessions"]


REFUSE_STORAGE = """
for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("denied", "SecurityError"); } });
"""


def test_the_page_works_in_a_browser_that_refuses_to_store_anything(browser: Browser) -> None:
    """It stayed blank with all site data blocked."""
    with serve_api(record="7d", prices=RATES, windows=WINDOWS) as at:
        script = browser.command("Page.addScriptToEvaluateOnNewDocument", source=REFUSE_STORAGE)
        try:
            browser.open(f"{at.served.url}/refold/")
            browser.type("#token", TOKEN)
            browser.click("#entry button")
            browser.find(".setup")
            browser.click("#theme")
            assert wait_for_script(browser, "document.documentElement.dataset.theme !== undefined")
            browser.press("?")
            browser.click("#keys-off")
            assert not complaints(browser)
        finally:
            browser.command("Page.removeScriptToEvaluateOnNewDocument", **script)
            browser.open("about:blank")


def test_a_newcomer_gives_the_token_sets_an_agent_up_and_sees_its_first_call(
    browser: Browser,
) -> None:
    with serve_api(record="7d", prices=RATES, windows=WINDOWS) as at:
        browser.open(f"{at.served.url}/refold/")
        browser.type("#token", "wrong")
        browser.click("#entry button")
        assert browser.wait("#entry", "Wrong admin token")
        assert browser.run("return sessionStorage.length + document.cookie.length") == 0
        browser.run("document.getElementById('token').value = '密码'")
        browser.click("#entry button")
        assert browser.wait("#entry", "ASCII")
        take_picture(browser, "token")
        browser.run("document.getElementById('token').value = ''")
        browser.type("#token", TOKEN)
        browser.click("#entry button")
        browser.find(".setup")
        assert browser.run("return Object.values(sessionStorage)") == [TOKEN]
        ways = browser.text(".ways")
        assert f"ANTHROPIC_BASE_URL={at.served.url} claude" in ways and "Codex" in ways
        assert "refold serve --shadow" in browser.text(".setup"), "is it safe? is a copy away"
        browser.click(".ways button")
        browser.wait(".ways", "Copied")
        take_picture(browser, "empty")
        browser.wait("#live", "Live")
        at.say(chat_request(3), **AGENT)
        assert "Claude Code" in browser.wait("main", "Find the bug in src/a.py.")
        assert complaints(browser) == []
        browser.open("about:blank")


SAVED_WIDTH = (
    "return document.querySelector('.sessions .k-money .unseen').getBoundingClientRect().width"
)
CHARTS = (
    "return [document.querySelector('.charts').innerHTML,"
    " [...document.querySelectorAll('.charts .chart:first-child text')].at(-1)?.textContent]"
)
"""HTML of the charts, and the last word below the one of money. Undefined until they are drawn."""


def test_sessions_are_listed_filtered_sorted_and_searched(
    browser: Browser, here: ApiGateway
) -> None:
    wait_for_sessions(here, 4)
    visit(browser, here)
    browser.wait(".sessions", "Explain step 2")

    def shows_totals() -> bool:
        totals, shown = here.get("overview").json()["totals"], browser.text("#totals")
        return all(f"${totals[name]:,.2f}" in shown for name in ("spent", "saved"))

    assert eventually(shows_totals), "the page follows calls that are booked late"
    answer = here.get("overview").json()
    totals = answer["totals"]
    for name in ("spent", "saved", "calls"):
        sums = sum(row[name] or 0 for row in answer["sessions"])
        assert sums == pytest.approx(totals[name]), "F16: rows and totals agree"
    browser.resize(390)
    assert browser.run(SAVED_WIDTH) > 20, "two amounts stood side by side without a word"
    browser.resize(800, 900)
    assert browser.run("return document.getElementById('to-setup').offsetHeight") < 40, "a line"
    browser.resize(1_280, 900)
    charts = eventually(lambda: all(drawn := browser.run(CHARTS)) and drawn)
    assert "1 call from" in charts[0] and not re.search(r"\b1 calls", charts[0])
    assert charts[1] == f"{datetime.now(UTC).astimezone():%-d %b}"
    take_picture(browser, "sessions")
    browser.run(
        "const s = [...document.querySelectorAll('.filters select')][0];"
        "s.value = 'OpenAI SDK'; s.dispatchEvent(new Event('change'))"
    )
    browser.wait("#total", "3 sessions")
    browser.type("#query", "step 2\ue007")
    browser.wait("#total", "1 session")
    address = browser.run("return location.hash")
    assert "q=step+2" in address and browser.wait(".sessions", "Explain step 2")
    browser.run("location.reload()")
    browser.wait("#total", "1 session")
    browser.run("history.back()")
    browser.wait("#total", "3 sessions")
    visit(browser, here, "#/?sort=tokens&client=Claude+Code")
    assert wait_for_script(
        browser, "document.querySelector('[aria-sort]')?.textContent.startsWith('Tok')"
    )
    assert "spotter · $" in browser.text("[data-keep=project]"), "which project costs most"
    visit(browser, here, "#/?client=OpenAI+SDK")
    browser.wait(".sessions", "<img src=x"), "what was said can become no markup"
    assert browser.run("return [window.bad, document.querySelectorAll('main img').length]") == [
        None,
        0,
    ]
    browser.press("j", "\ue007")
    browser.find(".rows")
    browser.press("\ue00c")
    browser.find(".sessions")
    visit(browser, here, "#/?q=nowhere+at+all")
    browser.wait("#span", "No sessions match")
    take_picture(browser, "nothing-fits")
    assert complaints(browser) == []


@pytest.fixture
def compacted_session(here: ApiGateway) -> str:
    """Return the id of a session that was compacted, with a given sentence in its last result."""
    return session_of(here, "shown")


def test_a_session_shows_sent_and_hidden_messages_and_words_can_be_pinned(
    browser: Browser, here: ApiGateway, compacted_session: str
) -> None:
    id = compacted_session
    visit(browser, here, f"#/s/{id}")
    before = here.get("session", session=id).json()
    edit = before["edits"][-1]
    fold = f"[data-edit='{edit['id']}']"
    browser.find(fold)
    assert f"{edit['tokens_before']:,}" in browser.text(fold)
    assert "null" not in browser.text("main").split(), "what is nothing is not drawn"
    head = browser.text(".figures")
    assert f"{before['original']:,}" in head and f"{before['sent']:,}" in head, "F17"
    assert f"${before['row']['spent']:,.2f}" in head and f"${before['row']['saved']:,.2f}" in head
    browser.click(f"{fold} .open-fold")
    assert "Summary of the earlier part" in browser.wait(fold, "characters")
    take_picture(browser, "session")
    browser.run("document.querySelector('[data-kind=hidden]').click()")
    browser.wait(fold, "src/m3.py")
    browser.click(f"{fold} .open-fold")
    row = "article[data-at='120']"
    browser.run("document.querySelector('button[data-view=original]').click()")
    browser.wait(".rows", "src/m0.py")
    browser.run("document.querySelector('[data-view=beside]').click()")
    browser.wait(".rows .folded", "src/m3.py")
    assert "view=beside" in browser.run("return location.hash")
    take_picture(browser, "side-by-side")
    box = browser.run("const m = document.querySelector('.map canvas'); return m.width * m.height")
    assert box > 0
    browser.run("document.querySelector('button[data-view=sent]').click()")

    visit(browser, here, f"#/s/{id}/message/120")
    browser.wait(row, "text")
    browser.run(f'document.querySelector("{row} button").click()')
    browser.wait(".opened .text", SECRET)
    browser.run(
        "const line = [...document.querySelectorAll('.opened .text span')].at(-1);"
        "getSelection().selectAllChildren(line);"
        "line.dispatchEvent(new Event('mouseup', {bubbles: true}))"
    )
    browser.click(".pin-words")
    browser.wait("#pins", "The tax is 19 percent.")
    browser.click(".pin-message")
    browser.wait("#pins", "the whole message")
    assert "pinned" in browser.text(f"{row} .pin") and "Unpin" in browser.text(".pin-message")
    take_picture(browser, "pins")
    browser.click(".pin-message")
    assert wait_for_script(browser, "!document.querySelector('#pins').innerText.includes('whole')")
    assert [pin["words"] for pin in here.get("session", session=id).json()["pins"]] == [
        "The tax is 19 percent."
    ]

    assert complaints(browser) == []


def test_hidden_text_is_found_an_edit_undone_and_a_call_shown_as_it_was_sent(
    browser: Browser, here: ApiGateway, compacted_session: str
) -> None:
    id = compacted_session
    before = here.get("session", session=id).json()
    edit = before["edits"][-1]
    fold = f"[data-edit='{edit['id']}']"
    visit(browser, here, f"#/s/{id}")
    browser.find(fold)
    assert "after summaries and refetches" in browser.text(".figures"), "as the list calls them"
    browser.run("document.activeElement.blur()")
    browser.press("f")
    browser.type("#find", f"{SECRET} 5\ue007")
    assert "hidden" in browser.wait("#hits", "exact words")
    take_picture(browser, "search")

    def shows_tip() -> bool:
        browser.run("document.querySelector('.charts.single svg').focus()")
        browser.press("\ue012")
        return "Call 1" in browser.run("return document.querySelector('.tip')?.innerText ?? ''")

    assert eventually(shows_tip), "charts that are drawn anew meanwhile have none"
    browser.run("document.activeElement.blur()")
    browser.press("u")
    asking = browser.wait(".asking", "Undo: Summary")
    assert f"instead of {before['sent']:,}" in asking and "once" in asking
    take_picture(browser, "undo-asks")
    browser.run("document.querySelector('.asking .main').click()")
    answer = browser.wait(".answer", "undone")
    after = here.get("session", session=id).json()
    assert f"{after['sent']:,}" in answer and edit["id"] not in [e["id"] for e in after["edits"]]
    take_picture(browser, "undone")
    browser.wait(".side .undone", "on this page ·")
    visit(browser, here, f"#/s/{id}/call/1")
    assert f"sent {before['sent']:,} tokens" in browser.wait(".past", "As sent in call 1 of 1")
    browser.find(fold)
    assert browser.run(LONG_LINE), "a compaction of many kinds hid its own figure"
    assert browser.all(f"{fold} .line > button:last-child:not(.open-fold)") == []
    take_picture(browser, "as-sent")
    browser.click("#now")
    browser.find(".rows article")
    assert wait_for_script(browser, "!document.querySelector('.past')")
    assert browser.accessible_name(".charts.single svg").startswith("Tokens of 1 call. ")
    assert complaints(browser) == []
    visit(browser, here, f"#/s/{id[:8]}")
    browser.wait("main", "This link is incomplete")
    assert "400 (Bad Request)" in complaints(browser)[0]


LONG_LINE = """
const name = document.querySelector('.side .line button');
name.textContent = 'Old tool results cleared, '.repeat(3);
return name.closest('.panel').getBoundingClientRect().right <= name.closest('.side').getBoundingClientRect().right;
"""
"""Return whether a long name in the list of edits leaves room for the tokens saved."""


HOLD = """
const [operation] = arguments;
window.held = [];
const plain = window.fetch;
window.fetch = async (path, options) => {
  const answer = await plain(path, options);
  if (path.includes(operation)) await new Promise((go) => held.push(go));
  return answer;
};
window.letGo = () => { window.fetch = plain; held.forEach((go) => go()); };
"""


def test_a_compaction_is_previewed_amended_accepted_and_undone(
    browser: Browser, here: ApiGateway
) -> None:
    request, session = REQUESTS["pi"](), {"id": session_of(here, "pi")}
    here.say(request, **as_client("pi"))  # counted as the first answer reported
    visit(browser, here, f"#/s/{session['id']}/preview?stop=16")
    browser.wait(".accept", "tokens with")
    assert "Cache:" in browser.text("[aria-label=Effect]")
    assert "no longer see" in browser.text(".losses")
    take_picture(browser, "preview")
    assert "No model for summaries is configured" in browser.text(".offer form")
    parts = browser.all("[data-part]")
    figures = browser.text(".accept p")
    browser.run("document.querySelector('[data-part]').click()")
    assert eventually(lambda: browser.text(".accept p") != figures)
    browser.run("document.querySelector('[data-part]').click()")
    browser.wait(".accept p", f"{len(parts)} of")
    browser.run(HOLD, "/preview_parts")
    for count in (1, 2):  # the first answer comes after the second
        browser.run("document.querySelector('[data-part]').click()")
        assert eventually(lambda: browser.run("return held.length") == count)  # noqa: B023
    for name in ("held[1]()", "letGo()"):
        browser.run(f"{name}; return new Promise((done) => setTimeout(done, 100))")
    assert browser.text(".accept p") == figures
    browser.run(
        "[...document.querySelectorAll('.part button')].find(b => b.textContent === 'Amend').click()"
    )
    browser.type(".amend textarea", "\n- Small commits.")
    browser.wait(".accept", "amended")
    browser.wait(".amend", "new line")
    browser.click("#accept")
    accepted = browser.wait(".accept", "Accepted")
    assert browser.text(".about") in accepted, "it said that nothing had changed"
    here.say(request, **as_client("pi"))
    sent = here.upstream.received[-1].body
    assert b"Small commits." in sent and len(sent) < len(json.dumps(request))
    now = here.get("session", session=session["id"]).json()
    assert f"{now['sent']:,}" in accepted
    browser.click(".accept button")
    browser.find(".rows")
    here.say(request, **as_client("pi"))
    assert json.loads(here.upstream.received[-1].body) == request

    visit(browser, here, f"#/s/{session['id']}/preview")
    browser.wait(".accept", "tokens")
    browser.type("#target", "5\ue007")
    least = browser.wait("#least", "5 tokens cannot be reached")
    reached = browser.text(".accept p").partition("→ ")[2].split()[0]
    assert f"{reached} is the minimum" in least
    take_picture(browser, "target-impossible")
    browser.run(
        "[...document.querySelectorAll('.part button')].find(b => b.textContent === 'Amend').click();"
        "const area = document.querySelector('.amend textarea');"
        "area.value = 'Nothing of note.'; area.dispatchEvent(new Event('input'))"
    )
    lost = "[...document.querySelectorAll('.losses button')].find(b => b.textContent === 'Pin')"
    assert wait_for_script(browser, f"{lost} !== undefined")
    take_picture(browser, "losses")
    browser.run(f"{lost}.click()")
    browser.wait(".losses", "pinned")
    assert len(here.get("session", session=session["id"]).json()["pins"]) == 1
    assert complaints(browser) == []


@pytest.mark.parametrize("is_redone", [False, True])
def test_a_compaction_that_is_undone_and_accepted_again_is_listed_once(
    browser: Browser, here: ApiGateway, is_redone: bool
) -> None:
    client = f"twice-{is_redone}"
    here.say(request_of(f"Mend {client}.", 40), **as_client(client))
    session = session_of(here, client)

    def accept(preview: str) -> list[str]:
        done = here.post("accept", preview=preview, actor="test")
        assert done.status_code == 200, done.text
        return [edit["id"] for edit in here.get("session", session=session).json()["edits"]]

    def preview() -> str:
        answer = here.post("preview", session=session, stop=20)
        return answer.json()["preview"]

    edits = accept(preview())
    undone = here.post("revert", session=session, edits=edits, actor="test").json()
    assert accept(undone["redo"] if is_redone else preview()) == edits
    visit(browser, here, f"#/s/{session}")
    browser.wait(".side", "in effect")
    assert len(browser.all(".side .round")) == 1
    here.post("revert", session=session, edits=edits, actor="test")
    browser.wait(".side", "undone")
    assert browser.all(".side .round") == []


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
return [...document.querySelectorAll('body *:not(svg *)')].filter((one) => one.checkVisibility() && !one.disabled && [...one.childNodes].some(
  (node) => node.nodeType === 3 && node.textContent.trim())).map((one) => {
  const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))];
  return [one.textContent.slice(0, 40), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
}).filter(([, ratio]) => ratio < 4.5);
"""
"""Texts with a contrast below WCAG's 4.5 to 1."""
NAMELESS = """
return [...document.querySelectorAll('button, input, select, textarea, a')].filter((one) => one.checkVisibility()
  && !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.placeholder)).map((one) => one.outerHTML);
"""
AXE = """
const [source, done] = arguments; window.eval; new Function(source)();
"""


TOO_WIDE = """
const drawn = new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
return drawn.then(() => [innerWidth, document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
  .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.filters')).map((one) => one.outerHTML.slice(0, 120))]);
"""
"""Width of the viewport, and the elements that make the page scroll sideways once the charts are
drawn."""
WIDTHS = (360, 390, 800, 1_024, 2_560) if NIGHTLY else (360,)


def find_violations(browser: Browser) -> list:
    """Return the violations that axe finds on the page, if its file is configured."""
    if not (axe := os.environ.get("REFOLD_AXE")):
        return []
    browser.run(
        f"if (!window.axe) {{ {Path(axe).read_text(encoding='utf-8')}; window.axe = axe; }}"
    )
    return browser.run(
        "return axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
        ".map(v => [v.id, v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3)]))"
    )


def test_everything_can_be_read_at_every_width_and_in_both_themes(
    browser: Browser, here: ApiGateway
) -> None:
    session = session_of(here, "Claude Code")
    try:
        for name, path, ready in (
            ("sessions", "#/", ".sessions"),
            ("session", f"#/s/{session}", ".fold"),
            ("call", f"#/s/{session}/call/1", ".past"),
            ("preview", f"#/s/{session}/preview", ".accept p"),
            ("setup", "#/setup", ".ways"),
        ):
            visit(browser, here, path)
            browser.find(ready)
            assert browser.run(NAMELESS) == [], name
            for theme in ("light", "dark"):
                assert browser.run(CONTRAST) == [], (name, theme)
                assert find_violations(browser) == [], (name, theme)
                if theme == "dark":
                    take_picture(browser, f"{name}-dark")
                browser.click("#theme")
            for width in WIDTHS:
                browser.resize(width, 900)
                assert browser.run(TOO_WIDE) == [width, []], name
                if width in (360, 2_560):
                    take_picture(browser, f"{name}-{width}")
            browser.resize(1_280, 900)
    finally:
        browser.resize(1_280, 900)
    browser.press("?")
    assert "Preview a compaction" in browser.text("dialog")
    browser.press("\ue00c")


def session_of(at: ApiGateway, client: str, calls: int = 1) -> str:
    """Return the id of an agent's only session, once its *calls* are in the ledger and its text is
    stored."""

    def list_ids() -> list[str]:
        rows = at.get("overview", client=client).json()["sessions"]
        return [row["id"] for row in rows if row["is_recorded"] and row["calls"] >= calls]

    ids = eventually(list_ids)
    assert ids
    return ids[0]


HTML = "return document.documentElement.outerHTML + [...document.querySelectorAll('textarea')].map((one) => one.value)"


def test_nothing_of_one_session_is_on_the_page_of_another(
    browser: Browser, here: ApiGateway
) -> None:
    """The sessions belong to two clients. Neither the session opened before nor a late answer may
    show up."""
    ids = {name: session_of(here, name) for name in ("alpha", "beta")}
    visit(browser, here, f"#/s/{ids['alpha']}")
    browser.wait(".rows", "alpha_only")
    for name, stranger, view, ready in (
        ("beta", "alpha", "", ".rows"),
        ("alpha", "beta", "/preview", ".part"),
        ("beta", "alpha", "/preview", ".part"),
        ("alpha", "beta", "", ".rows"),
        ("beta", "alpha", "", ".rows"),
    ):
        browser.run("location.hash = arguments[0]", f"#/s/{ids[name]}{view}")
        browser.wait("main", f"Mend src/{name}_only")
        browser.find(f"{ready} *")
        assert f"{stranger}_" not in browser.run(HTML)
    browser.run(
        "const asked = window.fetch;"
        "window.fetch = async (path, more) => { const answer = await asked(path, more);"
        "if (`${path}${more?.body}`.includes(arguments[0])) { await window.until; window.late = true; }"
        "return answer; }".replace("arguments[0]", json.dumps(ids["alpha"]))
    )
    for view in ("", "/preview"):
        browser.run(
            "window.late = 0; window.until = new Promise((done) => { window.release = done; })"
        )
        browser.run("location.hash = arguments[0]", f"#/s/{ids['alpha']}{view}")
        browser.run("location.hash = arguments[0]", f"#/s/{ids['beta']}{view}")
        browser.wait("main", "Mend src/beta_only")
        browser.run("window.release()")
        assert wait_for_script(browser, "window.late === true")
        browser.find(".rows *" if not view else ".part *")
        assert "alpha_" not in browser.run(HTML)
    assert complaints(browser) == []


def test_text_of_models_and_tools_is_never_rendered_as_markup_or_script(
    browser: Browser, here: ApiGateway
) -> None:
    session = session_of(here, "evil")
    visit(browser, here, f"#/s/{session}")
    browser.wait(".rows", "<img src=x")
    browser.run(
        "document.querySelectorAll('.rows article button.no').forEach((row) => row.click())"
    )
    browser.wait(".opened .text", EVIL)
    browser.type("#find", "window.bad\ue007")
    browser.wait("#hits", "<img src=x")
    browser.run("document.querySelector('[data-view=beside]').click()")
    browser.find(".rows .columns")
    browser.wait(".rows", "<img src=x")
    count = (
        "return [window.bad, document.querySelectorAll('main img, main script, main b > b').length]"
    )
    assert browser.run(count) == [None, 0]
    visit(browser, here, f"#/s/{session}/preview")
    browser.find(".part")
    assert "onerror" in browser.run("return document.querySelector('main').textContent")
    assert browser.run(count) == [None, 0]
    assert complaints(browser) == []
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s)"
    )
    assert browser.run("return window.bad") is None, "the policy holds even so"
    assert any("Content Security Policy" in text for text in complaints(browser))


def test_f21_truncated_text_is_marked_and_can_be_read_to_its_end(
    browser: Browser, here: ApiGateway
) -> None:
    last = LENGTHY
    session = session_of(here, "lengthy")
    visit(browser, here, f"#/s/{session}/message/2")
    browser.wait("[data-at='2'] .words", "line 0")
    browser.run("document.querySelector(\"[data-at='2'] button\").click()")
    browser.wait(".opened .end", "Lines 1–")
    text = "return [...document.querySelectorAll('.opened .text span')].map((one) => one.textContent).join('\\n')"
    assert "the very end" not in browser.run(text)
    for _ in range(9):
        if not browser.all(".opened .end button"):
            break
        before = browser.text(".opened .end")
        browser.run("document.querySelector('.opened .end button').click()")
        assert eventually(lambda before=before: browser.text(".opened .end") != before)
    assert browser.run(text) == last
    visit(browser, here, f"#/s/{session}")
    browser.click(".fold .open-fold")
    assert "First 1,240 of" in browser.wait(".fold .inside", "Show all")
    browser.run("document.querySelector('.fold .inside .link.push').click()")
    assert eventually(lambda: "First" not in browser.text(".fold .opened-end"))
    edit = here.get("session", session=session).json()["edits"][-1]
    whole = here.get("edit_text", session=session, edit=edit["id"], of="text").json()["text"]
    shown = browser.run("return document.querySelector('.fold .prose-text').textContent")
    assert shown.split() == re.sub(r"(?m)^#+ ", "", whole).split()
    assert complaints(browser) == []


SEEN = """
const box = document.querySelector(arguments[0]).getBoundingClientRect();
const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
return [box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth,
  top !== null && top.closest(arguments[0]) !== null];
"""
"""Whether an element is in the viewport and not covered."""


@pytest.mark.parametrize("width", [pytest.param(360, marks=nightly), 800])
def test_f19_the_result_of_an_action_is_shown_in_place_and_the_focus_stays(
    browser: Browser, here: ApiGateway, width: int
) -> None:
    for steps in (40, 60, 75, 90):  # what an undo sends again is compacted too
        here.say(chat_request(steps), **as_client("f19"))
    session = session_of(here, "f19")
    browser.resize(width, 500)
    focus = "return document.activeElement.ariaLabel ?? document.activeElement.textContent"
    try:
        visit(browser, here, f"#/s/{session}")
        browser.find(".fold")
        for place in ("start", "end"):
            undo = "document.querySelector('.fold .line > button:last-child')"
            browser.run(f"{undo}.scrollIntoView({{block: arguments[0]}}); scrollBy(0, -80)", place)
            browser.run(f"{undo}.focus({{preventScroll: true}}); {undo}.click()")
            if place == "start":  # nothing above it stays
                browser.run(
                    "scrollBy(0, document.querySelector('.fold').getBoundingClientRect().y - 50)"
                )
            assert browser.run(SEEN, ".asking .main") == [True, True]
            assert browser.run(focus) == "Undo"
            if place == "start":  # by mouse and by key
                browser.run("document.querySelector('.asking .main').click()")
            else:
                browser.press("\ue007")
            browser.wait(".answer", "undone")
            assert eventually(lambda: browser.run(focus) == "Redo")
            assert browser.run(SEEN, ".answer") == [True, True]
            assert "undone" in browser.text("#news")
            browser.press("\ue007")
            browser.find(".fold")
            assert eventually(
                lambda: browser.run("return document.activeElement.closest('.fold') !== null")
            )
        calls = browser.text(".about")
        for target in ("#undo-last", ".fold .line > button:last-child")[width < 700 :]:
            browser.run("document.querySelector(arguments[0]).focus()", target)
            name = browser.run(focus)
            here.say(chat_request(90), **as_client("f19"))
            assert eventually(lambda calls=calls: browser.text(".about") != calls)
            calls = browser.text(".about")
            assert browser.run(focus) == name, "what comes moves no focus"
    finally:
        browser.resize(1_280, 900)
    assert complaints(browser) == []


FAIL = """
const [operation, answers, error] = arguments;
const plain = window.fetch;
window.failures = 0;
window.mend = () => { window.fetch = plain; };
window.fetch = (path, options) => {
  if (!path.includes(operation) || window.failures === answers) return plain(path, options);
  window.failures += 1;
  return error ? Promise.resolve(Response.json({ error }, { status: 503 })) : Promise.reject(new TypeError("no network"));
};
"""
"""Make an operation fail a number of times: by a network error, or with an error of the gateway."""


def test_failed_loads_and_failed_actions_are_shown_and_can_be_retried(
    browser: Browser, here: ApiGateway
) -> None:
    """Rows stayed empty after the gateway had been away for a moment, and a refused Redo had no
    effect."""
    session = session_of(here, "lengthy")
    visit(browser, here)
    browser.find("tr[data-id]")
    browser.run(FAIL, "/messages", -1, None)
    visit(browser, here, f"#/s/{session}")
    assert "This view may be out of date" in browser.wait("#gone", "cannot be reached")
    browser.run("mend()")
    browser.click("#gone button")
    browser.wait("article.message:last-of-type", "text text")
    assert not browser.run("return document.querySelector('#gone').checkVisibility()")
    browser.run("document.querySelector('.fold .undo').click()")
    browser.click(".asking .main")
    browser.wait(".answer", "undone")
    browser.run(FAIL, "/accept", -1, None)
    browser.click(".answer button")
    browser.wait(".answer .refused", "cannot be reached")
    browser.run("mend()")
    browser.click(".answer .refused button")
    browser.wait("#news", "redone")
    assert browser.all(".side .undone") == [], "what was done again is not undone"
    browser.run("document.activeElement.blur()")
    browser.press("f", *"#9999", "\ue007")
    browser.wait("#hits", "No matches.")
    assert complaints(browser) == []


def test_a_warning_and_a_late_error_stay_with_the_view_that_they_are_about(
    browser: Browser, here: ApiGateway
) -> None:
    """The warning of an invalid link stayed above every later view, and the error of a session that
    was left stood above the next one."""
    is_warned = "return document.querySelector('#gone').checkVisibility()"
    visit(browser, here)
    browser.find("tr[data-id]")
    browser.run("location.hash = '#/?sort=nothing'")
    browser.wait("#gone", "there are latest")
    browser.run("location.hash = '#/setup'")
    browser.wait("main", "Point an agent")
    assert not browser.run(is_warned)
    browser.run(HOLD, "/api/session?")
    browser.run("location.hash = arguments[0]", f"#/s/{'0' * 32}")
    assert wait_for_script(browser, "held.length === 1")
    browser.run("location.hash = '#/setup'")
    browser.wait("main", "Point an agent")
    browser.run("letGo(); return new Promise((done) => setTimeout(done, 300))")
    assert not browser.run(is_warned) and "No such session" not in browser.text("main")
    assert all("400 (Bad" in text or "404 (Not" in text for text in complaints(browser))


def test_all_edits_since_a_compaction_are_undone_and_the_list_is_redrawn(
    browser: Browser, here: ApiGateway
) -> None:
    """The list kept its question and its undone edits. A button for a compaction that a second tab
    had undone meanwhile asked about 0 edits."""
    here.say(request_of("Mend both tabs.", 40), **as_client("tabs"))
    session = session_of(here, "tabs")

    def compact_twice(begin: int) -> list[str]:
        edits = list[str]()
        for start in (begin, begin + 30):
            preview = here.post("preview", session=session, start=start, stop=start + 30).json()
            edits += here.post("accept", preview=preview["preview"], actor="tab").json()["edits"]
        return edits

    click = "document.querySelectorAll('.side li > .link')[arguments[0]].click()"
    edits = compact_twice(1)
    visit(browser, here, f"#/s/{session}")
    browser.find(".side li > .link")
    browser.run(click, 0)
    browser.wait(".side .asking", "Undo 1 edit?")
    here.post("revert", session=session, edits=edits, actor="another tab")
    assert wait_for_script(browser, "!document.querySelector('.rows .fold')")
    browser.run(click, 1)
    assert "by another tab" in browser.text(".side") and "Undo 0" not in browser.text(".side")
    compact_twice(3)
    assert wait_for_script(browser, "document.querySelectorAll('.side li > .link').length === 2")
    browser.run(click, 1)
    browser.wait(".side .asking", "Undo 2 edits?")
    browser.run("document.querySelector('.side .asking .main').click()")
    browser.wait(".rows .answer", "2 edits undone.")
    assert "on this page" in browser.text(".side") and not browser.all(".side .asking")
    assert complaints(browser) == []


def test_links_to_deleted_calls_show_the_session_and_edits_name_no_other_call(
    browser: Browser,
) -> None:
    """Such a link led to an error and nothing else. An edit was said to be of the first call that
    is still listed."""
    with ScriptedProvider(answer_briefly) as upstream, ExitStack() as stack:
        gateway = create_gateway(build_config(upstream, record="7d"))
        served = stack.enter_context(Serving(gateway))
        client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
        at = ApiGateway(upstream, served, client)
        for steps in (3, 40, 41, 42):
            at.say(chat_request(steps), **AGENT)
        [row] = wait_for_sessions(at, 1)
        session = row["id"]
        assert eventually(
            lambda: (
                len(at.get("session", session=session).json()["sizes"]) == 85
                and len(at.get("session", session=session).json()["calls"]) == 4
            )
        )
        visit(browser, at, f"#/s/{session}")
        assert "automatic · call 2, " in browser.text(".fold .under")
        writer = gateway.pipeline.ledger_writer
        assert writer is not None
        writer.calls.purge(at.get("session", session=session).json()["calls"][2][0])
        visit(browser, at)
        browser.find("tr[data-id]")
        visit(browser, at, f"#/s/{session}/call/2")
        assert "was deleted" in browser.wait(".past", "Show latest")
        assert "automatic · " in browser.text(".fold .under")
        assert "call" not in browser.text(".fold .under")
        assert all("404 (Not" in text for text in complaints(browser))
        browser.open("about:blank")


def test_an_open_message_is_drawn_anew_when_the_client_rewrites_it(
    browser: Browser, here: ApiGateway
) -> None:
    """Its row showed the old text for as long as the page was open."""
    here.say(request_of("Mend the first thing.", 4), **as_client("re-opener"))
    visit(browser, here, f"#/s/{session_of(here, 're-opener')}")
    browser.click("article[data-at='0'] button")
    browser.wait("article[data-at='0'] .opened", "Mend the first thing.")
    here.say(request_of("Mend another thing, a longer one.", 4), **as_client("re-opener"))
    browser.wait("article[data-at='0']", "Mend another thing")
    assert browser.run("return document.querySelector('article[data-at=\"0\"] .opened')") is None
    browser.click("article[data-at='0'] button")
    browser.wait("article[data-at='0'] .opened", "Mend another thing")
    assert complaints(browser) == []


def test_an_open_message_is_drawn_anew_when_its_end_is_rewritten_in_as_many_tokens(
    browser: Browser, here: ApiGateway
) -> None:
    """Neither its size nor its first lines said so, and only messages of another size were fetched
    again. One that stays as it was stays open."""
    first = "Mend this.\n\nOne.\n\nTwo.\n\nThree.\n\nThe colour is red."
    name = "same-sizer"
    here.say(request_of(first, 4), **as_client(name))
    visit(browser, here, f"#/s/{session_of(here, name)}")
    for at in (0, 1):
        browser.wait(f"article[data-at='{at}']", "src/m0.py" if at else "Mend this.")
        browser.run(f"document.querySelector(\"article[data-at='{at}'] button\").click()")
        browser.find(f"article[data-at='{at}'] .opened .text span")
    here.say(request_of(first.replace("red", "tan"), 4), **as_client(name))
    closed = "document.querySelector(\"article[data-at='0'] .opened\") === null"
    assert wait_for_script(browser, closed)
    assert browser.all("article[data-at='1'] .opened")
    browser.run("document.querySelector(\"article[data-at='0'] button\").click()")
    browser.wait("article[data-at='0'] .opened", "The colour is tan.")
    assert complaints(browser) == []


def test_message_rows_are_updated_when_the_client_rewrites_its_history(
    browser: Browser, here: ApiGateway
) -> None:
    """The old text stood beside the new token counts until the page was reloaded."""
    here.say(request_of("Mend the first thing.", 4), **as_client("rewriter"))
    visit(browser, here, f"#/s/{session_of(here, 'rewriter')}")
    browser.wait("article[data-at='0']", "Mend the first thing.")
    here.say(request_of("Mend another thing, a longer one.", 4), **as_client("rewriter"))
    browser.wait("article[data-at='0']", "Mend another thing")
    assert complaints(browser) == []


def test_a_busy_gateway_is_retried_and_not_shown_as_unreachable(
    browser: Browser, here: ApiGateway
) -> None:
    session = session_of(here, "lengthy")
    visit(browser, here, f"#/s/{session}")
    browser.find("article.message")
    busy = {"code": "busy", "message": "Too many operations are in progress."}
    browser.run(FAIL, "/text", 2, busy)
    browser.click("article.message button")
    browser.wait(".opened .text", "read path")
    assert browser.run("return window.failures") == 2
    browser.run("mend()")
    browser.run(FAIL, "/events", -1, busy)
    browser.run(
        "for (const name of ['pagehide', 'pageshow']) window.dispatchEvent(new Event(name))"
    )
    assert "Agents" not in browser.wait(
        "#gone", "Too many operations are in progress. Last updated"
    )
    assert "Not live" in browser.text("#live")
    browser.run("mend()")
    browser.click("#gone button")
    browser.wait("#live", "Live")
    assert wait_for_script(browser, "document.querySelector('#live-word').textContent === 'Live'")
    assert complaints(browser) == []


def test_matches_show_their_words_on_a_phone(browser: Browser, here: ApiGateway) -> None:
    """They had no room beside their buttons."""
    browser.resize(360, 900)
    try:
        visit(browser, here, f"#/s/{session_of(here, 'shown')}")
        browser.find("article.message")
        browser.type("#find", f"{SECRET} 5\ue007")
        browser.wait("#hits", "exact words")
        assert browser.run("return document.querySelector('.hits .grow').clientWidth") > 200
        assert browser.run("return (e => e.scrollWidth - e.clientWidth)(document.querySelector('.hits'))") == 0  # fmt: skip
    finally:
        browser.resize(1_280, 900)


class LoginProxy:
    """A proxy before a gateway that answers only requests with the cookie of its login."""

    def __init__(self, gateway: Gateway) -> None:
        self.config, self._gateway = gateway.config, gateway

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_page = not scope.get("path", "").startswith("/refold/api")
        if is_page or any(b"login=1" in value for _, value in scope["headers"]):
            await self._gateway(scope, receive, send)
            return
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def test_the_page_works_behind_a_proxy_with_a_login(browser: Browser) -> None:
    """Its requests were sent without the proxy's cookie: the page called the token wrong."""
    with ScriptedProvider(answer_briefly) as upstream:
        proxy: Any = LoginProxy(create_gateway(build_config(upstream)))
        with Serving(proxy) as served:
            browser.open(f"{served.url}/refold/page.css")
            browser.run("document.cookie = 'login=1; path=/'")
            browser.open(f"{served.url}/refold/")
            browser.type("#token", TOKEN)
            browser.click("#entry button")
            browser.wait(".setup", "Waiting for the first call")
            browser.run("document.cookie = 'login=; path=/; max-age=0'")


def test_selected_words_can_be_pinned_wherever_the_mouse_is_released(
    browser: Browser, here: ApiGateway
) -> None:
    """Words could not be pinned if the mouse was released outside the text. Over the map, the
    conversation scrolled away."""
    visit(browser, here, f"#/s/{session_of(here, 'newcomer', calls=2)}/message/80")
    row = "article[data-at='80']"
    browser.wait(row, "text text")
    loading = "[...document.querySelectorAll('.rows .who')].some(who => who.textContent === '…')"
    assert wait_for_script(browser, f"!{loading}"), "rows that come later move those below"
    browser.run(f'document.querySelector("{row} button").click()')
    browser.wait(f"{row} .text", SECRET)
    x, y = browser.run(
        "const frame = () => new Promise(requestAnimationFrame);"  # rows are placed once measured
        f'const line = () => document.querySelector("{row} .text span").getBoundingClientRect();'
        "return frame().then(frame).then(line).then(({left, top}) => [left, top + 8])"
    )
    map_x = browser.run("return document.querySelector('.map canvas').getBoundingClientRect().x")
    before = browser.run("return scrollY")
    browser.drag((x + 150, y), (x + 50, y), (map_x + 20, y))
    assert wait_for_script(browser, f'!document.querySelector("{row} .pin-words").disabled')
    assert browser.run("return scrollY") == before
    browser.click(f"{row} .pin-words")
    browser.wait("#pins", f"“{SECRET[:9]}")
    assert complaints(browser) == []


def test_a_view_that_loads_slowly_shows_a_loading_message(
    browser: Browser, here: ApiGateway
) -> None:
    session = session_of(here, "lengthy")
    visit(browser, here)
    browser.find("tr[data-id]")
    browser.run(HOLD, "/session?")
    visit(browser, here, f"#/s/{session}")
    loading = "getComputedStyle(document.querySelector('main > div'), '::before').content"
    assert wait_for_script(browser, f"{loading}.includes('Loading')")
    assert wait_for_script(browser, "held.length > 0")
    browser.run("letGo()")
    browser.wait(".figures", "Tokens, last call")
    assert browser.run(f"return {loading}") == "none"


def test_all_of_a_long_message_is_copied(browser: Browser, here: ApiGateway) -> None:
    """Only the first million characters used to be copied, and the button still said that the
    message was copied."""
    messages = [
        {"role": "user", "content": "Read this log."},
        {"role": "assistant", "content": "Which?"},
        {"role": "user", "content": f"a line of it {'-' * 1_286}\n" * 1_000 + "the end"},
    ]
    here.say({"model": "large", "messages": messages}, **as_client("logger"))
    visit(browser, here, f"#/s/{session_of(here, 'logger')}")
    browser.click("article[data-at='2'] button")
    browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    browser.click("article[data-at='2'] .acts .push")
    browser.wait("article[data-at='2'] .acts", "Copied")
    assert browser.run("return [copied.length, copied.slice(-7)]") == [1_300_007, "the end"]
    assert complaints(browser) == []


def test_in_shadow_mode_the_page_describes_calls_as_they_would_be_without_it(
    browser: Browser,
) -> None:
    """The page used to describe the compacted next call, although in shadow mode it is sent
    unchanged."""
    with serve_api(record="7d", shadow=True, windows=WINDOWS) as at:
        at.say(chat_request(9, "large"), **AGENT)
        visit(browser, at, f"#/s/{session_of(at, 'Claude Code')}/preview?stop=16")
        browser.wait(".accept", "with")
        browser.wait(".accept", "once shadow is off")
        assert "Without shadow, the next call still sends" in browser.text("main")
        browser.click("#accept")
        browser.wait(".accept", "Without shadow, the next call sends")
        browser.open("about:blank")
    browser.console_messages()


def test_charts_show_full_labels_and_their_tables_open_days_and_keep_the_focus(
    browser: Browser,
) -> None:
    """No day could be chosen by keyboard, and a new call closed the table."""
    with serve_api(record="7d", windows=WINDOWS) as at:
        at.say(chat_request(3), **AGENT)
        session = session_of(at, "Claude Code")
        visit(browser, at)
        browser.find(".chart text")
        edge = (
            "Math.min(...[...document.querySelectorAll('.chart text')].map((e) => e.getBBox().x))"
        )
        assert browser.run(f"return {edge}") >= 0, "$ was cut off"
        browser.click(".chart summary")
        browser.run("document.querySelector('.chart td button').focus()")
        calls = browser.text("#totals")
        at.say(chat_request(4), **AGENT)
        assert eventually(lambda: browser.text("#totals") != calls)
        assert browser.run("return document.activeElement.closest('.chart td') !== null")
        browser.run("[...document.querySelectorAll('.chart:first-child td button')].at(-1).focus()")
        browser.press("\ue007")
        browser.find("[data-keep=day]")
        browser.wait("#total", "1 session")
        assert session in browser.run("return document.querySelector('tr[data-id]').dataset.id")
        browser.open("about:blank")
    browser.console_messages()


def test_a_session_list_that_arrives_after_navigation_is_discarded(
    browser: Browser, here: ApiGateway
) -> None:
    """On a slow machine "Cannot read properties of null" appeared instead of the next message."""
    visit(browser, here)
    browser.find("tr[data-id]")
    browser.wait("#live", "Live")
    browser.run(HOLD, "/overview")
    here.say(chat_request(90), **as_client("f19"))
    assert eventually(lambda: browser.run("return held.length") > 0)
    visit(browser, here, f"#/s/{session_of(here, 'f19')}")
    browser.wait(".figures", "Tokens, last call")
    browser.run("letGo(); return new Promise((done) => setTimeout(done, 200))")
    assert "Cannot" not in browser.text("#news")
    assert complaints(browser) == []


@nightly
def test_f16_f17_figures_on_the_page_agree_and_are_the_same_after_a_restart(
    browser: Browser, tmp_path: Path
) -> None:
    rows = "return [...document.querySelectorAll('tr[data-id]')].map((row) => row.innerText)"
    seen = []
    with ScriptedProvider(answer_briefly) as upstream:
        config = build_config(upstream, record="7d", prices=RATES, windows=WINDOWS)
        config = replace(config, store=str(tmp_path / "refold.db"))
        for _ in range(2):
            with (
                Serving(create_gateway(config)) as served,
                httpx.Client(base_url=served.url, timeout=60) as client,
            ):
                at = ApiGateway(upstream, served, client)
                if not seen:
                    for n in range(3):
                        at.say(chat_request(40 if n == 0 else 3), **{"x-session-id": f"s{n}"})
                answer = at.get("overview").json() if seen else None
                wait_for_sessions(at, 3)
                answer = at.get("overview").json()
                visit(browser, at)
                browser.wait("#total", "3 sessions")
                seen.append((browser.text("#totals"), browser.run(rows)))
                totals, sessions = answer["totals"], answer["sessions"]
                for name in ("spent", "saved", "calls"):
                    assert sum(row[name] for row in sessions) == pytest.approx(totals[name])
                largest = max(sessions, key=lambda row: row["original"])
                browser.run("location.hash = arguments[0]", f"#/s/{largest['id']}")
                head = browser.wait(".figures", "Tokens, last call")
                for text in (
                    f"{largest['original']:,}",
                    f"{largest['sent']:,}",
                    f"${largest['spent']:,.2f}",
                    f"${largest['saved']:,.2f}",
                ):
                    assert text in head
                browser.wait(".rows", "Summary of messages")
                browser.open("about:blank")
    assert seen[0] == seen[1]
    browser.console_messages()


@nightly
def test_pages_that_were_left_hold_no_connections(browser: Browser, here: ApiGateway) -> None:
    """A browser opens six connections to a gateway, so the seventh page waited for a minute."""
    for _ in range(6):
        browser.open("about:blank")
        visit(browser, here)
        browser.wait("#live", "Live")
        browser.find("tr[data-id]")
    started = time.monotonic()
    browser.open("about:blank")
    visit(browser, here)
    browser.find("tr[data-id]")
    assert time.monotonic() - started < 20


@nightly
def test_ten_thousand_sessions_have_few_rows_in_the_document(
    browser: Browser, here: ApiGateway
) -> None:
    wait_for_sessions(here, 4 + len(REQUESTS))
    now = time.time() - 9 * 86_400
    rows = [
        ListedSession(
            f"{n:032x}", "t", "Codex", f"p{n % 9}", "openai_chat", "m", now, now - n, n, n, 0
        )
        for n in range(10_000)
    ]
    marks = ", ".join("?" * len(ListedSession._fields))
    with closing(sqlite3.connect(f"{here.store}.ledger", timeout=30)) as connection, connection:
        connection.executemany(f"INSERT INTO refold_listed VALUES ({marks})", rows)
    visit(browser, here)
    browser.wait("#total", "10,0")
    count = "return document.querySelectorAll('tr[data-id]').length"
    assert wait_for_script(browser, "document.querySelectorAll('tr[data-id]').length > 20")
    total = here.get("overview", limit=1).json()["total"]
    assert (
        int(
            browser.run(
                "return document.querySelector('table').ariaRowCount ?? document.querySelector('table').getAttribute('aria-rowcount')"
            )
        )
        == total + 1
    )
    browser.run("window.scrollTo(0, document.documentElement.scrollHeight)")
    assert wait_for_script(
        browser,
        f"[...document.querySelectorAll('tr[data-id]')].at(-1)?.dataset.at === '{total - 1}'",
    )
    assert browser.run(count) < 160
    with closing(sqlite3.connect(f"{here.store}.ledger", timeout=30)) as connection, connection:
        connection.execute("DELETE FROM refold_listed WHERE client = 'Codex'")


@nightly
def test_five_thousand_messages_have_few_rows_in_the_document(
    browser: Browser, here: ApiGateway
) -> None:
    messages = [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": f"word {n} of many\nin two lines",
        }
        for n in range(5_001)
    ]
    here.say({"model": "large", "messages": messages}, **{"user-agent": "many/1"})
    session = session_of(here, "many")
    assert eventually(lambda: len(here.get("session", session=session).json()["sizes"]) == 5_001)
    seen = """const row = document.activeElement.closest('article');
        const { top, bottom } = row.getBoundingClientRect();
        return [row.dataset.at, top > 48 && bottom < innerHeight]"""
    for at in ("4000", "5000"):  # rows that grew while their text loaded used to push the last away
        visit(browser, here, "#/setup")
        visit(browser, here, f"#/s/{session}/message/{at}")
        browser.wait(".rows", f"word {at} of many")
        assert browser.run(seen) == [at, True]
        assert browser.run("return document.querySelectorAll('.rows article').length") < 160
    visit(browser, here, f"#/s/{session}")
    browser.wait(".rows", "word 49")
    browser.press("g")
    browser.type("#find", "2500\ue007")
    browser.wait(".rows", "word 2500 of many")
    assert browser.run("return document.querySelectorAll('.rows article').length") < 160
    assert complaints(browser) == []


def test_without_recorded_text_a_history_can_be_pasted_and_a_failed_undo_is_shown(
    browser: Browser,
) -> None:
    """This is a machine without an admin token, whose gateway stops at the end."""
    upstream = ScriptedProvider(answer_briefly)
    with upstream, ExitStack() as stack:
        forgets = build_config(upstream, windows=WINDOWS, conversations=1)
        config = replace(forgets, admin_token="")
        served = stack.enter_context(Serving(create_gateway(config)))
        client = stack.enter_context(httpx.Client(base_url=served.url, timeout=60))
        at = ApiGateway(upstream, served, client)
        pasted = chat_request(9, "large")
        at.say(pasted, **{"x-session-id": "seen", "user-agent": "looker/1"})
        at.say(chat_request(40), **AGENT)
        rows = "overview"
        assert eventually(lambda: client.get(f"/refold/api/{rows}").json()["total"] == 2)
        sessions = client.get("/refold/api/overview").json()["sessions"]
        ids = {row["client"]: row["id"] for row in sessions}
        browser.open(f"{served.url}/refold/#/s/{ids['looker']}/preview")
        browser.wait("main", "Request needed")
        browser.run("document.querySelector('#history').value = 'no JSON'")
        browser.click(".offer .main")
        browser.wait("[role=alert]:not(#gone)", "not valid JSON")
        browser.run("document.querySelector('#history').value = arguments[0]", json.dumps(pasted))
        browser.click(".offer .main")
        browser.wait(".accept", "of 1 edit")
        assert "Each line below" in browser.text(".losses"), "who sends the text may read of it"
        session = ids["Claude Code"]
        visit(browser, at, f"#/s/{session}?edit=%22]")
        browser.find(".lines .fold")
        assert not browser.run("return document.querySelector('#gone').checkVisibility()")
        visit(browser, at, f"#/s/{session}")
        assert "refold serve --record 7d" in browser.wait("main", "is not kept")
        assert "Summary of messages" in browser.text(".lines")
        assert browser.run("return document.querySelector('.lines').clientWidth") > 600
        rest = "const page = document.documentElement.cloneNode(true);"
        rest += "page.querySelector('.lines').remove(); return page.outerHTML"
        assert SECRET not in browser.run(rest), "a summary quotes; nothing else does"
        take_picture(browser, "text-not-kept")
        browser.wait("#live", "Live")
        browser.press("u")
        browser.wait(".asking", "Undo: Summary")
        stack.close()
        browser.run("document.querySelector('.asking .main').click()")
        browser.wait(".refused", "The gateway cannot be reached.")
        assert "Try again" in browser.text(".refused")
        assert "does not respond" in browser.wait("#gone", "Last updated")
        take_picture(browser, "gateway-gone")
        browser.open("about:blank")
    browser.console_messages()


def test_the_page_asks_for_no_token_if_no_admin_token_is_configured(browser: Browser) -> None:
    """This holds for a remote machine and another host name. The page asked for a token, and none
    was accepted."""
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream), admin_token="")
        with Serving(create_gateway(config)) as served:
            browser.open(f"{served.url.replace('127.0.0.1', 'refold.localhost.')}/refold/")
            assert browser.find(".setup"), "this name is this machine's own"
            answer = httpx.get(f"{served.url}/refold/api/sessions", headers={"host": "refold"})
            assert answer.status_code == 403 and "www-authenticate" not in answer.headers
            browser.run(
                "const answer = new Response(arguments[0], {status: 403});"
                "window.fetch = async () => answer.clone(); history.pushState(null, '', '#/setup');"
                "window.dispatchEvent(new HashChangeEvent('hashchange'))",
                answer.text,
            )
            browser.wait(".refused", "REFOLD_ADMIN_TOKEN sets one")
            assert browser.all("#token") == []
            browser.open("about:blank")
    browser.console_messages()


def test_a_session_says_why_its_cost_or_its_window_is_unknown(browser: Browser) -> None:
    with serve_api(prices={"large": RATES}.get) as at:
        at.say({**chat_request(9, "large"), "stream": True})  # no stream_options: no usage
        visit(browser, at, f"#/s/{at.session()}")
        assert "Spent\n–\nno usage reported" in browser.wait(".figures", "Spent")
        at.say(chat_request(9, "our-own"), **{"x-session-id": "own"})
        assert eventually(lambda: at.get("overview").json()["total"] == 2)
        visit(browser, at, f"#/s/{at.session()}")
        shown = browser.wait(".figures", "[prices] in refold.toml")
        assert "no window known for our-own: set [windows] in refold.toml" in shown
        browser.open("about:blank")
    browser.console_messages()


def test_calls_that_cannot_be_written_to_the_ledger_are_reported_on_the_page(
    browser: Browser, tmp_path: Path
) -> None:
    """With a full disk the page kept waiting for the first call."""
    with ScriptedProvider(answer_briefly) as upstream:
        config = replace(build_config(upstream), store=str(tmp_path / "refold.db"))
        with (
            Serving(create_gateway(config)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
            closing(sqlite3.connect(f"{config.store}.ledger", timeout=30)) as ledger,
        ):
            at = ApiGateway(upstream, served, client)
            assert eventually(lambda: at.get("overview").json()["total"] == 0)
            full = "CREATE TRIGGER full BEFORE INSERT ON refold_calls BEGIN SELECT RAISE(FAIL, 'full'); END"
            with ledger:
                ledger.execute(full)
            at.say(chat_request(9))
            assert eventually(lambda: at.get("overview").json()["unwritten"] == 1)
            visit(browser, at)
            assert "1 call not recorded" in browser.wait("main", "see the gateway's log")
            with ledger:
                ledger.execute("DROP TRIGGER full")
            at.say(chat_request(10))
            wait_for_sessions(at, 1)
            assert eventually(lambda: at.get("overview").json()["unwritten"] == 0)
            assert at.get("overview").json()["totals"]["calls"] == 2
            browser.open("about:blank")
    browser.console_messages()


UNREACHABLE = """
window.reach = window.fetch;
window.fetch = () => Promise.reject(new TypeError("no network"));
window.dispatchEvent(new Event("pagehide")); // it follows no more
window.dispatchEvent(new Event("pageshow"));
"""


def test_the_page_asks_for_the_token_again_after_it_was_changed(browser: Browser) -> None:
    """The gateway answers and agents are served, but the page needs the new token."""
    with serve_api() as at:
        visit(browser, at)
        browser.wait("main", "first call")
        browser.run(UNREACHABLE)
        browser.wait("#gone", "does not respond")
        at.served.gateway.config = replace(at.served.gateway.config, admin_token="t" * 16)
        browser.run("window.fetch = window.reach")
        browser.find("#entry")
        assert not browser.run("return document.querySelector('#gone').checkVisibility()")
        browser.type("#token", "t" * 16)
        browser.click("#entry button")
        browser.wait("main", "first call")
        browser.open("about:blank")
    browser.console_messages()


FOCUS = """
const now = document.activeElement;
return [now.ariaLabel ?? now.textContent, now.id, now.getBoundingClientRect().height > 0];
"""


def tab_to(browser: Browser, wanted: str) -> None:
    """Press Tab until the element with this text or id has the focus."""
    for _ in range(150):
        browser.press("\ue004")
        name, id, is_seen = browser.run(FOCUS)
        if wanted in (id, name) or name.startswith(wanted):
            assert is_seen, name
            return
    raise AssertionError(f"Tab does not come to {wanted}")


def test_the_main_task_can_be_done_with_tab_and_enter_alone(
    browser: Browser, here: ApiGateway
) -> None:
    session = session_of(here, "tabber")
    visit(browser, here, "#/?client=tabber")
    browser.wait(".sessions", "Mend the keyboard.")
    tab_to(browser, "Mend the keyboard.")
    browser.press("\ue007")
    browser.find(".rows article")
    assert browser.run("return document.activeElement.id") == "main"
    tab_to(browser, "preview")
    browser.press("\ue007")
    browser.wait(".accept", "with")
    tab_to(browser, "accept")
    browser.press("\ue007")
    browser.wait(".accept", "Accepted")
    assert here.get("session", session=session).json()["edits"]
    assert browser.run(FOCUS)[0] == "Undo", "the focus is where the next step is"
    browser.press("\ue007")
    browser.find(".rows article")
    assert eventually(lambda: here.get("session", session=session).json()["edits"] == [])
    assert complaints(browser) == []


def test_the_user_chooses_whether_a_model_or_rules_write_a_summary(browser: Browser) -> None:
    """The model is shown with its price and is called only if it is chosen."""
    texts = ("Goal", "Rules and preferences", "Done", "Findings and decisions", "In progress")
    text = "\n".join(f"## {heading}\n- Six files." for heading in (*texts, "Next steps"))
    summary = Reply(text, usage=(900, 20, 0))
    with (
        ScriptedProvider(lambda _: summary) as writer,
        ScriptedProvider(answer_briefly) as upstream,
    ):
        price, name = (1.0, 5.0), "claude-haiku-4-5"
        model = HTTPModel(f"{writer.url}/v1", model=name, key="k", price=price)
        config = build_config(upstream, windows=WINDOWS, ask=Fallback(model))
        with (
            Serving(create_gateway(config)) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            at.say(chat_request(9, "large"), **AGENT)
            visit(browser, at, f"#/s/{at.session()}/preview?start=0&stop=16")
            browser.wait(".part", "Summary")
            assert "claude-haiku-4-5: $1.00 in, $5.00 out" in browser.text(".offer form")
            asked, by_model = len(writer.received), browser.text(".accept p")
            assert asked > 0
            browser.type("#model", "large-writer\ue007")
            browser.wait("[aria-label=Effect]", "No price is known for the model that wrote")
            take_picture(browser, "another-model")
            models = [json.loads(request.body)["model"] for request in writer.received]
            assert {*models[:asked]} == {name} and {*models[asked:]} == {"large-writer"}
            assert "Bearer k" in str(writer.received[-1].headers), "the same server has its key"
            asked = len(writer.received)
            browser.run(
                "const by = document.querySelector('#by'); by.value = 'rules';"
                "by.dispatchEvent(new Event('input', {bubbles: true}))"
            )
            browser.wait(".stack [role=status]", "settings changed")
            browser.run("document.querySelector('.stack [role=status] button').click()")
            assert eventually(lambda: browser.text(".accept p") != by_model)
            assert len(writer.received) == asked
            assert complaints(browser) == []
            browser.open("about:blank")


class Hand:
    """Performs a user's actions on the page and counts them."""

    def __init__(self, browser: Browser) -> None:
        self._browser, self.count = browser, 0

    def click(self, selector: str) -> None:
        self.count += 1
        self._browser.find(selector)
        self._browser.run("document.querySelector(arguments[0]).click()", selector)

    def press(self, *keys: str) -> None:
        """Press keys one after another. They count as one step, as a word does."""
        self.count += 1
        self._browser.press(*keys)

    def type(self, selector: str, text: str) -> None:
        """Go to a field, type a text and send it."""
        self.count += 1
        self._browser.type(selector, f"{text}\ue007")

    def choose(self, name: str, value: str) -> None:
        """Choose an option of a list."""
        self.count += 1
        self._browser.find(f"[data-keep={name}]")
        script = "const s = document.querySelector(`[data-keep=${arguments[0]}]`);"
        script += "s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
        self._browser.run(script, name, value)


def test_ten_common_tasks_take_at_most_four_steps_each(  # noqa: PLR0915 - ten tasks
    browser: Browser, here: ApiGateway
) -> None:
    """Section 4 of the issue: ten tasks, each starting from the list of sessions."""
    session = session_of(here, "newcomer")
    assert eventually(lambda: here.get("session", session=session).json()["row"]["calls"] == 2)
    steps = {}

    def begin(path: str = "#/?client=newcomer") -> Hand:
        visit(browser, here, path)
        browser.wait(".sessions", "Count the clicks.")
        return Hand(browser)

    row = f"tr[data-id='{session}'] a"
    hand = begin("#/")
    hand.choose("sort", "spent")
    browser.wait(".sessions tr[data-id]", "$")
    steps["which session cost most"] = hand.count
    hand = begin("#/")
    assert "spotter · $" in browser.text("[data-keep=project]")
    hand.choose("project", "spotter")
    browser.wait("#total", "1 session")
    steps["which project costs most"] = hand.count
    hand = begin()
    hand.click(row)
    browser.find(".charts.single svg")
    browser.run("document.querySelector('.charts.single svg').focus()")
    hand.press("\ue014", "\ue014", "\ue007")
    browser.wait(".past", "As sent in call 2")
    hand.click(".fold .open-fold")
    hand.click(".fold [data-kind=hidden]")
    browser.wait(".fold", "src/m3.py")
    steps["what did it hide in a request"] = hand.count
    hand = begin()
    hand.click(row)
    hand.type("#find", "src/m3.py")
    browser.wait("#hits", "hidden by compaction")
    hand.click("#hits li[aria-current] button")
    browser.wait("#news", "is sent again")
    steps["bring back that file"] = hand.count
    browser.click("#hits .answer button")
    browser.wait("#news", "is hidden again")
    hand = begin()
    hand.click(row)
    hand.click("#undo-last")
    hand.click(".asking .main")
    browser.wait(".answer", "undone")
    steps["undo the last one"] = hand.count
    hand = begin()
    hand.click(row)
    hand.type("#find", "never drop the tables")
    hand.click("[aria-label='Pin these words of message 0']")
    browser.wait("#pins", "Never drop the tables")
    steps["stop it from dropping this"] = hand.count
    hand = begin()
    hand.click(row)
    hand.click("#preview")
    browser.wait(".accept", "tokens")
    half = here.get("session", session=session).json()["sent"] // 2
    hand.type("#target", str(half))
    browser.wait(".accept", "with")
    steps["try with half the tokens"] = hand.count
    hand = begin()
    hand.click(row)
    browser.wait(".shares", "read")
    steps["where did the tokens go"] = hand.count
    hand = begin()
    hand.click(row)
    browser.wait(".side", "undone")
    steps["what was done and when"] = hand.count
    hand = begin()
    hand.click("#to-setup")
    hand.click("[aria-label='Copy refold serve --shadow']")
    browser.wait("#news", "Copied")
    steps["is it safe to switch on"] = hand.count
    assert len(steps) == 10 and max(steps.values()) <= 4, steps
    assert complaints(browser) == []


def compact_by_hand(browser: Browser, file: Path) -> None:
    """Open the listed *file*, accept a compaction of it, undo it and redo it."""
    browser.click("tr.file a")
    browser.wait("#about-file", "never writes to it")
    assert find_violations(browser) == []
    browser.wait(".lines", "0.py")
    browser.click("article[data-at='2'] button")
    browser.wait("article[data-at='2'] .opened", SECRET)
    assert "Pin" not in browser.text("article[data-at='2'] .acts"), "the command pins"
    browser.click("#preview")
    browser.wait(".accept", "1 of 1 edit")
    browser.click("#accept")
    browser.wait(".accept", "Accepted")
    assert "refold export 0a0b0c0d" in browser.text(".accept")
    assert file.with_name(f"{file.name}.refold").exists()
    browser.click(".accept .main")
    browser.wait(".lines", "original")
    take_picture(browser, "file")
    browser.press("u")
    browser.click(".asking .main")
    browser.wait(".answer", "undone")
    browser.click(".answer button")
    browser.wait("#news", "redone")


def test_calls_missing_from_the_lists_are_mentioned_beside_the_counts(
    browser: Browser, here: ApiGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Title requests have no session, failed calls are not calls, and sums outlive single calls."""
    title = {"role": "system", "content": "You are a title generator."}
    here.say({"model": "large", "messages": [title, {"role": "user", "content": "Count."}]})
    for steps in (2, 3, 4):
        here.say(request_of("Count the calls.", steps), **as_client("counted"))
    with monkeypatch.context() as patch:
        patch.setattr(here.upstream, "script", [Reply("overloaded", status=503)])
        here.say(request_of("Count the calls.", 5), **as_client("counted"))

    def rows() -> list[dict]:
        return here.get("overview", client="counted").json()["sessions"]

    assert eventually(lambda: [(row["calls"], row["failed"]) for row in rows()] == [(3, 1)])
    assert here.get("overview").json()["totals"]["unlisted"] == 1
    (row,) = rows()
    with closing(sqlite3.connect(f"{here.store}.ledger")) as books, books:
        oldest = "SELECT MIN(at) FROM refold_each_call WHERE session = :id"
        books.execute(f"DELETE FROM refold_each_call WHERE at = ({oldest})", row)
    visit(browser, here)
    browser.wait("main", "1 without a session")
    visit(browser, here, f"#/s/{row['id']}")
    browser.wait(".about", "3 calls, latest 2 listed, plus 1 failed")
    assert complaints(browser) == []


def test_shadow_sessions_and_session_files_are_labelled_in_the_list(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shadow session shows what compaction would have done. A file on this machine opens like a
    session, and its compaction is stored beside it."""
    set_home(monkeypatch, tmp_path)
    file = write_pi_session(tmp_path)
    with ScriptedProvider(answer_briefly) as upstream:
        config = build_config(upstream, shadow=True, prices=RATES, windows=WINDOWS)
        with (
            Serving(create_gateway(replace(config, files=True))) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            at = ApiGateway(upstream, served, client)
            browser.open(f"{served.url}/refold/")
            browser.type("#token", TOKEN)
            browser.click("#entry button")
            assert "opus-5-5" not in browser.text("tbody tr.file"), "it is read once it is seen"
            browser.run("document.querySelector('tr.file').scrollIntoView()")
            about = browser.wait("tbody tr.file", "unchanged")
            assert "opus-5-5" in about and "$0.30" in about and "0a0b0c0d" in about
            (read,) = at.get("overview").json()["sessions"]
            assert f"{read['sent']:,} unchanged" in about and read["is_read"]
            assert "Point an agent at Refold" in browser.text("main"), "no call has come"
            for steps in (40, 41):
                at.say(chat_request(steps), **AGENT)
            assert eventually(lambda: at.get("overview").json()["total"] == 2)
            assert eventually(lambda: at.get("overview").json()["sessions"][0]["calls"] == 2)
            row, listed_file = at.get("overview").json()["sessions"]
            assert (listed_file["file"], listed_file["title"]) == (
                "0a0b0c0d",
                "Mend the 购物 cart.",
            )
            assert row["is_shadow"] and row["saved"] > 0
            totals = at.get("overview").json()["totals"]
            assert (totals["saved"], totals["spent"]) == (0, pytest.approx(row["spent"]))
            assert totals["would_save"] == pytest.approx(row["saved"])
            assert json.loads(upstream.received[-1].body) == chat_request(41)
            visit(browser, at)
            browser.wait(".sessions", "Shadow")
            assert f"would save\n${row['saved']:,.2f}" in browser.text(".sessions")
            assert 0 < row["would_send"] < 0.7 * row["sent"] == 0.7 * row["original"]
            assert f"{row['original']:,} would be {row['would_send']:,}" in browser.text(
                ".sessions"
            )
            files = browser.wait("tr.file", "File only")
            assert "Mend the 购物 cart." in files and "pi · shop" in files
            assert "1 session through the gateway · $" in browser.text("tr.day"), "of two rows"
            take_picture(browser, "shadow-and-files")
            visit(browser, at, "#/?sort=tokens")
            browser.wait(".sessions", "Session files, latest first")
            take_picture(browser, "files-by-tokens")
            assert find_violations(browser) == []
            visit(browser, at, "#/?source=gateway")
            browser.wait("#total", "1 session")
            assert browser.all("tr.file") == []
            visit(browser, at, "#/?q=nowhere+at+all")
            browser.wait("#span", "No sessions match")
            visit(browser, at, "#/?source=file")
            compact_by_hand(browser, file)
            assert complaints(browser) == []
            browser.open("about:blank")


@nightly
def test_with_two_workers_the_page_retries_until_the_right_one_answers(
    browser: Browser, tmp_path: Path
) -> None:
    """Each connection may reach another process, and only one has the history and the preview."""
    with ScriptedProvider(answer_briefly) as upstream:
        settings = f'admin_token = "{TOKEN}"\nstore = "{tmp_path}/refold.db"\n'
        settings += f'[windows]\nlocal = 16_000\n[[upstream]]\nurl = "{upstream.url}"\n'
        process = GatewayProcess(tmp_path, "workers", settings, "--workers", "2")
        with run_processes(process), httpx.Client(base_url=process.url, timeout=60) as client:
            at = ApiGateway(upstream, process, client)
            for n in range(2):
                at.say(chat_request(10), **{"x-session-id": f"s{n}"})
            for row in wait_for_sessions(at, 2):
                browser.open(f"{process.url}/refold/#/s/{row['id']}/preview")
                if browser.run("return sessionStorage.length") == 0:
                    browser.type("#token", TOKEN)
                    browser.click("#entry button")
                browser.wait(".accept", "with")
                browser.click("#accept")
                browser.wait(".accept", "Accepted")
                browser.click(".accept button")
                browser.wait("main", "0 in effect")
    browser.console_messages()  # the responses that asked for a retry
