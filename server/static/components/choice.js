/** Choices that stand in the address: whoever opens the link sees the same. */
import { useWatched } from "../lib/api.js";
import { html } from "../lib/html.js";
import { query, setQuery } from "../lib/url-state.js";

/** @param {{label: string, name: string, values: string[]}} props name: in the address; empty: all */
export function Choice({ label, name, values }) {
  return html`<label>${label} <select value=${query.value.get(name) ?? ""}
    onChange=${(/** @type {any} */ event) => setQuery({ [name]: event.target.value }, { push: true })}>
    <option value="">all</option>
    ${values.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}
  </select></label>`;
}

/** A choice of the projects that have runs. */
export function ProjectChoice() {
  const projects = useWatched("/runs/groups?by=project", { every: 0 });
  const chosen = query.value.get("project") ?? "";
  const names = new Set(
    (projects.data.value?.groups ?? []).map((/** @type {any} */ group) => String(group.key.project)),
  );
  if (chosen) names.add(chosen);
  return html`<${Choice} label="Project" name="project" values=${[...names].sort()} />`;
}
