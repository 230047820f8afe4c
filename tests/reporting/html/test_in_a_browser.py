"""The page in a real browser: it runs without an error, asks for nothing, fits a phone, and can be sorted and filtered."""

import pytest

from esnlm.reporting.html.page import write_page
from tests import browser

pytestmark = pytest.mark.skipif(not browser.installed(), reason="needs chromium and chromedriver on the PATH")


@pytest.fixture(scope="module")
def shown():
    with browser.browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(full_run, tmp_path_factory):
    file = tmp_path_factory.mktemp("browser") / "page.html"
    write_page([full_run], file)
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("media", "width"), [("screen", 400), ("screen", 1000), ("print", 700)])
def test_it_fits_and_asks_for_nothing(shown, page, width, scheme, media):
    shown.open(page, width, scheme=scheme, media=media)
    assert shown.complaints() == []
    assert [address for address in shown.requests() if not address.startswith("data:")] == [page.resolve().as_uri()]
    assert shown.run("return [typeof hacked, document.querySelectorAll('script, img, iframe').length]") == [
        "undefined",
        1,
    ]
    assert shown.run("return document.documentElement.scrollWidth") <= width
    dark = shown.run("return getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 26)"
    assert dark == (scheme == "dark" and media == "screen"), "paper is white"


def test_no_letter_is_too_small_for_a_phone(shown, page):
    shown.open(page, 400)
    script = """return Math.min(...Array.from(document.querySelectorAll("main *"), each =>
      each.childNodes.length && each.textContent.trim() ? parseFloat(getComputedStyle(each).fontSize) : 99))"""
    assert shown.run(script) >= 11


def test_a_table_can_be_sorted(shown, page):
    shown.open(page)
    accuracies = """return Array.from(document.querySelectorAll("#by-paradigm tbody tr"),
      row => parseFloat(row.cells[1].textContent))"""
    click = """document.querySelectorAll("#by-paradigm thead button")[1].click();
      return document.querySelectorAll("#by-paradigm thead th")[1].ariaSort"""
    assert shown.run(click) == "descending" and shown.run(accuracies) == sorted(shown.run(accuracies), reverse=True)
    assert shown.run(click) == "ascending" and shown.run(accuracies) == sorted(shown.run(accuracies))
    assert shown.complaints() == []


def test_a_table_can_be_filtered(shown, page):
    shown.open(page)
    script = """const input = document.querySelector("#by-paradigm input");
      input.value = "paradigm 11"; input.dispatchEvent(new Event("input"));
      const rows = Array.from(document.querySelectorAll("#by-paradigm tbody tr"));
      return [rows.filter(row => row.offsetHeight > 0).length, document.querySelector("#by-paradigm output").textContent]"""
    assert shown.run(script) == [1, "1 of 12"]
    assert shown.complaints() == []


def test_several_runs_unfold_on_paper(shown, make_run, tmp_path):
    write_page([make_run("a"), make_run("b", right=3)], tmp_path / "page.html")
    shown.open(tmp_path / "page.html")
    count = "return document.querySelectorAll('details[open]').length"
    assert shown.run(count) == 0
    assert shown.run(f"dispatchEvent(new Event('beforeprint')); {count}") > 2
    assert shown.run(f"dispatchEvent(new Event('afterprint')); {count}") == 0
    assert shown.complaints() == []
