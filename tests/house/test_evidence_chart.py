"""The chart of `python -m benchmarks.evidence chart`."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.evidence.chart import HEIGHT, LINE, TOP, WIDTH, Place, draw, spread, write_chart
from hypothesis import given
from hypothesis import strategies as st

CURVES = {
    "Refold": [Place(30.0, 88.0), Place(40.0, 95.0)],
    "keeps <half> & more": [Place(50.0, 70.0), Place(60.0, 72.0)],
}
SVG = "{http://www.w3.org/2000/svg}"


def test_the_chart_is_svg_with_each_policys_name_and_a_dot_per_measurement(tmp_path: Path):
    write_chart(tmp_path / "chart.svg", CURVES, "Tied & billed")
    root = ET.fromstring((tmp_path / "chart.svg").read_text("utf-8"))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"Refold", "keeps <half> & more", "Tied & billed"} <= set(texts)
    dots = list(root.iter(f"{SVG}circle"))
    assert len(dots) == 4
    assert all(0 < float(dot.attrib["cx"]) < WIDTH for dot in dots)
    assert all(0 < float(dot.attrib["cy"]) < HEIGHT for dot in dots)


def test_the_chart_has_cost_on_the_x_axis_and_ties_on_the_y_axis():
    dots = [
        (float(dot.attrib["cx"]), float(dot.attrib["cy"]))
        for dot in ET.fromstring(draw(CURVES, "")).iter(f"{SVG}circle")
    ]
    assert [x for x, _ in dots] == sorted(x for x, _ in dots)
    assert dots[1][1] == min(y for _, y in dots)


@given(st.lists(st.floats(TOP, HEIGHT - 60), max_size=20))
def test_labels_do_not_overlap(heights: list[float]):
    places = sorted(spread(heights))
    assert all(later - place >= LINE - 0.01 for place, later in pairwise(places))
