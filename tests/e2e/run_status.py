"""The status page of a real run, in headless Chromium; and `slackline status`, which shows the same.

    run_status.py --programs BIN_FOLDER [--patience FACTOR] [--screenshots FOLDER] [TEST...]

Exits with 77 (skipped) where the programs, the data, Chromium or playwright are not there.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

LONG = MLP.replace("report_every_ms: 50", "report_every_ms: 500") + """
data: {train_images_max: 6000}
training: {epochs: 10000, evaluate_every_epochs: 3}
cluster: {servers: 2, workers: 3, shards_per_server: 3}
checkpoint: {every_s: 5}
"""

# Of each text that is seen: how far its colour is from what is behind it (WCAG 2.1), where that is less than 4.5.
CONTRAST = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  let seen = 0;
  for (const node of document.querySelectorAll('body *')) {
    const own = Array.from(node.childNodes).some((one) => one.nodeType === 3 && one.textContent.trim());
    if (!own || node.closest('noscript') || !node.getClientRects().length) continue;
    ++seen;
    const style = getComputedStyle(node);
    const front = light(parts(node.namespaceURI.endsWith('svg') ? style.fill : style.color)), back = light(behind(node));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < 4.5) bad.push(ratio.toFixed(2) + ' ' + node.tagName + ' ' + node.textContent.slice(0, 30));
  }
  return {seen, bad};
}"""

# What the page gets where a thousand workers have hostile names.
HOSTILE = """(number) => {
  const many = structuredClone(status);
  const one = many.workers.find((worker) => worker.state === 'live');
  many.workers = Array.from({length: number}, (_, i) => ({...one, worker: i + 1, slack: i % 5,
    name: '<img src=x onerror=alert(1)>' + i, host: '"><script>alert(2)</script>', reason: "' onload='alert(3)"}));
  many.servers[0].name = '<script>alert(4)</script>';
  many.events.push({unix_ms: 1, text: '<svg onload=alert(5)>'});
  many.events_total += 1;
  many.alerts = [{severity: 'warning', kind: 'worker_lost', text: '<b>bold</b>'}];
  // The next news would take it away.
  const own = hear;
  stream.close();
  hear = () => {};
  const begin = performance.now();
  own(JSON.stringify(many));
  document.body.getBoundingClientRect();
  return performance.now() - begin;
}"""


class StatusPage(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-status-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.said = []

    def start(self):
        job = self.root / "job.yaml"
        job.write_text(LONG)
        run = TrainRun(self.programs, self.root, job)
        self.addCleanup(run.close)
        run.wait_for_training()
        found = self.programs.wait_for("the address of the page", lambda: re.search(r"Status page: (\S+)", run.stdout()))
        return run, found.group(1)

    def browse(self, url, **context):
        from playwright.sync_api import sync_playwright
        playwright = sync_playwright().start()
        self.addCleanup(playwright.stop)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        self.addCleanup(browser.close)
        self.browser = browser
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **context})
        page.set_default_timeout(30000 * OPTIONS.patience)
        page.on("console", lambda message: self.said.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("requestfailed", lambda request: self.said.append(f"failed: {request.url}"))
        page.on("dialog", lambda dialog: (self.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.goto(url)
        page.wait_for_selector("#workers tbody tr")
        return page

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.programs.path("slackline"), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=100 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout

    def until(self, page, condition):
        """playwright's own way of waiting would evaluate texts in the page, which it rightly forbids."""
        return self.programs.wait_for(f"the page to say {condition}", lambda: page.evaluate(condition), 30)

    def shoot(self, page, name):
        if OPTIONS.screenshots:
            page.screenshot(path=pathlib.Path(OPTIONS.screenshots) / f"{name}.png", full_page=True)

    def test_a_run_is_watched(self):
        run, url = self.start()
        page = self.browse(url)
        page.wait_for_selector("#loss-chart path")
        points = page.evaluate("status.curve.time_s.length")
        self.until(page, f"status.curve.time_s.length > {points + 2}")
        self.assertEqual(page.inner_text("#connection"), "connected, live")
        self.logarithm(page)
        self.settings_and_logs(page)
        page.wait_for_selector("#staleness-chart rect")
        page.wait_for_selector("#accuracy-chart .good")
        self.assertEqual(page.locator("#workers tbody tr").count(), 3)
        self.assertEqual(page.locator("#servers tbody tr").count(), 2)
        self.assertEqual(page.locator("#workers .limit").count(), 3)
        self.assertIn("workers", page.inner_text("#nodes"))
        self.looks(page)
        self.keyboard(page)

        began = time.monotonic()
        victim = sorted(name for name in run.members() if name.startswith("worker"))[0]
        run.kill(victim)
        self.until(page, "document.querySelector('#alert-list').textContent.includes('lost')")
        took = time.monotonic() - began
        print(f"a lost worker was shown after {took:.1f} s", flush=True)
        self.assertLess(took, 5 * OPTIONS.patience)
        self.assertIn("lost", page.inner_text("#workers"))
        self.shoot(page, "lost")

        self.hostile(page)
        self.assertEqual(self.said, [])
        self.scheduler_comes_back(run, page)
        self.terminal(run)
        self.terminal_from_the_page(url)

        run.process.terminate()
        self.until(page, "['stopped', 'done'].includes(status.state)")
        run.wait()
        self.programs.wait_for("the end of all processes", lambda: not run.leftovers(), 10)
        self.until(page, "document.querySelector('#connection').textContent.includes('is over')")
        self.assertFalse([what for what in self.said if what.startswith(("error", "dialog"))])

    def looks(self, page):
        """In light and dark, on large and small screens: nothing overflows, all texts can be read."""
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            seen = page.evaluate(CONTRAST)
            self.assertGreater(seen["seen"], 60)
            self.assertEqual(seen["bad"], [], scheme)
            self.shoot(page, scheme)
        page.emulate_media(color_scheme="light")
        for width in (360, 320):
            page.set_viewport_size({"width": width, "height": 800})
            self.until(page, "document.querySelector('#loss-chart svg').getBoundingClientRect().width < 360")
            self.assertEqual(page.evaluate("document.documentElement.scrollWidth"), width)
            self.shoot(page, str(width))
        page.set_viewport_size({"width": 1280, "height": 900})

    def keyboard(self, page):
        """All that scrolls or reads out is reached by Tab, and is seen to have the focus."""
        page.evaluate("document.activeElement.blur()")
        reached = []
        for _ in range(32):
            page.keyboard.press("Tab")
            reached.append(page.evaluate(
                "(() => { const at = document.activeElement; const outline = getComputedStyle(at).outlineStyle;"
                " return [at === document.body ? '' : at.className.baseVal === undefined ? at.id || at.className || at.textContent : at.parentElement.parentElement.id, outline]; })()"))
        names = [name for name, _ in reached]
        for name in ("skip", "loss-chart", "accuracy-chart", "rate-chart", "scroll", "nodes", "events", "JSON"):
            self.assertIn(name, names)
        self.assertFalse([name for name, outline in reached if outline == "none" and name], reached)
        page.focus("#loss-chart svg")
        page.keyboard.press("Home")
        self.until(page, "document.querySelector('#loss-chart .legend').textContent.includes('at ')")
        first = page.inner_text("#loss-chart .legend")
        # Points of one second without a loss read alike.
        for _ in range(10):
            page.keyboard.press("ArrowRight")
            if page.inner_text("#loss-chart .legend") != first:
                break
        self.assertNotEqual(page.inner_text("#loss-chart .legend"), first)
        # News do not take the focus away.
        heard = page.evaluate("heardAt")
        self.until(page, f"heardAt > {heard}")
        self.assertTrue(page.evaluate("document.activeElement === document.querySelector('#loss-chart svg')"))

    def logarithm(self, page):
        """Of the loss: a decade is as high as another one, whatever the button says."""
        button = "button[data-chart=loss]"
        page.click(button)
        self.assertEqual(page.get_attribute(button, "aria-pressed"), "true")
        self.assertEqual(page.evaluate("logTicks(0.4, 3)"), [0.5, 1, 2])
        self.assertEqual(page.evaluate("logTicks(0.0005, 50)"), [0.001, 0.01, 0.1, 1, 10])
        self.assertEqual(page.evaluate("logTicks(1.4, 1.9)"), page.evaluate("ticks(1.4, 1.9, 5)"))
        lines = page.evaluate("""(() => {
          drawLines(byId('loss-chart'), [{name: 'x', tone: 'blue', times: [0, 1, 2, 3], values: [100, 10, 0, 1]}], {format: String, log: true});
          return byId('loss-chart').querySelector('path').getAttribute('d').split('M').slice(1).map((line) => line.split('L').map((at) => Number(at.split(' ')[1])));
        })()""")
        # A value of 0 is nowhere.
        (high, middle), (low,) = lines
        self.assertAlmostEqual(middle - high, low - middle, delta=0.2)
        page.click(button)
        self.assertEqual(page.get_attribute(button, "aria-pressed"), "false")

    def settings_and_logs(self, page):
        page.click("#settings > summary")
        self.until(page, "document.querySelectorAll('#settings-default tr').length > 50")
        self.assertIn("cluster.workers", page.text_content("#settings-set"))
        page.click("#logs > summary")
        self.until(page, "document.querySelector('#log-name').options.length >= 6")
        page.select_option("#log-name", "worker-1")
        self.until(page, "document.querySelector('#log-text').textContent.includes('worker-1')")
        page.click("#logs > summary")
        page.click("#settings > summary")

    def hostile(self, page):
        took = page.evaluate(HOSTILE, 1000)
        print(f"a thousand workers were drawn in {took:.0f} ms", flush=True)
        self.assertLess(took, 2000 * OPTIONS.patience)
        self.assertEqual(page.locator("#workers tbody tr").count(), 100)
        self.assertIn("<img src=x onerror=alert(1)>", page.inner_text("#workers"))
        self.assertIn("<b>bold</b>", page.inner_text("#alert-list"))
        self.assertEqual(page.locator("main img, main script, main b b").count(), 0)
        page.click("#workers-all")
        self.assertEqual(page.locator("#workers tbody tr").count(), 1000)
        self.shoot(page, "thousand")
        page.reload()
        page.wait_for_selector("#workers tbody tr")
        # What was under way ended with the old page.
        self.said[:] = [what for what in self.said if not what.startswith("failed: ")]

    def scheduler_comes_back(self, run, page):
        points = page.evaluate("status.curve.time_s.length")
        run.kill("scheduler", signal.SIGSTOP)
        self.until(page, "document.querySelector('#connection').textContent.includes('no connection since')")
        self.shoot(page, "away")
        run.kill("scheduler", signal.SIGCONT)
        self.until(page, "document.querySelector('#connection').textContent === 'connected, live'")
        before = run.members()["scheduler"]["pid"]
        run.kill("scheduler")
        self.programs.wait_for("another scheduler", lambda: run.members().get("scheduler", {"pid": before})["pid"] != before, 30)
        # That there was no connection may have been too short to be seen from here.
        heard = page.evaluate("heardAt")
        self.until(page, f"document.querySelector('#connection').textContent === 'connected, live' && stream.readyState === 1 && heardAt > {heard}")
        # With what was before.
        self.until(page, f"status.curve.time_s.length > {points}")
        self.assertTrue(page.evaluate("status.events.some((event) => event.text.includes('is there'))"))

    def terminal(self, run):
        def there():
            """The scheduler has come back just now: its members follow."""
            shape = json.loads(self.slackline("status", run.folder, "--json"))
            return shape["state"] == "training" and len([server for server in shape["servers"] if server["state"] == "live"]) == 2 and shape

        shape = self.programs.wait_for("two live servers", there, 30)
        self.assertLessEqual(len(shape["curve"]["loss"]), 601)
        out = self.slackline("status", run.folder)
        for what in ("alerts", "clocks, ahead of the slowest", "staleness of pushes", "shards", "machines", "status page http"):
            self.assertIn(what, out)
        watch = subprocess.Popen([self.programs.path("slackline"), "status", str(run.folder), "--watch"],
                                 stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        line = watch.stdout.readline()
        self.assertNotIn("\x1b", line)
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(20 * OPTIONS.patience), 0)
        watch.stdout.close()

    def terminal_from_the_page(self, url):
        """The same, for those who reach only the page."""
        address = url.removeprefix("http://").rstrip("/")
        for target in (url, url + "api/status", address):
            out = self.slackline("status", target)
            for what in ("job e2e: training", "ps-1", "worker-", "clocks, ahead of the slowest", "status page http"):
                self.assertIn(what, out)
            self.assertEqual(json.loads(self.slackline("status", target, "--json"))["state"], "training")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("--screenshots", help="folder for pictures of the page")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    programs = pathlib.Path(OPTIONS.programs)
    missing = [name for name in NEEDED if not (programs / name).exists()] + ([] if DATA.is_dir() else [str(DATA)])
    if shutil.which("chromium") is None:
        missing.append("chromium")
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        missing.append("playwright")
    if missing:
        print("SKIP: not there:", ", ".join(missing))
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
