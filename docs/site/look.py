# SPDX-License-Identifier: MIT
"""usage: docs/site/look.py SITE TREE

Opens pages in a headless Chromium, as on a desk (1280 px) and on a phone (390 px), light and dark, for scripts/docs --look: of the
site, and, if the release preset has been built, of `specula compare --html` and `specula run --trace`. Saves their pictures in
TREE/build/site-look. Fails on content that is wider than its page, tables wider than their column, a frame around a page, code on the
front page that is wider than its box on a desk, pictures that do not load, a page of the site without its switch of themes or whose
switch does nothing, and code without a button that copies it.
"""
import pathlib
import shlex
import subprocess
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PAGES = ["index.html", "docs/cuda_performance.html", "docs/benchmarks/README.html", "docs/cascades.html", "docs/glossary.html",
         "docs/batches.html", "docs/heads.html", "docs/cuda_rounds.html", "docs/shapes.html", "docs/models.html",
         "docs/comparison.html", "docs/one_rule.html", "docs/conformance.html",
         "reference/index.html", "reference/classspecula_1_1Speculator.html", "reference/structspecula_1_1SamplingParams.html",
         "reference/conceptspecula_1_1LanguageModel.html", "programs/compare.html", "programs/trace.html"]
FAULTS = """
const scrolls = e => ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX);
const inside = e => { for (let p = e.parentElement; p; p = p.parentElement) if (scrolls(p)) return true; return false; };
const wide = document.documentElement.scrollWidth <= Math.max(arguments[0], window.innerWidth) ? [] :
  [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1 && !inside(e)).slice(0, 3);
const cut = arguments[1] ? [...document.querySelectorAll("pre")].filter(e => e.scrollWidth > e.clientWidth) : [];
const tables = [...document.querySelectorAll("article table, .contents table.markdownTable, .contents table.doxtable")]
  .filter(e => e.scrollWidth > e.parentElement.clientWidth + 1);
const frame = parseFloat(getComputedStyle(document.body).marginLeft) > 0 ? ["a frame around the page"] : [];
const site = !location.pathname.includes("/programs/"), missing = [];
if (site) {
  const dark = () => document.documentElement.classList.contains("dark-mode"), before = dark();
  document.querySelector(".theme-toggle")?.click();
  if (dark() === before) missing.push("no switch of themes");
  document.querySelector(".theme-toggle")?.click();
  localStorage.removeItem("theme");
  if (document.querySelector("article pre") && !document.querySelector("button.copybtn")) missing.push("no button that copies code");
}
const broken = [...document.images].filter(e => !e.complete || e.naturalWidth === 0);
return [...wide.map(e => "wider than the page: " + e.outerHTML.slice(0, 80)), ...cut.map(e => "code wider than its box: " + e.innerText.slice(0, 80)),
        ...tables.map(e => "a table wider than its column: " + e.innerText.slice(0, 80)), ...(site ? frame : []), ...missing,
        ...broken.map(e => "does not load: " + e.getAttribute("src"))];"""

site, tree = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
folder, programs = tree / "build/site-look", tree / "build/release/bin"
folder.mkdir(parents=True, exist_ok=True)
(site / "programs").mkdir(exist_ok=True)
if (programs / "specula").exists():
    for command in (f"specula compare --prompts {tree}/examples/prompts/default.jsonl --limit 4 --max-new-tokens 32 --pipelines 'chain cape chain:10@max-gram' "
                    f"--html {site}/programs/compare.html", f"specula run --pipeline cape --prompt def --trace {site}/programs"):
        subprocess.run([programs / shlex.split(command)[0], *shlex.split(command)[1:]], cwd=tree, stdout=subprocess.DEVNULL, check=True)
else:
    print(f"SKIP: no programs in {programs}: the pages that they write are not looked at")
bad = 0
for device, width in (("desk", 1280), ("phone", 390)):
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={max(width, 500)},900"):
        options.add_argument(option)
    if device == "phone":
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": {"width": width, "height": 900, "pixelRatio": 1.0}})
    with webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options) as browser:
        for scheme in ("light", "dark"):
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            for page in [page for page in PAGES if (site / page).exists()]:
                browser.get((site / page).as_uri())
                time.sleep(0.3)  # scripts of the page
                for fault in browser.execute_script(FAULTS, width, page == "index.html" and device == "desk"):
                    print(f"error: {page}, {device}, {scheme}: {fault}")
                    bad += 1
                browser.save_screenshot(str(folder / f"{page.replace('/', '_').removesuffix('.html')}-{device}-{scheme}.png"))
print(f"{len(list(folder.iterdir()))} pictures in {folder}, {bad} faults")
sys.exit(bool(bad))
