"""The command line with a model, against a real HTTP server, and recall."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from refold.cli.options import with_summarizer
from refold.compactor.settings import STRATEGIES, parse_strategy
from refold.messages import user
from refold.scorers import Emphasis
from refold.session_files import demo_session
from refold.strategies import KeepImportant, RetrieveFacts, Summarize, SummarizeTo, WholeHistory
from refold.summarizers.forms.facts import Concept, FactType
from refold.summarizers.model import HEADINGS, ModelSummary
from refold.testing.scripted_provider import Reply, ScriptedProvider
from refold.tokens.count import count_message
from tests.support.children import default_signals
from tests.support.command_line import (
    REFOLD,
    claude_code_session,
    edit_ids,
    refold,
    run_on_terminal,
    set_home,
)

SUMMARY = "\n".join(f"## {heading}\n- As it was agreed." for heading in HEADINGS)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "session.json"
    path.write_text(json.dumps(demo_session(26), ensure_ascii=False), "utf-8")
    return path


def compact(file, *options, to="20k"):
    done = refold("compact", file, "--to", to, "--json", *options)
    assert done.code == 0, done.err
    return done.json["sessions"][0]


def at(server) -> list[str]:
    return ["--model", "small", "--model-url", f"{server.url}/v1"]


# --- a model ---------------------------------------------------------------------------------


def test_a_model_writes_the_summary_in_one_request(file, monkeypatch) -> None:
    monkeypatch.setenv("SUMMARY_KEY", "key-17")
    with ScriptedProvider([SUMMARY]) as server:
        done = compact(
            file,
            *at(server),
            "--model-key-env",
            "SUMMARY_KEY",
            "--instructions",
            "Keep ticket numbers.",
        )
        (asked,) = server.received
    assert asked.header("authorization") == "Bearer key-17"
    assert asked.json["model"] == "small"
    assert "Keep ticket numbers." in json.dumps(asked.json)
    assert (done["calls"], done["fits"]) == (1, True)
    assert "As it was agreed." in refold("view", file).out
    assert "key-17" not in (file.parent / "session.json.refold").read_text("utf-8")


@pytest.mark.parametrize("to", ["40k", "20k", "8k"])
def test_one_model_request_is_enough_at_any_target(to, file) -> None:
    with ScriptedProvider([SUMMARY] * 9) as server:
        done = compact(file, *at(server), to=to)
        assert len(server.received) == done["calls"] == 1
    assert done["fits"]


@pytest.mark.parametrize(
    ("prefix", "path", "variable"),
    [
        ("openai:", "/v1/chat/completions", "OPENAI_API_KEY"),
        ("anthropic:", "/v1/messages", "ANTHROPIC_API_KEY"),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_an_sdk_is_chosen_by_the_prefix_of_the_model_name(
    prefix, path, variable, named, file, monkeypatch
) -> None:
    pytest.importorskip(prefix[:-1])
    monkeypatch.setenv("MY_KEY" if named else variable, "key-18")
    base = "" if prefix == "anthropic:" else "/v1"
    with ScriptedProvider([SUMMARY]) as server:
        url = ["--model-url", f"{server.url}{base}"]
        done = compact(
            file,
            "--model",
            f"{prefix}tiny",
            *url,
            *(["--model-key-env", "MY_KEY"] if named else []),
        )
        (asked,) = server.received
    assert (asked.path, asked.json["model"]) == (path, "tiny")
    assert "key-18" in (asked.header("authorization") + asked.header("x-api-key"))
    assert done["calls"] == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # LiteLLM warns of itself
def test_litellm_is_chosen_by_its_prefix(file, monkeypatch) -> None:
    pytest.importorskip("litellm")
    monkeypatch.setenv("MY_KEY", "key-19")
    model = ("--model", "litellm:openai/tiny", "--model-key-env", "MY_KEY")
    with ScriptedProvider([SUMMARY]) as server:
        url = f"{server.url}/v1"
        done = refold("compact", file, "--to", "20k", *model, "--model-url", url, "--json")
        assert done.code == 0, done.err
        (asked,) = server.received
    assert asked.header("authorization") == "Bearer key-19"
    assert asked.json["model"] == "tiny"
    assert done.json["sessions"][0]["calls"] == 1


def test_a_failing_model_is_reported_and_the_summary_is_made_by_rules(file) -> None:
    with ScriptedProvider(lambda _: Reply("no such model", status=404)) as server:
        done = refold(
            "compact", file, "--to", "20k", *at(server), "--strategy", "Summarize(keep=0.2)"
        )
    assert done.code == 0
    assert "RuleSummary instead" in " ".join(done.out.split())
    (row,) = (
        row
        for row in refold("history", file, "--json").json["sessions"][0]["rows"]
        if row["outcome"] == "degraded"
    )
    assert "no such model" in row["reason"]
    assert "no such model" in refold("history", file).out


@pytest.mark.parametrize("to", ["20k", "8k"])
def test_b8_a_summary_by_rules_is_as_long_if_the_model_fails_as_without_a_model(to, file) -> None:
    """A session came down to 38,104 tokens of 60,000, with less than half of the summary."""
    by_rules = compact(file, "--dry-run", to=to)
    with ScriptedProvider(lambda _: Reply("no such model", status=404)) as server:
        failed = compact(file, "--dry-run", *at(server), to=to)
    with ScriptedProvider(["All is well."]) as server:
        formless = compact(file, "--dry-run", *at(server), to=to)
    assert failed["tokens"] == formless["tokens"]
    assert failed["tokens"]["after"] == pytest.approx(by_rules["tokens"]["after"], rel=0.01)
    (reason,) = (row["reason"] for row in formless["strategies"] if row["outcome"] == "degraded")
    assert reason.endswith(f"missing headings: {', '.join(HEADINGS)}")


def test_a_summary_needs_no_headings_if_none_are_required(file) -> None:
    any_text = "SummarizeTo(summarizer=ModelSummary(headings=()))"
    with ScriptedProvider(["All is as it was agreed."]) as server:
        done = compact(file, *at(server), "--strategy", any_text)
    assert done["calls"] == 1 and "as it was agreed" in refold("view", file).out


def test_a_transient_failure_is_retried(file) -> None:
    with ScriptedProvider([Reply("slow down", status=429, retry_after=0), SUMMARY]) as server:
        done = compact(file, *at(server))
    assert done["calls"] == 2
    assert "As it was agreed." in refold("view", file).out


def test_no_model_is_called_for_a_session_that_fits(file) -> None:
    with ScriptedProvider([]) as server:
        assert compact(file, *at(server), to="5M")["calls"] == 0
        assert server.received == []


def test_a_summary_request_fits_the_models_context_window(file) -> None:
    """What goes out, by the same estimate as everything else, with room for the answer."""
    with ScriptedProvider(lambda _: SUMMARY) as server:
        compact(file, *at(server), "--model-window", "30k")
        (asked, *_) = server.received
        refold("revert", file)
        compact(file, *at(server))
        whole = server.received[-1]
    assert (
        sum(count_message(user(message["content"])) for message in asked.json["messages"]) < 30_000
    )
    assert (
        sum(count_message(user(message["content"])) for message in whole.json["messages"]) > 30_000
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "small"],
        ["--model", "small", "--model-url", "ftp://x"],
        ["--model", "small", "--model-url", "http://x", "--model-key-env", "NO_SUCH_VARIABLE"],
        ["--model-url", "http://x"],
        ["--instructions", "Be brief."],
        ["--model", "small", "--model-url", "http://x", "--model-price", "1"],
        ["--model", "small", "--model-url", "http://x", "--model-price", "a,b"],
        ["--model", "small", "--model-url", "http://x", "--model-window", "wide"],
    ],
)
def test_invalid_model_options_are_reported_in_one_line(arguments, file, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_VARIABLE", raising=False)
    done = refold("compact", file, "--to", "20k", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("refold: ")
    assert done.err.count("\n") == 1
    assert edit_ids(file) == []


@pytest.mark.slow
def test_a_terminal_shows_that_a_model_is_asked(file) -> None:
    with ScriptedProvider(lambda _: Reply(SUMMARY, delay=0.3)) as server:
        command = ["compact", file, "--to", "20k", *at(server)]
        assert b"asking small for a summary" in run_on_terminal(command)
        assert "asking" not in refold(*command).err


@pytest.mark.slow
def test_an_interrupted_model_request_leaves_no_files(file) -> None:
    with ScriptedProvider(lambda _: Reply(SUMMARY, delay=3_600)) as server:
        with default_signals():
            process = subprocess.Popen(
                [*REFOLD, "compact", str(file), "--to", "20k", "--preview", *at(server)],
                stderr=subprocess.PIPE,
            )
        while not server.received:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, b"")
    assert [path.name for path in file.parent.iterdir()] == ["session.json"]


# --- strategies by name ----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(STRATEGIES) - {"KeepImportant", "RetrieveFacts"}))
def test_every_strategy_is_read_back_from_its_repr(name) -> None:
    strategy = parse_strategy(name)
    assert parse_strategy(repr(strategy)) == strategy


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        (
            "KeepImportant(strategy=Summarize(keep=4), scorer=Emphasis())",
            KeepImportant(Summarize(keep=4), Emphasis()),
        ),
        ("whole-history(max_tokens=300)", WholeHistory(max_tokens=300)),
        ("SummarizeTo(tokens=5_000)", SummarizeTo(5_000)),
        (repr(SummarizeTo(5_000, 0.25)), SummarizeTo(5_000, 0.25)),
        (
            'RetrieveFacts((Concept("deadline", "when", FactType.SINGLE),))',
            RetrieveFacts((Concept("deadline", "when", FactType.SINGLE),)),
        ),
        (
            "Summarize(summarizer=ModelSummary(instructions='short'))",
            Summarize(summarizer=ModelSummary(instructions="short")),
        ),
    ],
)
def test_nested_strategies_are_parsed(text, strategy) -> None:
    assert parse_strategy(text) == strategy


@pytest.mark.parametrize(
    "text",
    ["RetrieveFacts((Concept('a', 'b', FactType.MANY),))", "KeepImportant(strategy=1, scorer=2)"],
)
def test_invalid_settings_of_strategies_are_reported(text) -> None:
    with pytest.raises(ValueError, match=r"FactType.MANY|KeepImportant"):
        parse_strategy(text)


def test_a_model_replaces_the_default_summarizer_but_not_a_custom_one() -> None:
    summary = ModelSummary()
    assert with_summarizer(Summarize(keep=3), summary) == Summarize(keep=3, summarizer=summary)
    assert with_summarizer(WholeHistory(), summary) == WholeHistory(summarizer=summary)
    inside = with_summarizer(KeepImportant(Summarize(), Emphasis()), summary)
    assert inside == KeepImportant(Summarize(summarizer=summary), Emphasis())
    own = Summarize(summarizer=ModelSummary(instructions="short"))
    assert with_summarizer(own, summary) == own
    assert with_summarizer(parse_strategy("ClearToolResults"), summary) == parse_strategy(
        "ClearToolResults"
    )


# --- recall ----------------------------------------------------------------------------------


def test_recall_finds_what_the_edits_hide(file) -> None:
    refold("compact", file, "--to", "20k")
    done = refold("recall", file, "freezegun", "Berlin")
    assert done.code == 0
    hits = refold("recall", file, "freezegun", "Berlin", "--limit", "2", "--json").json["sessions"][
        0
    ]["hits"]
    assert len(hits) == 2
    assert set(hits[0]) == {"edit", "position", "role", "snippet", "score"}
    assert hits[0]["edit"] in done.out
    assert f"#{hits[0]['position']}" in done.out
    assert hits[0]["role"] in done.out
    entries = refold("unfold", file, hits[0]["edit"], "--json").json["sessions"][0]["entries"]
    assert "freezegun" in json.dumps(entries)


def test_f21_recall_reports_that_there_are_more_matches_than_it_shows(file) -> None:
    refold("compact", file, "--to", "20k")
    some, all_of_them = (
        refold("recall", file, "freezegun", "--limit", n, "--json").json["sessions"][0]
        for n in (1, 999)
    )
    assert (
        some["has_more"] and not all_of_them["has_more"] and some["hits"] == all_of_them["hits"][:1]
    )
    assert "… and more (--limit 10" in refold("recall", file, "freezegun", "--limit", "1").out
    assert "… and more" not in refold("recall", file, "freezegun", "--limit", "999").out


def test_recall_finds_chinese(tmp_path) -> None:
    file = tmp_path / "long.json"
    file.write_text(json.dumps(demo_session(60)))
    refold("compact", file, "--to", "20k")
    (hit, *_) = refold("recall", file, "翻译组", "--json").json["sessions"][0]["hits"]
    assert "翻译组" in hit["snippet"]


def test_recall_exits_1_and_reports_that_nothing_was_found(file) -> None:
    assert refold("recall", file, "freezegun").code == 1
    assert "nothing is hidden" in refold("recall", file, "freezegun").out
    refold("compact", file, "--to", "20k")
    done = refold("recall", file, "zygomorphic", "--json")
    assert (done.code, done.json["sessions"][0]["hits"]) == (1, [])
    assert "no matches in hidden text" in refold("recall", file, "zygomorphic").out
    assert refold("recall", file).code == 2


def test_recall_searches_a_directory(tmp_path) -> None:
    for turns in (6, 20, 30):
        (tmp_path / f"{turns}.json").write_text(json.dumps(demo_session(turns)))
    refold("compact", tmp_path, "--to", "4k")
    done = refold("recall", tmp_path, "freezegun")
    assert done.code == 0
    assert "20.json" in done.out and "30.json" in done.out and "/6.json" not in done.out
    sessions = refold("recall", tmp_path, "freezegun", "--json").json["sessions"]
    hits = {Path(session["path"]).name: session["hits"] for session in sessions}
    assert hits["20.json"] and hits["30.json"] and not hits["6.json"]


# --- paths -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["20", "40", "500"])
def test_paths_are_never_cropped_or_broken(columns, tmp_path, monkeypatch) -> None:
    deep = tmp_path / ("a-long-name-" * 12)
    project = deep / ".claude" / "projects" / "-home-mika-src"
    project.mkdir(parents=True)
    for name in ("s1", "s2"):
        (project / f"{name}.jsonl").write_text(claude_code_session())
    set_home(monkeypatch, deep)
    monkeypatch.setenv("COLUMNS", columns)
    out = refold("stats", project).out
    for name in ("s1", "s2"):
        (line,) = (line for line in out.splitlines() if f"{name}.jsonl" in line)
        assert str(project / f"{name}.jsonl") in line
