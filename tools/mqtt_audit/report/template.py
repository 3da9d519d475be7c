"""The report's page: what stands where, how it looks, and the script that searches and sorts.

Knows: HTML. Must not know: tables.

The page allows no script but this one, by its hash: what came from the wire is escaped, and if it
were not, a browser would not run it.
"""

import base64
import hashlib

SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, k) => {
    const text = row.cells[k].textContent.trim(), number = Number(text.replaceAll(",", ""));
    return text === "" || isNaN(number) ? text : number;
  };
  heads.forEach((head, k) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => {
        const x = value(a, k), y = value(b, k);
        const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0)
          : typeof x === "number" ? -1 : 1;
        return down ? -order : order;
      });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
  if (rows.length < 6) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "search in " + rows.length + " rows";
  box.setAttribute("aria-label", box.placeholder);
  box.addEventListener("input", () => {
    const word = box.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  });
  table.parentNode.before(box);
}
"""
HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
          f"script-src 'sha256-{HASH}'")  # fmt: skip

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Wire audit</title>
<meta http-equiv="Content-Security-Policy" content="{{ policy }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
 :root { color-scheme: light dark; --line: #8885; --bad: #b00020; --soft: #8881 }
 @media (prefers-color-scheme: dark) { :root { --bad: #ff6b81 } img { filter: invert(1)
   hue-rotate(180deg) } }
 body { font: 15px/1.45 system-ui, sans-serif; margin: 1.5em auto; max-width: 80em;
   padding: 0 1em }
 h2 { margin: 1.6em 0 .4em }
 .wide { overflow: auto; max-height: 36em }
 .figures { display: flex; flex-wrap: wrap; gap: 1em; align-items: flex-start }
 .figures img { flex: 1 1 22em; min-width: 0 }
 table { border-collapse: collapse; width: 100%; font-size: 14px }
 th, td { padding: .25em .6em; text-align: right; vertical-align: top; white-space: nowrap }
 th { border-bottom: 2px solid var(--line); cursor: pointer; position: sticky; top: 0;
   background: Canvas }
 th[aria-sort=ascending]::after { content: " \\2191" }
 th[aria-sort=descending]::after { content: " \\2193" }
 td { border-bottom: 1px solid var(--line) }
 .l, .k { text-align: left }
 td.l { white-space: normal; overflow-wrap: anywhere; min-width: 11em; unicode-bidi: isolate }
 .bad { color: var(--bad); font-weight: 600 }
 img { max-width: 100% }
 input { font: inherit; padding: .3em .6em; margin-bottom: .5em; width: 18em; max-width: 100%;
   box-sizing: border-box }
 .finding { border-left: 4px solid var(--bad); background: var(--soft); padding: .5em .9em;
   margin: .6em 0; overflow-wrap: anywhere }
 .finding p { margin: .2em 0 } .rule { opacity: .75; font-size: 14px }
</style></head><body>
<h1>Wire audit</h1>
<p>Files: {{ files|length }}. {{ counted(frames, "frame") }},
{{ counted(packets, "MQTT packet") }}, {{ counted(connections, "connection") }},
{{ counted(flows, "message") }} of QoS 1 and 2.</p>
{% if not packets %}<p class="bad">No MQTT was found{% if cut %} in what the capture has: it kept
only the beginning of {{ counted(cut, "frame") }}. Capture whole frames (tcpdump -s 0){% endif %}.
Brokers are those on port
{{ ports|join(", ") }} and whoever is sent a CONNECT; others, of connections that began before the
capture, are found by --port.{% if not frames %} The captures have no frames at all.{% endif %}</p>
{% endif %}
<h2>Findings</h2>
{% for f in findings %}<div class="finding"><p><b>{{ f.finding }}</b>: {{ f.who }} at
{{ f.broker }}, {{ f.what }}</p>
<p>{{ f.first }} to {{ f.last }} UTC; frames {{ f.frames }}</p>
<p class="rule">Rule: {{ f.rule }}.</p></div>
{% else %}<p>None by the rules of the reference.</p>{% endfor %}
{% if hidden %}<p>{{ "{:,}".format(hidden) }} more {{ "is" if hidden == 1 else "are" }} in the
table.</p>{% endif %}
{% if violations %}<p class="bad">A rule of the protocol was broken
{{ "once" if violations == 1 else "{:,} times".format(violations) }}: see Violations.</p>
{% endif %}
{% if over_time %}<h2>Time line</h2><div class="figures">
{{ figure(over_time, "packets over time") }}{{ figure(types, "packets by type") }}</div>{% endif %}
{% for list in broken + lists %}{{ table(list) }}{% endfor %}
{% if latency %}<h2>How long acknowledgements took</h2><div class="figures">
{{ figure(latency, "latency") }}{{ figure(outcomes, "messages by outcome") }}</div>{% endif %}
{% for list in rest %}{{ table(list) }}{% endfor %}
<script>{{ script }}</script></body></html>
"""
TABLE = """{% macro counted(n, what) %}{{ "{:,}".format(n) }} {{ what }}
{{- "" if n == 1 else "s" }}{% endmacro %}
{% macro figure(png, alt) %}<img alt="{{ alt }}" src="data:image/png;base64,{{ png }}">
{%- endmacro %}
{% macro cell(tag, text, kind) %}<{{ tag }}{% if kind %} class="{{ kind }}"{% endif %}>
{{- text }}</{{ tag }}>{% endmacro %}
{% macro table(list) %}{% set title, head, rows = list %}{% if rows %}
<h2>{{ title }}</h2><div class="wide"><table><thead><tr>
{% for h, kind in head %}{{ cell("th", h, kind) }}{% endfor %}</tr></thead><tbody>
{% for row in rows %}<tr>{% for text, kind in row %}{{ cell("td", text, kind) }}{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% endif %}{% endmacro %}"""
