/** The page's shell: its header, the page of the URL, the help. */
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useErrorBoundary, useLayoutEffect, useRef } from "preact/hooks";
import { KeyHelp } from "./components/key-help.js";
import { Later } from "./components/later.js";
import { Problem } from "./components/problem.js";
import { loadSession, loginNeeded, send, session } from "./lib/api.js";
import { sentence } from "./lib/format.js";
import { html } from "./lib/html.js";
import { helpOpen } from "./lib/keyboard.js";
import { navigate, path } from "./lib/router.js";
import { choice, choose, theme } from "./lib/theme.js";

/**
 * @typedef {{pattern: RegExp, names: string[], load: () => Promise<{default:
 *   import("preact").ComponentType<any>}>}} Route
 */

/**
 * A page's module is fetched when the page is opened first; `names` are its component's props, from the path.
 * PATHS in server/pages.py has the same paths and modules.
 */
const ROUTES = /** @type {Route[]} */ ([
  { pattern: /^\/$/, names: [], load: () => import("./compare/index.js") },
  { pattern: /^\/runs\/([^/]+)\/([^/]+)$/, names: ["project", "run"], load: () => import("./pages/run.js") },
  { pattern: /^\/sweeps$/, names: [], load: () => import("./pages/sweeps.js") },
  { pattern: /^\/sweeps\/([^/]+)$/, names: ["id"], load: () => import("./pages/sweep.js") },
  { pattern: /^\/models$/, names: [], load: () => import("./pages/models.js") },
  { pattern: /^\/models\/([^/]+)$/, names: ["name"], load: () => import("./pages/model.js") },
  { pattern: /^\/datasets$/, names: [], load: () => import("./pages/datasets.js") },
  { pattern: /^\/datasets\/([^/]+)$/, names: ["name"], load: () => import("./pages/dataset.js") },
  { pattern: /^\/journal$/, names: [], load: () => import("./pages/journal.js") },
  { pattern: /^\/alerts$/, names: [], load: () => import("./pages/alerts.js") },
  { pattern: /^\/login$/, names: [], load: () => import("./pages/login.js") },
]);

const SECTIONS = [
  { href: "/", name: "Compare", under: /^\/(runs\/.*)?$/ },
  { href: "/sweeps", name: "Sweeps", under: /^\/sweeps/ },
  { href: "/models", name: "Models", under: /^\/models/ },
  { href: "/datasets", name: "Datasets", under: /^\/datasets/ },
  { href: "/journal", name: "Journal", under: /^\/journal/ },
  { href: "/alerts", name: "Alerts", under: /^\/alerts/ },
];

/** What went wrong with the session: it is not known while the server is away, or could not be ended. */
const sessionError = signal("");

function App() {
  useEffect(() => {
    if (loginNeeded.value && path.value !== "/login") {
      const back = path.value + window.location.search;
      navigate(`/login?next=${encodeURIComponent(back)}`, { replace: true });
    }
  }, [loginNeeded.value, path.value]);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <${Header} />
    ${sessionError.value && html`<div class="page"><${Problem} text=${sessionError.value} /></div>`}
    <main id="main" tabindex="-1"><${Guarded} key=${path.value}><${Page} /><//></main>
    <${KeyHelp} />
  `;
}

function Header() {
  const nav = useRef(/** @type {HTMLElement | null} */ (null));
  // On a phone not all pages fit; the one that is shown does.
  useEffect(() => {
    nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [path.value]);
  return html`
    <header class="top">
      <a class="brand" href="/" aria-label="Halving, Compare">
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <rect x="1" y="2" width="14" height="3" rx="1" /><rect x="1" y="6.5" width="7" height="3" rx="1" />
          <rect x="1" y="11" width="3.5" height="3" rx="1" />
        </svg>
        <span>Halving</span>
      </a>
      <nav aria-label="Pages" ref=${nav}>
        ${SECTIONS.map(
          (section) =>
            html`<a href=${section.href} aria-current=${section.under.test(path.value) ? "page" : undefined}>
              ${section.name}</a>`,
        )}
      </nav>
      <div class="top-end">
        ${
          session.value?.dagster_url &&
          html`<a class="quiet wide-only" href=${session.value.dagster_url} target="_blank" rel="noopener">
            Dagster ↗</a>`
        }
        <button class="icon" type="button" title="Keys (?)" aria-label="Show the keys"
          onClick=${() => (helpOpen.value = true)}>?</button>
        <${ThemeButton} />
        <${Account} />
      </div>
    </header>
  `;
}

/** One button for the theme: the other one of the two, and the system's again where that is the same. */
function ThemeButton() {
  const next = theme.value === "dark" ? "light" : "dark";
  const system = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const label = `Use the ${next} theme`;
  return html`
    <button class="icon" type="button"
      title=${label} aria-label=${label} data-choice=${choice.value} onClick=${() =>
        choose(next === system ? "system" : next)}>
      <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        ${
          next === "light"
            ? html`<circle cx="8" cy="8" r="3" />
              <path d="M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6 13 13M3 13l1.4-1.4M11.6 4.4 13 3"
                class="stroke" />`
            : html`<path d="M13.5 10.2A6 6 0 0 1 5.8 2.5a6 6 0 1 0 7.7 7.7z" />`
        }
      </svg>
    </button>
  `;
}

function Account() {
  const caller = session.value;
  if (!caller?.auth) return null;
  const leave = async () => {
    try {
      await send("/session", undefined, { method: "DELETE" });
    } catch (error) {
      const { status, message } = /** @type {import("./lib/api.js").ApiError} */ (error);
      if (status !== 401) {
        sessionError.value = `You are still logged in: ${message}`;
        return;
      }
    }
    sessionError.value = "";
    session.value = null;
    loginNeeded.value = true;
  };
  return html`<span class="actor wide-only" title=${`may ${caller.scopes.join(", ")}`}>${caller.actor}</span>
    <button class="quiet" type="button" onClick=${leave}>Log out</button>`;
}

/**
 * A page that breaks leaves the header, and says what to do.
 * @param {{children: import("./lib/html.js").Children}} props
 */
function Guarded({ children }) {
  const [broken] = useErrorBoundary((error) => console.error(error));
  if (!broken) return html`${children}`;
  return html`<div class="page">
    <h1>This page broke</h1>
    <${Problem} text=${`The page made an error: ${broken.message ?? broken}`} />
    <p>Nothing that is stored is touched by
      it. <button type="button" onClick=${() => window.location.reload()}>Load it again</button> or go
      to <a href="/">all runs</a>.</p>
  </div>`;
}

function Page() {
  const here = path.value;
  const { route, props } = placeOf(here) ?? {};
  useLayoutEffect(() => {
    document.title = "Halving";
  }, []);
  if (!route)
    return html`<div class="page"><h1>Nothing is here</h1>
    <p>There is no page ${here}. <a href="/">All runs</a></p></div>`;
  return html`<${Later} load=${() => route.load().then((module) => module.default)} props=${props} />`;
}

/** The page of a path, and what it is of; null where there is none. @param {string} here */
function placeOf(here) {
  const route = ROUTES.find((candidate) => candidate.pattern.test(here));
  if (!route) return null;
  const match = route.pattern.exec(here) ?? [];
  try {
    return {
      route,
      props: Object.fromEntries(
        route.names.map((name, index) => [name, decodeURIComponent(match[index + 1] ?? "")]),
      ),
    };
  } catch {
    return null; // a cut link: `%E0%A4%A` is no text
  }
}

function start() {
  loadSession().then(
    () => (sessionError.value = ""),
    (error) => {
      if (error.status === 401 || error.status === 404) return;
      sessionError.value = `${sentence(error.message)} Retrying.`;
      setTimeout(start, 5000);
    },
  );
}

/** Links that MLflow's clients print have a page of MLflow's own behind their #. */
async function follow() {
  if (!window.location.hash.startsWith("#/")) return;
  const { placeOf: meant } = await import("./lib/mlflow-links.js");
  navigate(await meant(window.location.hash), { replace: true });
}

start();
follow();
addEventListener("hashchange", follow);
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
