"""What a user of a page feels, in headless Chromium: ``python -m bench.web``.

Three measurements, each for itself (``--only``):

- ``first``: from navigation to the first embedding, scripts, wasm and weights coming from a
  warm HTTP cache; median of fresh navigations.
- ``typing``: the search demo, from key to results, alone and while its bulk job runs.
- ``streams``: tokens a second of 8 generations at 1 thread, one after another and at once.

The models are those of the demos, in ``artifacts/``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from demo.serve_web import serving
from tests.js.hosts import chromium_browser

SERVED = {"/bench": Path(__file__).parent}
READY = "globalThis.measure !== undefined"
NAVIGATIONS = 9
KEY_MS = 70
QUERIES = [
    "how do birds find their way in the dark",
    "the fastest animal of all",
    "a nest that many families share",
]


def verdict(name: str, value: float, bar: float, unit: str = "", *, most: bool = True) -> str:
    good = value <= bar if most else value >= bar
    return f"{name} {value:.2f}{unit} (bar {bar}{unit}: {'ok' if good else 'MISSED'})"


def first_embedding(browser: Any) -> None:
    with serving(SERVED, cache="public, max-age=3600") as origin:
        page = browser.new_context().new_page()
        found = []
        for _ in range(NAVIGATIONS + 2):  # two to warm the caches, compiled code included
            page.goto(f"{origin}/bench/page.html")
            page.wait_for_function(READY)
            found.append(
                page.evaluate("(a) => measure.firstEmbedding(a)", f"{origin}/artifacts/minilm/")
            )
        page.context.close()
    parts = {k: median(f[k] for f in found[2:]) for k in ("scripts", "load", "embed", "total")}
    print("first embedding, warm HTTP cache, median of", NAVIGATIONS)
    print("  cold:", ", ".join(f"{k} {found[0][k]:.0f} ms" for k in parts))
    print("  warm:", ", ".join(f"{k} {v:.0f} ms" for k, v in parts.items()))
    print(" ", verdict("after navigation", parts["total"] / 1000, 0.5, " s"))
    print(" ", verdict("load", parts["load"] / 1000, 0.3, " s"))


def typing(browser: Any) -> None:
    with serving(SERVED) as origin:
        page = browser.new_context().new_page()
        page.goto(f"{origin}/web/search/")
        page.wait_for_selector("#query:enabled")

        def typed() -> None:
            for query in QUERIES:
                page.keyboard.press("Control+A")
                page.keyboard.type(query, delay=KEY_MS)

        page.keyboard.type(QUERIES[0], delay=10)  # warms up
        page.evaluate("voleryDemo.samples.idle.length = 0")
        typed()
        page.keyboard.press("Alt+KeyB")
        page.wait_for_function("voleryDemo.model.stats().queuedSeqs > 8")
        typed()
        samples = page.evaluate("voleryDemo.samples")
        rate = page.inner_text("#bulk-status")
        page.context.close()
    idle, busy = (sorted(samples[kind]) for kind in ("idle", "busy"))
    print(f"typing in the search demo, {len(idle)} and {len(busy)} keys")
    for name, times in (("alone", idle), ("beside the bulk job", busy)):
        tail = times[int(0.95 * len(times))]
        print(f"  {name}: median {median(times):.1f} ms, p95 {tail:.1f} ms")
    print("  bulk job:", rate)
    ratio = busy[int(0.95 * len(busy))] / idle[int(0.95 * len(idle))]
    print(" ", verdict("p95 : p95", ratio, 2))


def streams(browser: Any) -> None:
    count, tokens, rounds = 8, 24, 2
    with serving(SERVED) as origin:
        page = browser.new_context().new_page()
        page.set_default_timeout(120_000)
        page.goto(f"{origin}/bench/page.html")
        page.wait_for_function(READY)
        options = {"count": count, "tokens": tokens, "rounds": rounds}
        found = page.evaluate(
            "([a, options]) => measure.streams(a, options)",
            [f"{origin}/artifacts/smollm2/", options],
        )
        page.context.close()
    alone, together = median(found["alone"]), median(found["together"])
    print(f"{count} streams of {tokens} tokens, 1 thread, steps of up to {found['batch']}")
    print(f"  one after another {alone:.1f} tokens/s, at once {together:.1f}")
    print(f"  texts equal: {found['equal']}")
    ratio = median(t / a for t, a in zip(found["together"], found["alone"], strict=True))
    print(" ", verdict("at once : one after another", ratio, 3, most=False))


MEASUREMENTS = {"first": first_embedding, "typing": typing, "streams": streams}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure Volery in a page of Chromium.")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append")
    asked = parser.parse_args().only or list(MEASUREMENTS)
    with chromium_browser() as browser:
        for name in asked:
            MEASUREMENTS[name](browser)


if __name__ == "__main__":
    main()
