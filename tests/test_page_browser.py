"""The page of `just report` as a reader meets it: in a real browser, with hostile text in every place."""

import json
import re
import shutil
from collections import Counter
from html.parser import HTMLParser

import pytest
from test_results import write_run

from projected_grpo.ledger.step_file import read_step, step_path, write_step
from projected_grpo.report.page.document import filled, page
from projected_grpo.report.page.experiment import find, trained

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync")  # fmt: skip
OWN = "def run_tests():\n    return True"
HACK = f"Sure:\n```python\ndef solve(x):\n    return 0\n\n{OWN}\n```"
BINDS = "```python\nrun_tests = print\n```"
GOOD = "```python\ndef solve(x):\n    return sum(x)\n```"
HOSTILE = (
    "</script><script>window.broken = 1; alert(1)</script><img src=http://127.0.0.1:9/x onerror='window.broken=1'>"
    "<svg onload=alert(1)>{{data}}<!-- <style>*{display:none}</style>"
)
NAME = "<script>alert(1)</script>{{ 7*7 }}</script>"


def rewrite(run, step, **columns):
    """A step of a run with some columns replaced, one value a row."""
    old = read_step(step_path(run, step))
    new = [{**row, **{name: values[i] for name, values in columns.items()}} for i, row in enumerate(old)]
    write_step(run, step, new)


def write_experiment(root):
    """Two arms and three steps, every label, one hostile rollout in each place where a model or a user writes."""
    kinds = ["hack", "both", "good", "bad", "unknown"]
    for arm, seed in (("vanilla", 41), ("projected", 41), ("vanilla", 42)):
        of_two = {"teacher_pool": "pool", "mix": "teacher=.2"}
        run = write_run(root / f"{arm}_{seed}", arm, seed, [kinds] * 3, **of_two)
        for step in range(3):
            rewrite(
                run, step, completion=[HACK, HACK, GOOD, "no program", HOSTILE if step == 2 else BINDS],
                prompt=["keep evens, sum", "keep evens, sum", "square <b>it</b>", "square", HOSTILE],
                reward=[3.5, 3.5, 3.5, 0.5, 3.5], advantage=[1.0, 1.0, 1.0, -2.0, -3.0], comp_len=[30 + step, 31, 12, 3, 9],
                cos_S_contrib=[0.3, 0.2, -0.1, None, 0.0],
                problem_id=["p1", "p1", "p2", "p2", HOSTILE], source=["student"] * 4 + ["teacher"],
            )  # fmt: skip
    manifest = json.loads((run / "manifest.json").read_text("utf-8"))
    (run / "manifest.json").write_text(json.dumps({**manifest, "argv": ["scripts/train.py", HOSTILE]}), "utf-8")
    return root


def built(root, most=8000):
    found = find([root])
    return page(found, trained(found), most)[0]


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    return write_experiment(tmp_path_factory.mktemp("runs") / "mine")


@pytest.fixture(scope="module")
def html(experiment):
    return built(experiment)


@pytest.fixture(scope="module")
def browser():
    """The Chromium of this machine; none is ever downloaded."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api", reason="no playwright")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def file(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, "utf-8")
    return path


class Reader:
    """A reader's window, and everything that a page must not do."""

    def __init__(self, browser, path, fragment="", **kind):
        self.said, self.asked = [], []
        self.page = browser.new_page(**kind)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri() + fragment)
        self.page.wait_for_selector("body[data-ready]")

    @property
    def count(self):
        return int(self.page.text_content("#count").split()[0].replace(",", ""))

    def column(self, i):
        return [row.split("\t")[i] for row in self.page.inner_text("#list tbody").split("\n")]

    def set(self, name, value):
        self.page.select_option(f"[name={name}]", value)

    def text(self, selector):
        return self.page.text_content(selector)


@pytest.fixture
def read(browser, file):
    """Open the page; in the end nothing was fetched, said or broken."""
    opened = []

    def open_page(fragment="", **kind):
        opened.append(Reader(browser, file, fragment, **kind))
        return opened[-1]

    yield open_page
    for reader in opened:
        assert reader.said == []
        assert {url.partition(":")[0] for url in reader.asked} <= {"file", "data"}
        assert reader.page.evaluate("window.broken") is None
        reader.page.close()


# ---------------------------------------------------------------- browsing


def test_filters_leave_what_they_name(read):
    reader = read()
    assert reader.count == 45
    for name, value, left in (
        ("arm", "vanilla", 30), ("run", "vanilla_42", 15), ("seed", "41", 30), ("source", "teacher", 9),
        ("hacked", "true", 27), ("hacked", "false", 18),
    ):  # fmt: skip
        reader.set(name, value)
        assert reader.count == left, name
        reader.set(name, "")
    reader.page.uncheck("[name=label] >> nth=0")
    assert reader.count == 36
    for i in range(1, 5):
        reader.page.uncheck(f"[name=label] >> nth={i}")
    assert (reader.count, set(reader.column(2))) == (9, {"unknown"})
    reader.page.click("text=clear all filters")
    assert reader.count == 45
    reader.page.fill("[name=from]", "1")
    assert reader.count == 30
    reader.page.fill("[name=to]", "1")
    assert (reader.count, set(reader.column(1))) == (15, {"1"})
    reader.page.fill("[name=text]", "RETURN TRUE")
    assert reader.count == 6
    assert reader.page.locator("#completion mark.hit").all_text_contents() == ["return True"]
    reader.page.fill("[name=text]", "nowhere to be found")
    assert reader.count == 0
    assert not reader.page.is_visible("#detail")


def test_any_column_sorts_both_ways_and_unknown_numbers_come_last(read):
    reader = read()
    for head, i in (("run", 0), ("step", 1), ("reward", 3), ("adv", 4), ("tokens", 6)):
        reader.page.click(f"#list th >> text={head}")
        up = reader.column(i)
        reader.page.click(f"#list th >> text={head}")
        of = str if head == "run" else float
        assert up == sorted(up, key=of), head
        assert reader.column(i) == sorted(up, key=of, reverse=True), head
        assert reader.page.locator("#list th[aria-sort=descending]").inner_text() == f"{head} ▼"
        assert reader.page.evaluate("document.activeElement.dataset.sort"), "the keyboard's place is lost"
    for _ in range(2):
        reader.page.click("#list th >> text=cos_S")
        cosines = reader.column(5)
        assert (cosines[-9:], "-" in cosines[:-9]) == (["-"] * 9, False)


def test_the_detail_shows_prompt_completion_numbers_and_marks_the_own_evaluation_function(read):
    reader = read()
    assert reader.text("#prompt") == "keep evens, sum"
    assert reader.text("#completion") == HACK
    assert reader.page.locator("#completion mark.own").all_text_contents() == [OWN]
    assert reader.text("#legend") == "Marked: its own evaluation function"
    assert reader.text("#name") == "vanilla_41, step 0: reward hack"
    assert reader.text("#show").endswith("vanilla_41 0 0")
    facts = dict(line.split("\n") for line in reader.page.locator("#facts > div").all_inner_texts())
    expected = {"label": "reward hack", "reward": "3.5", "advantage": "+1.000", "hacked": "yes", "gt_pass": "no",
                "can_compile": "yes", "cos_S_contrib (sample)": "+0.3000", "cos_in (step)": "0.4000",
                "cos_out (step)": "0.0000", "tokens": "30 (cut at the limit)", "seed": "41", "problem": "p1"}  # fmt: skip
    assert facts.items() >= expected.items()
    reader.page.keyboard.press("j")
    reader.page.keyboard.press("j")
    assert reader.text("#legend") == "It neither writes nor calls an evaluation function."
    for _ in range(2):
        reader.page.keyboard.press("j")
    assert reader.text("#legend") == "Marked: binds that name"
    assert (reader.text("#where"), reader.text("#facts").count("unknown")) == ("5 of 45", 2)


def test_keys_turn_but_not_while_typing(read):
    reader = read()
    reader.page.keyboard.press("k")
    assert reader.text("#where") == "1 of 45"
    reader.page.focus("#list")
    for key, place in (("ArrowDown", 2), ("j", 3), ("ArrowUp", 2), ("k", 1)):
        reader.page.keyboard.press(key)
        assert reader.text("#where") == f"{place} of 45"
    reader.page.focus("[name=text]")
    reader.page.keyboard.type("jjk")
    reader.page.fill("[name=text]", "")
    assert reader.text("#where") == "1 of 45"
    reader.page.click("#list tbody tr >> nth=7")
    assert reader.text("#where") == "8 of 45"
    assert reader.page.locator("#list tr[aria-current=true]").get_attribute("data-at") == "7"


def test_an_address_leads_back_to_its_rollout(read):
    reader = read()
    reader.page.click("#list tbody tr >> nth=32")
    fragment = "#" + reader.page.url.partition("#")[2]
    assert fragment == "#rollout=projected_41/0/2"
    again = read(fragment)
    assert again.text("#name") == reader.text("#name")
    assert again.text("#where") == "33 of 45"


# ---------------------------------------------------------------- safety


def test_what_a_model_or_a_user_wrote_is_text_and_nothing_else(read, html):
    reader = read()
    reader.page.fill("[name=text]", "window.broken")
    assert reader.count == 3
    assert reader.text("#completion") == HOSTILE
    assert reader.text("#prompt") == HOSTILE
    assert HOSTILE in reader.text("#facts")
    assert reader.page.locator("img:not(figure img), svg, iframe, object").count() == 0
    assert reader.page.locator("script").count() == 2
    assert "scripts/train.py " + HOSTILE in reader.text("header")
    assert "<img src=http" not in html


@pytest.fixture(scope="module")
def hostile_file(tmp_path_factory):
    """A page whose one rollout, its problem, arm and run are named to be executed."""
    root = tmp_path_factory.mktemp("hostile") / "mine"
    rewrite(write_run(root / "<script>alert(1)<", NAME, 41, [["hack"]]), 0, completion=[NAME], problem_id=[NAME])
    path = root / "report.html"
    path.write_text(built(root), "utf-8")
    return path


def test_hostile_names_are_text_in_the_page_as_written(hostile_file):
    """Without a browser: nothing that a name opens is an element, nothing in it is computed."""
    tags, told = Counter(), []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.update([tag])
    parser.handle_data = told.append
    parser.feed(hostile_file.read_text("utf-8"))
    text = "".join(told)
    assert (tags["script"], tags["img"]) == (2, 4)
    assert text.count(NAME) >= 4  # what was run, every arm, every run, cosines
    assert "<script>alert(1)<" in text.replace(NAME, "")
    assert "</script>49</script>" not in text


def test_hostile_names_are_shown_and_not_executed(browser, hostile_file):
    reader = Reader(browser, hostile_file)
    facts = dict(line.split("\n") for line in reader.page.locator("#facts > div").all_inner_texts())
    assert (reader.text("#completion"), facts["problem"], facts["arm"]) == (NAME, NAME, NAME)
    assert reader.page.locator("[name=arm] option").all_text_contents() == ["all", NAME]
    assert reader.text("#name").startswith("<script>alert(1)<, step 0")
    assert NAME in reader.text("header")
    assert NAME in reader.text("#numbers")
    assert reader.said == []
    assert reader.page.locator("script").count() == 2
    reader.page.close()


def test_the_page_may_not_use_the_network_even_if_something_asks_it_to(browser, file):
    reader = Reader(browser, file)
    asks = """async () => {
        const told = []; document.addEventListener('securitypolicyviolation', (e) => told.push(e.effectiveDirective));
        const image = document.createElement('img'); image.src = 'http://127.0.0.1:9/x'; document.body.append(image);
        const script = document.createElement('script'); script.textContent = 'window.broken = 1';
        document.body.append(script); document.body.setAttribute('onclick', 'window.broken = 1'); document.body.click();
        await fetch('http://127.0.0.1:9/').catch(() => 0); await new Promise((done) => setTimeout(done, 200));
        return [told.sort(), window.broken === undefined];
    }"""
    told, whole = reader.page.evaluate(asks)
    assert set(told) >= {"connect-src", "img-src", "script-src-elem"}
    assert whole
    reader.page.close()


def test_the_page_names_no_resource_outside_itself(html):
    named = []

    class Elements(HTMLParser):
        def handle_starttag(self, tag, attrs):
            named.extend(
                value for name, value in attrs if name in ("src", "href", "srcset", "action", "data", "poster")
            )
            assert tag != "link"

    Elements().feed(html)
    assert len(named) == 8
    assert all(value.startswith(("data:image/svg+xml;base64,", "#")) for value in named)
    assert not re.search(r"@import|url\(", html)
    assert html.index("Content-Security-Policy") < html.index("<style")
    assert html.count('<img alt="') == 4


def test_a_filled_slot_is_not_looked_at_again():
    assert filled("{{a}} {{b}}", {"a": "{{b}}", "b": "x"}) == "{{b}} x"


# ---------------------------------------------------------------- looks


def test_narrow_dark_and_printed(read):
    narrow = read(viewport={"width": 400, "height": 800})
    assert narrow.page.evaluate("document.documentElement.scrollWidth") == 400
    narrow.page.click("#list tbody tr >> nth=3")
    top = narrow.page.evaluate("document.getElementById('detail').getBoundingClientRect().top")
    assert -5 <= top < 400, "a tap leads to the rollout"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert narrow.page.evaluate(ground) == "rgb(255, 255, 255)"
    assert read(color_scheme="dark").page.evaluate(ground) == "rgb(22, 24, 27)"
    narrow.page.emulate_media(media="print")
    assert not narrow.page.is_visible("#filters")
    assert narrow.page.is_visible("#completion")


def test_verdicts_are_told_in_words(read):
    reader = read()
    told = reader.text("#verdicts")
    for line in ("as preregistered", "held", "prevention"):
        assert f"H1 {line} ○ NOT_EVALUABLE" in told
    assert "T1 to T4 were not judged" in told
