"""The report in a real browser; skipped where there is none."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compare.reports import HOSTILE, big, made_up, saved
from outrider.compare.report.page import write_report
from outrider.compare.report.visible import visible, visible_piece
from outrider.compare.result import Comparison, Parting

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1200,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return saved()


@pytest.fixture(scope="module")
def file(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "report.html"
    write_report(comparison, path)
    return path


@pytest.fixture
def opened(browser: Any, file: Path) -> Any:
    return shown(browser, file)


def shown(browser: Any, file: Path) -> Any:
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(file.as_uri())
    browser.set_script_timeout(120)
    view_is_ready = (
        "const done = arguments[0];"
        "const look = () => window.view && !view.hidden ? done(true) : setTimeout(look, 20); look();"
    )
    assert browser.execute_async_script(view_is_ready)
    return browser


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector
    )
    return found


def choose(browser: Any, name: str, at: int) -> None:
    """Pick an entry of a select by the keyboard's way: its value changes, and it says so."""
    script = "const one = document.getElementById(arguments[0]); one.value = arguments[1]; "
    browser.execute_script(f"{script} one.dispatchEvent(new Event('change'))", name, at)


def pick(browser: Any, at: int) -> None:
    browser.find_elements("css selector", "#drafters label")[at].click()


def counts(browser: Any, line: str) -> list[int]:
    return [int(one) for one in texts(browser, f"#counts-{line} td") if one != "–"]


def requests(browser: Any, file: Path) -> list[str]:
    """What the page asked for, itself included."""
    events = [json.loads(one["message"])["message"] for one in browser.get_log("performance")]
    asked = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in asked if one["documentURL"] == file.as_uri()]


def test_nothing_is_asked_for_and_nothing_goes_wrong(opened: Any, file: Path) -> None:
    pick(opened, 2)
    choose(opened, "prompt", 1)
    assert requests(opened, file) == [file.as_uri()]
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert opened.get_log("browser") == []


def test_the_policy_keeps_scripts_and_requests_out(opened: Any) -> None:
    script = """
        const one = document.createElement("script"); one.textContent = "window.broken = true"; document.body.append(one);
        const image = new Image(); image.src = "http://localhost:1/x.png"; document.body.append(image);
        return window.broken === undefined"""
    assert opened.execute_script(script)
    said = [one["message"] for one in opened.get_log("browser")]
    assert any("Content Security Policy" in one and "script" in one for one in said)
    assert any("Content Security Policy" in one and "x.png" in one for one in said)


def test_the_table_and_the_plots_are_drawn(opened: Any, comparison: Comparison) -> None:
    rows = opened.find_elements("css selector", "#table tbody tr")
    assert [one.is_displayed() for one in rows] == [True] * len(comparison.rows)
    boxes = """return [...document.querySelectorAll(arguments[0])].map((one) => {
        const box = one.getBoundingClientRect(); return [box.width, box.height]})"""
    plots = opened.execute_script(boxes, "figure.chart svg.plot")
    assert len(plots) == 3
    assert all(width > 200 and height > 100 for width, height in plots)
    lines = opened.execute_script(boxes, "figure.chart polyline")
    assert lines
    assert all(width > 5 for width, _ in lines)
    marks = opened.execute_script(boxes, "figure.chart .plot use")
    assert all(width > 3 and height > 3 for width, height in marks)
    strips = opened.execute_script(boxes, "#speed .has, #needs .has, #needs .need")
    assert len(strips) == 3 * (len(comparison.rows) - 1)
    assert all(width > 5 for width, _ in strips)
    bars = opened.execute_script(boxes, "#time rect")
    assert len(bars) == 4 * sum(row.kind != "transformers" for row in comparison.rows)
    assert all(width > 0 and height > 5 for width, height in bars)


def test_the_token_view_shows_the_texts_of_every_row_and_prompt(opened: Any, comparison: Comparison) -> None:
    runs = {(run.row, run.prompt, run.repeat): run for run in comparison.runs}
    for prompt in comparison.prompts:
        choose(opened, "prompt", prompt.index)
        assert texts(opened, "#asked-text") == [prompt.text]
        for at, row in enumerate(comparison.rows):
            pick(opened, at)
            run = runs[row.name, prompt.index, 0]
            assert texts(opened, "#text .token") == list(run.pieces)
            assert len(texts(opened, "#text .step")) == len(run.steps)
            assert "".join(texts(opened, "#text .rejected")) == "".join(run.steps.rejected_text)
            told = [len(texts(opened, f"#text .{kind}")) for kind in ("prefill", "accepted", "bonus", "unknown")]
            accepted, known = sum(run.steps.accepted), bool(run.steps.path)
            rest = run.step_tokens - accepted
            assert told == [run.prefill_tokens, accepted, rest if known else 0, 0 if known else rest]
            shown = counts(opened, "this")
            assert shown[:3] == [len(run.token_ids), run.prefill_tokens, len(run.steps)]
            assert shown[3:] == (
                [sum(run.steps.drafted), accepted, sum(run.steps.drafted) - accepted, rest] if known else []
            )


def test_the_counts_are_those_of_the_table(opened: Any, comparison: Comparison) -> None:
    for at, one in enumerate(comparison.figures):
        pick(opened, at)
        shown = counts(opened, "all")
        assert shown[0] == one.tokens
        assert shown[2] == one.steps
        if one.drafted:
            assert shown[3:6] == [one.drafted, one.accepted, one.wasted]
            cells = texts(opened, f"#table tbody tr:nth-child({at + 1}) td")
            assert {str(one.drafted), str(one.wasted), f"{one.accepted} ({one.acceptance_rate:.0%})"} <= set(cells)


def test_repeats_are_shown_one_by_one(opened: Any, comparison: Comparison) -> None:
    pick(opened, 1)
    slow = [sum(run.steps.seconds) for run in comparison.of("ngram") if run.prompt == 0]
    assert len(texts(opened, "#repeat option")) == len(slow) == 2
    step = []
    for at in range(2):
        choose(opened, "repeat", at)
        opened.find_element("id", "back").click()
        step += texts(opened, "#step")
    assert step[0].split(", ")[:-1] == step[1].split(", ")[:-1]


def test_steps_are_walked_by_buttons_and_keys(opened: Any, comparison: Comparison) -> None:
    pick(opened, 1)
    (run,) = [one for one in comparison.of("ngram") if (one.prompt, one.repeat) == (0, 0)]
    steps = len(run.steps)
    assert not texts(opened, "#text .later")
    opened.find_element("id", "back").click()
    assert len(texts(opened, "#text .later")) == 1
    opened.find_element("id", "at").send_keys("\ue012" * 2)  # left, twice
    assert len(texts(opened, "#text .later")) == 3
    at = steps - 3
    said = texts(opened, "#step")[0]
    assert said.startswith(f"step {at} of {steps}: {run.steps.emitted[at - 1]} emitted")
    assert texts(opened, "#text .now") == texts(opened, f"#text .step:nth-child({run.prefill_tokens + at})")
    opened.find_element("id", "on").click()
    assert len(texts(opened, "#text .later")) == 2


def test_rows_are_switched_by_the_keyboard(opened: Any, comparison: Comparison) -> None:
    first = opened.find_element("css selector", "#drafters input:checked")
    assert first.get_attribute("value") == "1"
    first.send_keys("\ue014")  # right
    chosen = opened.find_element("css selector", "#drafters input:checked")
    assert chosen.get_attribute("value") == "2"
    assert texts(opened, "#drafters label:has(:checked)") == [comparison.rows[2].name]


def test_the_theme_is_switched_and_follows_the_system(opened: Any) -> None:
    page = "return getComputedStyle(document.documentElement).backgroundColor"
    ink = "return getComputedStyle(document.body).color"
    found = {}
    for scheme in ("light", "dark"):
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        before = opened.execute_script(page), opened.execute_script(ink)
        opened.find_element("id", "theme").click()
        after = opened.execute_script(page), opened.execute_script(ink)
        assert opened.find_element("id", "theme").text == scheme.capitalize()
        opened.execute_script("delete document.documentElement.dataset.theme")
        found[scheme] = before, after
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert found["light"] == tuple(reversed(found["dark"]))
    assert found["light"][0] == ("rgb(255, 255, 255)", "rgb(27, 31, 35)")
    assert found["light"][1] != found["light"][0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_stand_out_from_what_is_behind_them(opened: Any, theme: str) -> None:
    script = """
        document.documentElement.dataset.theme = arguments[0];
        document.querySelectorAll("details").forEach((one) => { one.open = true; });
        const kinds = ["h1", ".what", "#warnings li", "#headline li", "dt", "td", ".interval", ".badge", ".badge.plain",
          ".note", ".words", "summary", "figcaption", ".pick",
          ".token.accepted", ".token.bonus", ".token.prefill", ".token.unknown",
          ".rejected"];
        const behind = (one) => {
          for (let at = one; at; at = at.parentElement) {
            const found = getComputedStyle(at).backgroundColor;
            if (!/, 0\\)$/.test(found)) return found;
          }
        };
        return kinds.flatMap((kind) => [...document.querySelectorAll(kind)].slice(0, 40).map(
          (one) => [kind, getComputedStyle(one).color, behind(one)]))"""
    found = opened.execute_script(script, theme)
    assert len({kind for kind, _, _ in found}) == 19
    low = {(kind, ink, behind) for kind, ink, behind in found if contrast(ink, behind) < 4.5}
    assert not low


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_no_page_is_wider_than_its_window(opened: Any, width: int) -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 700}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert opened.execute_script("return innerWidth") == width
        assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_partings_are_marked(browser: Any, comparison: Comparison, tmp_path: Path) -> None:
    plain = comparison.runs[0].token_ids[3]
    partings = (
        Parting(position=2, token=1, plain_token=plain, gap=0.001, verdict="near tie"),
        Parting(position=5, token=1, plain_token=10**6, gap=None, verdict="fault"),
    )
    runs = tuple(replace(run, partings=partings) for run in comparison.runs)
    write_report(replace(comparison, runs=runs), tmp_path / "report.html")
    opened = shown(browser, tmp_path / "report.html")
    titles = opened.execute_script("return [...document.querySelectorAll('#text .parted')].map((one) => one.title)")
    assert len(titles) == 2
    assert titles[0].endswith(f"; plain decoding says {comparison.runs[0].pieces[3]}: near tie, a gap of 0.001")
    assert titles[1].endswith("; plain decoding says id 1000000: fault")
    assert len(texts(opened, "#text .parted.fault")) == 1
    assert [one.split(":")[0] for one in texts(opened, "#partings li")] == ["token 2", "token 5"]


def test_hostile_texts_are_only_shown(browser: Any, tmp_path: Path) -> None:
    found = made_up(3, ("none", *[f"d{text}" for text in HOSTILE]), 24, pieces=HOSTILE)
    write_report(found, tmp_path / "report.html")
    opened = shown(browser, tmp_path / "report.html")
    for at in range(len(found.rows)):
        pick(opened, at)
    choose(opened, "prompt", 2)
    (run,) = [one for one in found.of(found.rows[-1].name) if one.prompt == 2]
    assert texts(opened, "#text .token") == list(map(visible_piece, run.pieces))
    assert texts(opened, "#drafters label")[1:] == [visible(row.name) for row in found.rows[1:]]
    assert opened.execute_script("return document.scripts.length") == 2
    assert opened.execute_script("return document.images.length") == 0
    assert opened.get_log("browser") == []


def test_a_big_report_can_be_used(browser: Any, tmp_path: Path) -> None:
    found = big(["none", *[f"d{at}" for at in range(11)]])
    write_report(found, tmp_path / "report.html")
    opened = shown(browser, tmp_path / "report.html")
    choose(opened, "prompt", 239)
    pick(opened, 5)
    runs = found.of("d4")
    (run,) = [one for one in runs if one.prompt == 239]
    assert texts(opened, "#text .token") == list(run.pieces)
    told = [sum(len(one.token_ids) for one in runs), 240, sum(len(one.steps) for one in runs)]
    assert counts(opened, "all")[:3] == told
    assert opened.execute_script("return document.querySelectorAll('#text *').length") < 1000


def test_a_report_of_nothing_opens(browser: Any, comparison: Comparison, tmp_path: Path) -> None:
    write_report(replace(comparison, runs=(), figures=()), tmp_path / "report.html")
    opened = shown(browser, tmp_path / "report.html")
    assert "no such text" in texts(opened, "#text")[0]
    assert opened.get_log("browser") == []
