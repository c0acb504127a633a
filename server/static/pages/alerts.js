/** Alerts: what people were told, the newest first, and whether it reached them. */
import { useSignal } from "@preact/signals";
import { Badge, Empty, Loaded, Section, Timestamp, useTitle } from "../components/bits.js";
import { Choice, ProjectChoice } from "../components/choice.js";
import { subjectAddress } from "../components/notes.js";
import { Problem } from "../components/problem.js";
import { get, useWatched } from "../lib/api.js";
import { html } from "../lib/html.js";
import { query, setQuery } from "../lib/url-state.js";

const PAGE = 100;
const ADD = "halving alerts add team slack -";

export default function Alerts() {
  useTitle("Alerts");
  const question = new URLSearchParams({ limit: String(PAGE) });
  for (const name of ["project", "event"]) {
    const value = query.value.get(name);
    if (value) question.set(name, value);
  }
  const path = `/alerts?${question}`;
  return html`<div class="page">
    <div class="page-top"><h1>Alerts</h1></div>
    <${Tools} />
    <${Listed} key=${path} path=${path} />
  </div>`;
}

function Tools() {
  const events = useWatched("/alerts/events", { every: 0 });
  return html`<div class="journal-tools">
    <${ProjectChoice} />
    <${Choice} label="Event" name="event" values=${Object.keys(events.data.value?.events ?? {})} />
  </div>`;
}

/** @param {{path: string}} props */
function Listed({ path }) {
  const watched = useWatched(path, { every: 5000 });
  return html`<${Loaded} watched=${watched}>
    ${(/** @type {any} */ data) => html`<${List} path=${path} newest=${data.alerts} />`}<//>`;
}

/** @param {{path: string, newest: any[]}} props */
function List({ path, newest }) {
  const older = useSignal(/** @type {any[]} */ ([]));
  const isEnd = useSignal(newest.length < PAGE);
  const busy = useSignal(false);
  const problem = useSignal("");
  if (!newest.length) return html`<${NoAlerts} />`;
  const ids = new Set(newest.map((alert) => alert.id));
  const behind = older.value.filter((alert) => !ids.has(alert.id));
  // More that is new than a page: what is between is not here, so what was read before is let go.
  const meets = behind.length < older.value.length;
  const alerts = meets ? [...newest, ...behind] : newest;
  const more = async () => {
    busy.value = true;
    problem.value = "";
    try {
      const page = await get(`${path}&before=${alerts[alerts.length - 1].id}`);
      // All of it is kept, since newer alerts push others out of the first page.
      older.value = [...alerts, ...page.alerts];
      isEnd.value = page.alerts.length < PAGE;
    } catch (error) {
      problem.value = /** @type {Error} */ (error).message;
    }
    busy.value = false;
  };
  return html`<${Section} title="What was told">
      <ol class="alerts">${alerts.map((alert) => html`<${Alert} key=${alert.id} alert=${alert} />`)}</ol>
    <//>
    <${Problem} text=${problem.value} />
    ${
      !isEnd.value &&
      html`<p><button type="button" disabled=${busy.value} onClick=${more}>Show older alerts</button></p>`
    }`;
}

function NoAlerts() {
  if (query.value.get("project") || query.value.get("event")) {
    return html`<${Empty} title="No alerts of these">Nothing of this kind has happened. <button type="button"
      class="quiet small" onClick=${() => setQuery({ project: "", event: "" }, { push: true })}>Show all</button><//>`;
  }
  return html`<${Empty} title="Nothing has happened that anybody should hear of" command=${ADD}>
    Runs that crash, fall silent or diverge are listed here, and sweeps that end. Add a channel, so that people
    are told in Slack, Discord or Teams, by mail or a webhook; this reads its address from the standard input:<//>`;
}

/** @param {{alert: any}} props */
function Alert({ alert }) {
  const address = addressOf(alert);
  return html`<li>
    <span class="alert-top"><${Badge} status=${alert.level} /> <b>${alert.event}</b>
      <${Timestamp} time=${alert.at} />${alert.project && html` <span class="muted">${alert.project}</span>`}</span>
    <span class="alert-title">${address ? html`<a href=${address}>${alert.title}</a>` : alert.title}</span>
    ${alert.text && html`<p class="muted">${alert.text}</p>`}
    <span class="alert-deliveries">${
      alert.deliveries.length
        ? alert.deliveries.map(
            (/** @type {any} */ delivery) =>
              html`<span key=${delivery.channel}>${delivery.channel} <${Badge} status=${delivery.state}
                title=${delivery.error ?? undefined} />${
                  delivery.state !== "sent" && delivery.error && html` <span class="muted">${delivery.error}</span>`
                }</span>`,
          )
        : html`<span class="muted">nobody was told: no channel wanted it</span>`
    }</span>
  </li>`;
}

/** @param {any} alert */
function addressOf(alert) {
  if (alert.kind === "store") return "";
  if (alert.kind === "model") return `/models/${encodeURIComponent(alert.subject)}`;
  return subjectAddress(alert);
}
