"""Reports in a real browser: Debian's chromium, driven by playwright. Where either is missing, the reason is said."""

import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import initio
from initio.records import Architecture, Evaluation, settings
from initio.report.page import DataTable, LineChart, Page, Part, Section, SurfaceChart
from initio.runs.pages.report import report
from initio.runs.pages.subjects import read_folder, read_store
from initio.scores.store import Store

ROOT = Path(__file__).parent.parent
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
MOST_BYTES, MOST_SECONDS = 6_000_000, 2.0
HOSTILE = "<script>document.title='taken'</script>"
POINTS, READY = ".points canvas:nth-child(2)", "html[data-ready]"

playwright = pytest.importorskip("playwright.sync_api", reason="no browser test: playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser test: there is no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Reader:
    """A page in a window, and everything that it complained about or asked for."""

    def __init__(self, browser, path: Path, **window) -> None:
        self.page = browser.new_context(**window).new_page()
        self.inspector = self.page.context.new_cdp_session(self.page)
        self.inspector.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(READY)

    def seconds(self) -> float:
        """The work of the page's thread until it was ready; a clock would count what else the machine does."""
        metrics = self.inspector.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def dots(self) -> dict[str, float]:
        """Where the chart of points is, scrolled into view."""
        canvas = self.page.locator(POINTS).first
        canvas.scroll_into_view_if_needed()
        return canvas.bounding_box()

    def ink(self, selector: str) -> int:
        """Pixels of a canvas that something was drawn on."""
        pixels = "c.getContext('2d').getImageData(0, 0, c.width, c.height).data"
        return self.page.locator(selector).first.evaluate(f"c => {pixels}.filter((v, i) => i % 4 == 3 && v).length")

    def check(self) -> None:
        assert self.complaints == []
        assert [url for url in self.asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def scores(tmp_path_factory) -> Path:
    """The report of the shipped scores of nb201, 15,625 points."""
    path = tmp_path_factory.mktemp("report") / "nb201.html"
    report([read_store("nb201")]).write(path)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The report of a small run."""
    home = tmp_path_factory.mktemp("report")
    initio.search("darts", "nasi-fit", "noise", steps=12, folder=home / "a", channels=2, cells=1, pixels=8)
    report([read_folder(home / "a")]).write(home / "run.html")
    return home / "run.html"


def test_the_scores_of_nb201_are_small_and_quick(browser, scores):
    assert scores.stat().st_size < MOST_BYTES
    reader = Reader(browser, scores)
    assert 0 < reader.seconds() < MOST_SECONDS
    assert reader.page.locator(".points .count").inner_text().endswith(" of 15,625")
    assert reader.ink(".points canvas") > 10_000
    reader.check()


def test_hovering_shows_a_cell_and_a_click_keeps_it(browser, scores):
    reader = Reader(browser, scores)
    reader.page.get_by_label("x axis").select_option("flops")
    reader.page.get_by_label("y axis").select_option("params")
    box = reader.dots()
    x, y = box["x"] + 58 + 0.5 * (box["width"] - 72), box["y"] + 12 + 0.5 * (box["height"] - 56)  # params follow flops
    reader.page.mouse.move(x, y)
    card = reader.page.locator(".plot .card").first
    assert card.is_visible()
    assert card.locator("svg.arcs").count() == 1
    name = card.locator(".name").inner_text()
    assert initio.parse(name).space == "nb201"
    reader.page.mouse.click(x, y)
    kept = reader.page.locator(".kept article")
    assert kept.locator(".name").inner_text() == name
    reader.page.get_by_label("x axis").select_option("trace")
    assert "trace" in kept.locator(".head").inner_text()
    kept.get_by_role("button").click()
    assert kept.count() == 0
    reader.check()


def test_the_keyboard_does_what_the_pointer_does(browser, run):
    reader = Reader(browser, run)
    reader.page.locator(POINTS).first.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter", "Escape"):
        reader.page.keyboard.press(key)
    head = reader.page.locator(".kept article .head").inner_text()
    assert "step 2" in " ".join(head.split())
    assert not reader.page.locator(".plot .card").first.is_visible()


def test_a_drag_zooms_and_a_double_click_shows_all(browser, scores):
    reader = Reader(browser, scores)
    count, box = reader.page.locator(".points .count"), reader.dots()
    everything = count.inner_text()
    reader.page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
    reader.page.mouse.down()
    reader.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    reader.page.mouse.up()
    assert int(count.inner_text().split()[0].replace(",", "")) < int(everything.split()[0].replace(",", ""))
    assert reader.page.locator(".kept article").count() == 0
    reader.page.mouse.dblclick(box["x"] + 5, box["y"] + 5)
    assert count.inner_text() == everything


def test_the_downloaded_table_has_every_value(browser, run):
    reader = Reader(browser, run)
    with reader.page.expect_download() as told:
        reader.page.get_by_role("button", name="Download measured-steps.csv").click()
    lines = told.value.path().read_text().splitlines()
    result = initio.load(run.parent / "a")
    assert lines[0] == "architecture,step,trace,chosen_trace"
    assert len(lines) == 1 + len(result.steps)
    for line, step in zip(lines[1:], result.steps, strict=True):
        assert line.endswith(f",{step.number + 1},{step.trace!r},{step.chosen_trace!r}")
    reader.check()


def test_fields_with_commas_quotes_and_lines_come_through(browser, tmp_path):
    texts = ["a,b", 'say "x"', "two\nlines", "", "=1+1"]
    table = DataTable("t.csv", {"text": texts, "n": [1.5, None, 2, 0.1, 1e-30]})
    Page("t", "s", [Part("", [Section("s", [table])])]).write(tmp_path / "t.html")
    reader = Reader(browser, tmp_path / "t.html")
    with reader.page.expect_download() as told:
        reader.page.get_by_role("button").click()
    rows = list(csv.reader(io.StringIO(told.value.path().read_text())))
    assert [row[0] for row in rows[1:]] == texts
    assert [float(row[1] or "nan") for row in rows[1:]] == pytest.approx(
        [1.5, float("nan"), 2, 0.1, 1e-30], nan_ok=True
    )


@pytest.mark.parametrize("window", [{}, {"color_scheme": "dark"}, PHONE], ids=["desk", "dark", "phone"])
def test_a_run_is_readable_everywhere(browser, run, window):
    reader = Reader(browser, run, **window)
    widths = reader.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]  # nothing sticks out
    assert reader.page.locator("figure.cell img").evaluate("i => i.complete && i.naturalWidth > 100")
    assert reader.ink(".lines canvas") > 100
    assert reader.ink(".points canvas") > 100
    reader.check()


def test_a_tap_keeps_on_a_phone(browser, run):
    reader = Reader(browser, run, **PHONE)
    box = reader.dots()
    for share in (0.2, 0.4, 0.6, 0.8):
        reader.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + share * box["height"])
    assert reader.page.locator(".kept article svg.arcs").count() >= 1
    reader.check()


def test_lines_are_read_at_the_pointer(browser, tmp_path):
    chart = LineChart(
        "Loss", "epoch", "loss", {"training": ([1, 2, 3], [3.0, 2.0, 1.0]), "held out": ([1, 3], [4.0, None])}
    )
    Page("t", "s", [Part("", [Section("s", [chart])])]).write(tmp_path / "t.html")
    reader = Reader(browser, tmp_path / "t.html")
    box = reader.page.locator(".lines canvas:nth-child(2)").bounding_box()
    reader.page.mouse.move(box["x"] + 62, box["y"] + 50)
    texts = reader.page.locator(".plot .card p").all_inner_texts()
    assert [" ".join(text.split()) for text in texts] == ["epoch 1", "training 3", "held out 4"]
    reader.page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 50)
    texts = reader.page.locator(".plot .card p").all_inner_texts()
    assert [" ".join(text.split()) for text in texts] == ["epoch 3", "training 1"]  # no value is not shown as one


@pytest.mark.parametrize("window", [{}, {"color_scheme": "dark"}, PHONE], ids=["desk", "dark", "phone"])
def test_a_surface_is_read_at_the_pointer(browser, tmp_path, window):
    values = [[9.0, 4.0, 9.0], [2.0, 0.5, 2.0], [9.0, float("nan"), 1e6]]
    chart = SurfaceChart("Loss", HOSTILE, [-1.0, 0.0, 1.0], values)
    Page("t", "s", [Part("", [Section("s", [chart])])]).write(tmp_path / "t.html")
    reader = Reader(browser, tmp_path / "t.html", **window)
    box = reader.page.locator(".surface canvas:nth-child(2)").bounding_box()
    width, height = box["width"] - 72, box["height"] - 56

    def read(a: int, b: int) -> list[str]:
        reader.page.mouse.move(box["x"] + 58 + (a + 0.5) / 3 * width, box["y"] + 12 + (2.5 - b) / 3 * height)
        return [" ".join(text.split()) for text in reader.page.locator(".plot .card p").all_inner_texts()]

    assert read(1, 1) == ["a 0, b 0", f"{HOSTILE} 0.5"]
    assert read(0, 1) == ["a -1, b 0", f"{HOSTILE} 4"]
    assert read(2, 1) == ["a 1, b 0", f"{HOSTILE} none"]
    assert read(2, 2)[1].endswith(" 1M")
    assert reader.ink(".surface canvas") > 10_000
    widths = reader.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]
    reader.check()


def test_a_hostile_name_stays_text(browser, tmp_path):
    with Store(tmp_path / "own.db") as store:
        store.put(
            Evaluation(Architecture(HOSTILE, (n,)), HOSTILE, float(n), 0, settings=settings(cells=1), data="d")
            for n in range(9)
        )
    report([read_store(str(tmp_path / "own.db"))]).write(tmp_path / "own.html")
    reader = Reader(browser, tmp_path / "own.html")
    reader.page.locator(POINTS).first.focus()
    reader.page.keyboard.press("ArrowRight")
    reader.page.keyboard.press("Enter")
    assert HOSTILE in reader.page.locator(".kept .name").inner_text()
    assert HOSTILE in reader.page.locator(".summary").inner_text()
    assert "taken" not in reader.page.title().replace(HOSTILE, "")
    assert reader.page.evaluate("document.title") != "taken"
    reader.check()


def test_the_policy_stops_a_script_that_got_in(browser, run, tmp_path):
    """What escaping should keep out would not run either."""
    broken = tmp_path / "broken.html"
    broken.write_text(run.read_text().replace("<main>", f"<main>{HOSTILE}", 1))
    reader = Reader(browser, broken)
    assert reader.page.title() != "taken"
    assert any("Content Security Policy" in complaint for complaint in reader.complaints)


# --- the site ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation as `make site` builds it."""
    pytest.importorskip("mkdocs", reason="no test of the site: mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    asked = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    told = subprocess.run(
        asked, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    return folder


@pytest.mark.parametrize("window", [{}, {"color_scheme": "dark"}, PHONE], ids=["desk", "dark", "phone"])
def test_the_site_is_readable_and_searchable_without_a_server(browser, site, window):
    page = browser.new_context(**window).new_page()
    complaints, asked = [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "understanding.html").as_uri())
    widths = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert widths[0] <= widths[1]
    page.keyboard.press("f")
    page.keyboard.type("near-convex")
    page.wait_for_selector(".md-search-result__item", state="attached")
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "about:"))] == []
