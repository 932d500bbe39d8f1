"""How the report page looks."""

CSS = """
:root { --ink: #22262b; --soft: #68707a; --line: #e4e7ea; --ours: #d1495b; --tint: #fcf1f2; }
* { box-sizing: border-box; }
body { margin: 0; background: #f6f7f8; color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2.2rem 1.4rem 4rem; }
h1 { font-size: 1.7rem; letter-spacing: -0.01em; margin: 0 0 .4rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem; }
.lead { font-size: 1.12rem; margin: 0 0 1.4rem; max-width: 62ch; }
.small { color: var(--soft); font-size: .85rem; max-width: 80ch; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr));
  gap: .6rem 1.4rem; margin: 0; }
.facts dt { color: var(--soft); font-size: .78rem; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; background: #fff; border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: .88rem; }
th, td { padding: .42rem .7rem; text-align: right; white-space: nowrap; }
th:first-child, .name { text-align: left; }
th:first-child { font-weight: 600; }
thead th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
tbody tr + tr > * { border-top: 1px solid var(--line); }
.ours > * { background: var(--tint); }
.bar { display: inline-block; width: 5rem; height: .6rem; margin-right: .6rem;
  background: #eef0f2; border-radius: 3px; overflow: hidden; vertical-align: baseline; }
.bar i { display: block; height: 100%; background: #9aa5b1; }
.ours .bar i { background: var(--ours); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: .8rem; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .4rem; }
@media (max-width: 32rem) { .plots { grid-template-columns: 1fr; } }
"""
