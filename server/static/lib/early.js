// Before the first paint: the theme that was chosen here. The page starts without it, so storage may be closed to us.
try {
  const chosen = localStorage.getItem("halving.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser without storage has the theme of its system.
}

// Compare is opened most: its modules are asked for at once, not one after the other as each is read.
if (location.pathname === "/") {
  const compare = ["index", "choosers", "curve-store", "diff", "filter-line", "group-table", "live", "media", "names", "panel", "panels", "parameters", "run-table", "runs", "toolbar", "view"];
  const charts = ["axis", "curves", "draw-curves", "line-chart", "parallel-coordinates", "ramp", "scatter-plot", "statistics", "theme", "ticks"];
  const lib = ["colours", "format", "html", "keyboard", "live", "theme", "url-state"];
  const files = [...compare.map((name) => `/compare/${name}.js`), ...charts.map((name) => `/charts/${name}.js`), ...lib.map((name) => `/lib/${name}.js`), "/vendor/uplot.js"];
  for (const href of files) document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));

  // And the first runs and the names, in the words of compare/runs.js and names.js; lib/api.js hands them out.
  const asked = new URLSearchParams(location.search);
  const runs = new URLSearchParams({ limit: "200" });
  for (const name of ["filter", "columns"]) if (asked.get(name)) runs.set(name, asked.get(name) ?? "");
  const paths = ["/session", `/runs?${runs}&offset=0`, "/runs/columns?limit=20000"];
  const fetched = paths.map((path) => fetch(`/api/v1${path}`, { credentials: "same-origin", cache: "no-store", headers: { Accept: "application/json" } }));
  Object.assign(window, { early: new Map(paths.map((path, index) => [path, fetched[index]?.catch(() => null)])) });
}
