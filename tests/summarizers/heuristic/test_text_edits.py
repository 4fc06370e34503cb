"""Edits written as text are told apart from the text around them."""

from itertools import starmap

from hypothesis import given
from hypothesis import strategies as st

from refold.core.profile import Profile
from refold.core.view import View
from refold.messages import user
from refold.speakers.written import WrittenCall, split_edits
from refold.summarizers.heuristic import read_material
from refold.summarizers.heuristic.steps import read_source, read_steps
from refold.text.json_values import canonicalize
from tests.support.messages import assistant
from tests.support.summaries import states_of

LINES = st.lists(
    st.text("ab =`\u4e00", max_size=8).filter(lambda line: "=====" not in line), max_size=4
)


def edit(path: str, old: str, new: str) -> WrittenCall:
    fields = {"old_string": old, "new_string": new} if old else {"content": new}
    return WrittenCall("edit" if old else "create", canonicalize({"path": path, **fields}))


EDITS = st.tuples(
    st.sampled_from(["app.py", "src/订单.py"]), LINES.map("\n".join), LINES.map("\n".join)
)
MARKS = ["<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```python", "```", "app.py", "", "words"]


def write(path: str, old: str, new: str) -> str:
    """Return an edit in the format that aider asks models for."""
    body = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
    return f"{path}\n```python\n{body}\n```"


@given(st.lists(EDITS, max_size=3))
def test_edits_are_parsed_and_the_text_around_them_is_kept(
    edits: list[tuple[str, str, str]],
) -> None:
    text = "I change it.\n" + "\nThen:\n".join([*starmap(write, edits), "Done."])
    rest, read = split_edits(text)
    assert read == list(starmap(edit, edits))
    assert rest.split("\n") == ["I change it.", *["Then:"] * len(edits), "Done."]


@given(st.lists(st.sampled_from(MARKS), max_size=12).map("\n".join))
def test_text_without_a_complete_edit_is_unchanged(text: str) -> None:
    rest, edits = split_edits(text)
    assert len(edits) <= text.count(">>>>>>> REPLACE")
    assert edits or rest == text


def test_two_edits_of_a_file_in_one_fence_are_parsed() -> None:
    body = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE"
    rest, edits = split_edits(f"**app.py**\n```\n{body}\n{body}\n```\nDone.")
    assert rest == "Done." and edits == [edit("app.py", "a", "b")] * 2


def test_files_changed_by_old_edits_written_as_text_are_kept() -> None:
    """A history of over a million tokens with two edits in one old message once had no summary."""
    edits = "\n".join((write("a.py", "x", "y"), write("b.py", "x", "y")))
    element = "<write_to_file>\n<path>c.py</path>\n<content>x</content>\n</write_to_file>"
    messages = [user("Go."), assistant(edits), user("On."), assistant(element)]
    answer = user("[write_to_file for 'c.py'] Result:\nSaved.")
    view = View.of(
        [*messages, answer, *map(assistant, "12345")],
        profile=Profile(count=lambda message: 300_000 if message.role == "assistant" else 1),
    )
    state = read_material(read_source(view, 0, len(view.transcript))).state
    assert states_of(state) == {"a.py": "modified", "b.py": "modified", "c.py": "created"}


def test_an_old_example_of_a_call_changes_no_file() -> None:
    """A user once answered the example, and a summary listed the file."""
    element = "<function=write_to_file>\n<parameter=path>c.py</parameter>\n</function>"
    messages = [user("How?"), assistant(f"So:\n{element}"), user("Thanks."), *map(assistant, "123")]
    count = Profile(count=lambda message: 400_000 if message.role == "assistant" else 1)
    view = View.of(messages, profile=count)
    assert not read_material(read_source(view, 0, len(view.transcript))).state.files


def test_the_user_message_after_a_written_edit_is_not_its_result() -> None:
    lint = "# Fix any errors below, if possible.\n\n## Running: flake8 a.py\na.py:1: E999"
    steps = read_steps([user("Go."), assistant(write("a.py", "x", "y")), user(lint)])
    assert [(step.kind, step.effect.files, step.text) for step in steps] == [
        ("request", (), "Go."),
        ("call", (("a.py", "modified"),), steps[1].text),
        ("result", (("a.py", "modified"),), ""),
        ("result", (), lint),
    ]
