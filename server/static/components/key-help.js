/** The help: the keys of what is shown now. */
import { html } from "../lib/html.js";
import { helpOpen, shortcuts } from "../lib/keyboard.js";
import { Dialog } from "./dialog.js";

export function KeyHelp() {
  if (!helpOpen.value) return null;
  const byKeys = new Map(shortcuts.value.map((shortcut) => [shortcut.keys, shortcut]));
  return html`
    <${Dialog} title="Keys" onClose=${() => (helpOpen.value = false)}>
      <dl class="keys">
        ${[...byKeys.values()].map(
          (shortcut) =>
            html`<div><dt>${shortcut.keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt>
              <dd>${shortcut.does}
              </dd></div>`,
        )}
        <div><dt><kbd>Esc</kbd></dt><dd>close this</dd></div>
      </dl>
    <//>
  `;
}
