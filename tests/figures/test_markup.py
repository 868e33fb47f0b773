"""HTML that is made from hostile text, read by the parser of Python."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_pages import read_page
from outspan.figures.markup import Cell, Markup, element, join, raw_element, table

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\n</script><!--"


@given(text=st.text() | st.just(HOSTILE), attribute=st.text() | st.just(HOSTILE))
def test_text_stays_text(text, attribute):
    page = read_page(element("p", text, title=attribute))
    assert [tag for tag, _ in page.elements] == ["p"]
    for before, after in ((text, "".join(page.texts)), (attribute, page.of("p")[0]["title"])):
        assert after == "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in before)


def test_elements_are_nested_and_attributes_are_named_as_in_html():
    made = element("a", "x", [element("b", 1), None], class_="c", data_key=2, hidden=True, title=None)
    assert made == '<a class="c" data-key="2" hidden>x<b>1</b></a>'
    assert element("br") == "<br>"
    assert join(["<", Markup("<br>")]) == "&lt;<br>"


def test_a_raw_element_cannot_be_ended_by_its_content():
    with pytest.raises(AssertionError, match="ends the element"):
        raw_element("style", "</STYLE>")


def test_a_table_has_headings_keys_and_a_frame_that_can_be_scrolled():
    page = read_page(table(["class", "%"], [[HOSTILE, Cell("5.0", 0.05, 0.5)], ["b", 2]], caption="The classes"))
    assert page.of("script") == []
    assert [one["scope"] for one in page.of("th")] == ["col", "col", "row", "row"]
    assert page.of("td")[0] == {"data-key": "0.05", "style": "--f:0.500", "class": "bar"}
    assert page.of("div")[0]["tabindex"] == "0"
    assert html.escape("The classes") in page.text
