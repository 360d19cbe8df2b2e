#!/usr/bin/env python3
"""usage: scripts/docs_look.py SITE FOLDER [PAGE...]

Opens pages of the site in a headless Chromium, as on a desk (1280 px) and on a phone (390 px), light and dark, for scripts/docs
--look. Saves their pictures in FOLDER. Fails on content that is wider than its page, and on pictures that do not load.
"""
import asyncio
import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PAGES = ["index.html", "docs/cuda_performance.html", "docs/benchmarks/README.html", "docs/cascades.html", "docs/glossary.html",
         "reference/index.html", "reference/classspecula_1_1Speculator.html", "reference/structspecula_1_1SamplingParams.html",
         "reference/conceptspecula_1_1LanguageModel.html", "programs/compare.html", "programs/trace.html"]
WIDTHS = {"desk": 1280, "phone": 390}
LONGEST = 6000  # pixels of a picture

MEASURE = """(() => ({
  scroll: document.documentElement.scrollWidth,
  inner: window.innerWidth,
  height: document.documentElement.scrollHeight,
  wide: [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > window.innerWidth + 1)
    .filter(e => { for (let p = e.parentElement; p; p = p.parentElement)
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX)) return false; return true; })
    .slice(0, 3).map(e => e.tagName.toLowerCase() + (e.className ? "." + e.className : "")),
  broken: [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.getAttribute("src")),
}))()"""


class Browser:
    """One tab, over the DevTools protocol."""

    def __init__(self, socket):
        self.socket, self.number, self.events = socket, 0, []

    async def call(self, method, **parameters):
        self.number += 1
        number = self.number
        await self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await asyncio.wait_for(self.socket.recv(), 60))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message.get("method"))

    async def wait_for(self, event):
        while event not in self.events:
            self.events.append(json.loads(await asyncio.wait_for(self.socket.recv(), 60)).get("method"))


async def look(port, site, folder, pages):
    import urllib.request

    import websockets

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
        tab = next(t for t in json.load(answer) if t["type"] == "page")
    bad = 0
    async with websockets.connect(tab["webSocketDebuggerUrl"], max_size=None) as socket:
        browser = Browser(socket)
        await browser.call("Page.enable")
        for page in pages:
            for device, width in WIDTHS.items():
                for scheme in ("light", "dark"):
                    await browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=device == "phone")
                    await browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                    browser.events.clear()
                    await browser.call("Page.navigate", url=(site / page).as_uri())
                    await browser.wait_for("Page.loadEventFired")
                    await asyncio.sleep(0.5)  # scripts of the page
                    seen = (await browser.call("Runtime.evaluate", expression=MEASURE, returnByValue=True))["result"]["value"]
                    name = page.replace("/", "_").removesuffix(".html")
                    clip = {"x": 0, "y": 0, "width": width, "height": min(seen["height"], LONGEST), "scale": 1}
                    shot = await browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
                    (folder / f"{name}-{device}-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
                    if seen["scroll"] > max(width, seen["inner"] if device == "desk" else width):
                        print(f"error: {page}, {device}, {scheme}: {seen['scroll']} px wide on {width} px: {', '.join(seen['wide'])}")
                        bad += 1
                    for source in seen["broken"]:
                        print(f"error: {page}, {device}, {scheme}: {source} does not load")
                        bad += 1
    return bad


def main():
    site, folder = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
    pages = sys.argv[3:] or [p for p in PAGES if (site / p).exists()]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("SKIP: no Chromium: the pages are not looked at")
        return 0
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu",
                   "--hide-scrollbars", "--remote-allow-origins=*"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # which it refuses as root
        process = subprocess.Popen([chromium, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            chosen = pathlib.Path(profile, "DevToolsActivePort")
            for _ in range(600):
                if chosen.exists() and chosen.read_text().strip():
                    break
                if process.poll() is not None:
                    print("error: Chromium does not start")
                    return 1
                subprocess.run(["sleep", "0.1"], check=True)
            bad = asyncio.run(look(chosen.read_text().split()[0], site, folder, pages))
        finally:
            process.terminate()
            process.wait()
    print(f"{len(pages)} pages, {len(list(folder.iterdir()))} pictures in {folder}, {bad} faults")
    return 1 if bad else 0


sys.exit(main())
