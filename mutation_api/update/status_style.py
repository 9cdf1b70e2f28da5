"""The style of the status page: light and dark as the reader's system has it, no fonts from elsewhere."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root {
  --ink: #1b2333; --dim: #667085; --line: #e6e9ef; --paper: #ffffff; --back: #f3f5f8; --soft: #f8f9fb;
  --ins: #17936f; --upd: #3f74d8; --del: #d9485f; --lag: #c77d0a; --base: #c3cad6;
  --ok: #0e7a52; --ok-back: #e3f5ec; --bad: #b42318; --bad-back: #fdeceb;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e7eaf0; --dim: #97a1b3; --line: #2a3241; --paper: #161b25; --back: #0e121a; --soft: #1b212d;
    --ins: #35b58b; --upd: #6b9bf2; --del: #ef6f83; --lag: #e0a03a; --base: #475266;
    --ok: #5ad1a0; --ok-back: #12301f; --bad: #ff8a80; --bad-back: #3a1917;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 60px; }
h1 { font-size: 24px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 20px; margin: 0; display: flex; align-items: center; gap: 10px; flex-wrap: wrap; }
h3 { font-size: 14px; margin: 30px 0 10px; font-weight: 650; }
.sub { color: var(--dim); }
section {
  background: var(--paper); border: 1px solid var(--line); border-radius: 14px; padding: 24px 28px;
  margin-top: 22px; box-shadow: 0 1px 3px rgba(16, 24, 40, .05);
}
.pill { font-size: 12px; font-weight: 600; padding: 2px 10px; border-radius: 99px; }
.pill.ok { color: var(--ok); background: var(--ok-back); }
.pill.bad { color: var(--bad); background: var(--bad-back); }
.cards { display: grid; gap: 12px; margin-top: 18px; }
.cards { grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); }
.card { background: var(--soft); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.card b { display: block; font-size: 23px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); font-size: 13px; }
.note { border-radius: 8px; padding: 8px 12px; margin: 14px 0 0; }
.note.bad { color: var(--bad); background: var(--bad-back); }
.note.ok { color: var(--ok); background: var(--ok-back); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--dim); font-weight: 500; font-size: 13px; }
td, th { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
tbody tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; }
svg.chart { width: 100%; height: auto; display: block; }
svg.chart text { fill: var(--dim); font-size: 12px; font-variant-numeric: tabular-nums; }
svg.bar { width: 100%; min-width: 120px; height: 10px; display: block; border-radius: 3px; }
.grid { stroke: var(--line); }
rect.ins, i.ins { fill: var(--ins); background: var(--ins); }
rect.upd, i.upd { fill: var(--upd); background: var(--upd); }
rect.del, i.del { fill: var(--del); background: var(--del); }
rect.base, i.base { fill: var(--base); background: var(--base); }
.lag { fill: none; stroke: var(--lag); stroke-width: 2; stroke-linejoin: round; }
.lag-area { fill: var(--lag); opacity: .12; }
.lag-dots { fill: var(--lag); }
.key { display: flex; gap: 16px; font-size: 13px; color: var(--dim); margin-bottom: 4px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
.bad { color: var(--bad); }
.ok { color: var(--ok); }
code { font: 13px ui-monospace, monospace; word-break: break-all; }
"""
