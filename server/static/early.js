// Before the first paint: the theme that was chosen here. The page starts without it, so storage may be
// closed to us.
try {
  const chosen = localStorage.getItem("halving.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser without storage has the theme of its system.
}

// A browser does not ask again for a module that did not come (the server was restarted, the network
// changed): nothing would ever be shown.
addEventListener(
  "error",
  (event) => {
    const app = document.getElementById("app");
    if (!(event.target instanceof HTMLScriptElement) || !app || app.hasChildNodes()) return;
    const text = "The page could not be loaded: the server, or the network, did not answer. Trying again.";
    app.append(
      Object.assign(document.createElement("p"), { className: "problem", role: "alert", textContent: text }),
    );
    setTimeout(() => location.reload(), 2000);
  },
  true, // a script's errors do not bubble
);

// Compare is opened most: its first runs and names are asked for before its modules are read, in the words of
// compare/runs.js and names.js; lib/api.js hands the answers out.
const base = document.documentElement.dataset.base ?? ""; // as lib/base.js has it
if ([base, `${base}/`].includes(location.pathname)) {
  const query = new URLSearchParams(location.search);
  const runs = new URLSearchParams({ limit: "200" });
  if (query.get("filter")) runs.set("filter", query.get("filter") ?? "");
  const columns = new Set(
    [...(query.get("columns") ?? "").split(","), query.get("group") ?? ""].filter(Boolean),
  );
  if (columns.size) runs.set("columns", [...columns].join(","));
  if (!query.get("filter") && !columns.size) runs.set("first_view", "true");
  const names = new URLSearchParams({ limit: "20000" });
  if (query.get("filter")) names.set("filter", query.get("filter") ?? "");
  const paths = ["/session", `/runs?${runs}&offset=0`, `/runs/columns?${names}`];
  const fetched = paths.map((path) =>
    fetch(`${base}/api/v1${path}`, {
      credentials: "same-origin",
      cache: "no-store",
      headers: { Accept: "application/json" },
    }),
  );
  const answers = new Map(paths.map((path, index) => [path, fetched[index]?.catch(() => null)]));
  Object.assign(window, { early: { answers, bodies: new WeakMap(), curves: [], taken: false } });
  import("./compare/first-curves.js").catch(() => {}); // without it the page asks a little later
}

// Then all modules that the page needs, as the server has found them: none waits until another one was read.
// They come last, because a browser has few connections, and what the server has to work for is asked for
// first.
for (const href of document.currentScript?.dataset.modules?.split(" ") ?? []) {
  document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
}
