"""Paths and line numbers in what calls and results say."""

import pytest

from refold.text.plain import is_outside, path_covers, tab_line_numbers


@pytest.mark.parametrize(
    ("path", "is_expected"),
    [
        (r"C:\Users\me\AppData\Local\Temp\plan.md", True),
        ("c:/Users/me/AppData/Local/Temp/plan.md", True),
        (r"C:\Windows\Temp\a.py", True),
        (r"D:\temp\a.py", True),
        (r"C:\Users\me\pool\temp\a.py", False),
        (r"C:\template\a.py", False),
        ("temp/a.py", False),
    ],
)
def test_temporary_folders_of_windows_are_outside_of_any_project(path, is_expected):
    assert is_outside(path) == is_expected


@pytest.mark.parametrize("end", ["", "\n"])
def test_line_numbers_with_a_dot_get_a_tab_also_before_a_last_line_break(end):
    assert tab_line_numbers(f"7. a\n8. \n9. b{end}") == f"7\ta\n8\t\n9\tb{end}"
    assert tab_line_numbers(f"1. a\n2. b{end}") == f"1. a\n2. b{end}"


@pytest.mark.parametrize(
    ("name", "path"),
    [("/w/a.py", "/w"), ("/w/a.py", "/"), ("/w/x/a.py", "w/x"), ("/c/x/a.py", "C:\\x")],
)
def test_a_folder_of_one_letter_is_a_drive_only_beside_one(name: str, path: str) -> None:
    assert path_covers(name, path)
