"""Line charts: valid XML, every line in it, figures at their places."""

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from cli.simulation.workload.chart import WIDTH, Line, Panel, svg

SVG = "{http://www.w3.org/2000/svg}"


def a_panel(*lines: Line, **changes: object) -> Panel:
    fields: dict[str, object] = {"title": "Allocated", "x_label": "arrived", "lines": lines}
    return Panel(**{**fields, **changes})  # type: ignore[arg-type]  # fields by name


def points_of(text: str) -> list[list[tuple[float, float]]]:
    root = ET.fromstring(text)  # our own text
    found = []
    for line in root.iter(f"{SVG}polyline"):
        pairs = (pair.split(",") for pair in line.attrib["points"].split())
        found.append([(float(x), float(y)) for x, y in pairs])
    return found


def texts_of(text: str) -> list[str]:
    root = ET.fromstring(text)  # our own text
    return [item.text or "" for item in root.iter(f"{SVG}text")]


def test_higher_values_are_higher_and_later_ones_further_right():
    (line,) = points_of(svg([a_panel(Line("FGD", [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)]))]))
    assert line == [(64.0, 232.0), (402.0, 133.0), (740.0, 34.0)]


def test_axes_show_percent_or_numbers():
    line = Line("FGD", [(0.0, 0.0), (1.0, 1.0)])
    assert "100 %" in texts_of(svg([a_panel(line)]))
    printed = texts_of(svg([a_panel(line, is_share=False, x_is_share=False)]))
    assert "1" in printed
    assert not any("%" in text for text in printed)


def test_each_strategy_has_one_colour_in_all_panels_and_one_entry_in_the_legend():
    lines = [Line(name, [(0.0, 0.0), (1.0, 1.0)]) for name in ("A&B", "C")]
    text = svg([a_panel(*lines), a_panel(lines[1])])
    assert texts_of(text).count("A&B") == 1
    root = ET.fromstring(text)  # our own text
    strokes = [line.attrib["stroke"] for line in root.iter(f"{SVG}polyline")]
    assert strokes[1] == strokes[2] != strokes[0]


values = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(st.tuples(values, values), max_size=20))
def test_every_point_is_inside_its_panel(points: list[tuple[float, float]]):
    for line in points_of(svg([a_panel(Line("A", sorted(points)))])):
        assert all(0 <= x <= WIDTH and 0 <= y <= 280 for x, y in line)
