"""The page's style sheet: light and dark, wide and narrow, screen and paper."""

# Passed and failed are blue-green and vermilion, which colour-blind readers tell apart, and say
# nothing that numbers or words do not say as well.
STYLE = """
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #fff; --ink: #1b2330; --soft: #5c6778; --line: #dfe3ea; --band: #f5f7fa;
  --good: #0c7c6d; --good-ink: #0a6458; --good-tint: 12 124 109;
  --bad: #c8401a; --bad-ink: #b03511; --bad-tint: 208 70 30;
  --warn: #9a6700; --warn-tint: 214 160 40;
  --f32: #2f6fcb; --f16: #b86a00; --bf16: #8347b8; --other: #5c6778;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10141a; --card: #181e27; --ink: #e3e8ef; --soft: #97a3b4; --line: #2c3542;
    --band: #1d2430; --good: #35b8a4; --good-ink: #5fd0be; --good-tint: 40 170 150;
    --bad: #f0754d; --bad-ink: #ff9472; --bad-tint: 235 100 60;
    --warn: #e0ac3f; --warn-tint: 200 150 50;
    --f32: #6ea8f7; --f16: #e8a04a; --bf16: #bf8df0; --other: #97a3b4;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 0 0 4px; }
p { margin: 0 0 12px; }
.soft, .note { color: var(--soft); }
.note { font-size: 13px; max-width: 86ch; }
code { overflow-wrap: anywhere;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.kicker { font-size: 12px; letter-spacing: .08em; text-transform: uppercase; color: var(--soft); }
header { border-left: 6px solid var(--good); padding: 4px 0 4px 18px; margin-bottom: 20px; }
header.failed { border-color: var(--bad); }
header.partly { border-color: var(--warn); }
header.failed h1 { color: var(--bad-ink); }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 10px 0 0; font-size: 14px; }
a { color: inherit; text-decoration-color: var(--soft); text-underline-offset: 3px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 20px 22px; margin-bottom: 18px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(138px, 1fr)); gap: 1px;
  background: var(--line); border: 1px solid var(--line); border-radius: 10px; overflow: hidden;
  margin-bottom: 18px; }
.figure { background: var(--card); padding: 14px 16px; }
.figure b { display: block; font-size: 22px; line-height: 1.2; font-weight: 650;
  font-variant-numeric: tabular-nums; }
.figure span { color: var(--soft); font-size: 13px; }
.alarm b { color: var(--bad-ink); }
.facts { display: grid; gap: 8px 40px;
  grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); }
dl { display: grid; grid-template-columns: 8.5em 1fr; gap: 3px 12px; margin: 8px 0 0;
  font-size: 14px; align-content: start; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px;
  font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 550; color: var(--soft); font-size: 12.5px; }
th, td { padding: 4px 8px; border-bottom: 1px solid var(--line); vertical-align: middle; }
thead th { vertical-align: bottom; white-space: nowrap; }
tbody th { color: var(--ink); font-size: 13.5px; white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
.right { text-align: right; }
.good { color: var(--good-ink); }
.bad { color: var(--bad-ink); font-weight: 650; }
.warn { color: var(--warn); }
.variant { color: var(--soft); font-weight: 400; }
.dtype { font-weight: 600; }
.f32 { color: var(--f32); } .f16 { color: var(--f16); } .bf16 { color: var(--bf16); }
.other { color: var(--other); }
.heat td { text-align: center; padding: 4px 2px; border: 2px solid var(--card);
  border-radius: 6px; }
.heat thead th { padding: 4px 2px; text-align: center; }
.heat thead span { display: inline-block; writing-mode: vertical-rl; transform: rotate(180deg);
  font-weight: 500; }
.heat tbody th { border: 0; padding-left: 0; }
.heat .held { background: rgb(var(--good-tint) / calc(.12 + .3 * var(--weight))); }
.heat .broke { background: rgb(var(--bad-tint) / calc(.3 + .6 * var(--weight))); font-weight: 700; }
.heat .known { background: rgb(var(--warn-tint) / calc(.25 + .3 * var(--weight))); }
.heat .out { color: var(--soft); background: var(--band); }
.heat .sum { font-weight: 600; }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin: 0 4px 0 12px;
  vertical-align: -1px; }
.key:first-child { margin-left: 0; }
svg { display: block; max-width: 100%; }
svg text { fill: var(--ink); font-size: 12px; }
svg .small { fill: var(--soft); font-size: 11px; }
svg .grid { stroke: var(--line); }
svg .limit { stroke: var(--bad); stroke-width: 1.5; }
svg .beyond { fill: rgb(var(--bad-tint) / .08); }
svg .outside { fill: var(--bad); }
svg .mark { fill: currentColor; fill-opacity: .55; }
svg .box { fill: currentColor; fill-opacity: .18; stroke: currentColor; stroke-opacity: .6; }
svg .median { stroke: currentColor; stroke-width: 2; }
svg .bar { fill: currentColor; fill-opacity: .75; }
.strip { display: grid; grid-template-columns: 318px 1fr; padding: 2px 0; }
.strip:nth-child(even) { background: var(--band); }
.strip .name { font-size: 12.5px; padding: 0 8px 0 4px; overflow-wrap: anywhere; }
.line { display: grid; grid-template-columns: 38px 1fr; align-items: center; }
.line .dtype { font-size: 12px; }
.line svg { overflow: visible; }
.strips .axis { background: none; }
.group { border-top: 1px solid var(--line); padding: 10px 0; margin-top: 8px; }
.group p { margin: 2px 0 4px; font-size: 13.5px; }
h3 { margin: 0; font-size: 15px; font-weight: 600; overflow-wrap: anywhere; }
.failure { padding: 6px 0; }
summary { cursor: pointer; font-size: 13.5px; color: var(--soft); }
.failure ul, .cases, .reasons { margin: 4px 0 6px; padding-left: 20px; font-size: 13.5px;
  overflow-wrap: anywhere; }
.reasons { margin-top: 12px; }
.coverage td { vertical-align: top; overflow-wrap: anywhere; }
.coverage .share { white-space: nowrap; }
.coverage th { vertical-align: top; }
.coverage span { display: block; }
.pairs thead th { text-align: right; }
.pairs thead th:first-child, .pairs thead th:nth-child(2), .pairs thead th:nth-child(3) {
  text-align: left; }
.pairs td div { line-height: 1.35; white-space: nowrap; }
.worst { min-width: 12em; }
.bars svg { max-width: none; }
.command { display: block; background: var(--band); border: 1px solid var(--line);
  border-radius: 6px; padding: 5px 10px; user-select: all; }
.sources { padding: 0; margin: 0; list-style: none; }
.sources li { color: var(--soft); min-width: 15em; }
.sources li.agrees { color: var(--good-ink); font-weight: 600; }
.sources li.agrees.warn { color: var(--warn); }
@media (max-width: 760px) {
  main { padding: 16px 10px 40px; }
  section { padding: 14px 12px; }
  h1 { font-size: 21px; }
  .facts { grid-template-columns: 1fr; }
  .strip { grid-template-columns: 1fr; }
  svg .odd { display: none; }
  .cards thead, .heat thead, .coverage thead { display: none; }
  .cards, .cards tbody, .heat, .heat tbody, .coverage, .coverage tbody { display: block; }
  .cards tr, .heat tr, .coverage tr { display: flex; flex-wrap: wrap; gap: 3px 12px;
    padding: 7px 0; border-bottom: 1px solid var(--line); align-items: baseline; }
  .cards th, .heat th, .coverage th { flex-basis: 100%; padding: 0; border: 0;
    white-space: normal; overflow-wrap: anywhere; }
  .cards td, .coverage td { padding: 0; border: 0; text-align: left; min-width: 0; }
  .heat td { padding: 2px 7px; font-size: 12.5px; }
  .heat td:empty { display: none; }
  .heat tr { gap: 3px; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--soft); font-weight: 400; }
  .cards th { order: -1; }
  .cards .bars { flex-basis: 100%; order: 1; }
  .cards .worst { flex-basis: 100%; order: 2; }
  .pairs td { font-size: 12.5px; }
}
@media print { body { background: none; } section { break-inside: avoid; border: 0; padding: 0; } }
""".strip()
