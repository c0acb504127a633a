/**
 * Points and changes of runs while they train: one stream for everything that a page shows, for a browser
 * allows six connections.
 */
import { request } from "./api.js";
import { parsed } from "./json.js";

const RETRY_MS = [500, 1000, 2000, 5000];
const SILENT_MS = 45_000; // the server says something every 15 s

/**
 * @typedef {{run: string, key: string, x: number[], t: number[], value: (number | string)[], attempt:
 *   number}} Points
 */
/**
 * @typedef {{onPoints?: (points: Points) => void, onRun?: (row: any) => void, onState?: (live: boolean,
 *   reason?: string) => void, onReady?: () => void, onResync?: (run: string | undefined) => void}} Listener
 */

/**
 * Listen; a stream that breaks is taken up where it broke.
 *
 * It is read with `fetch`, because an `EventSource` neither names its cursor in its first request nor says
 * why a server refused it.
 * @param {string} path such as `/live?run=…&key=…`
 * @param {Listener} listener
 * @returns {() => void} stops listening
 */
export function listen(path, listener) {
  const stop = new AbortController();
  void follow(path, listener, stop.signal);
  return () => stop.abort();
}

/**
 * @param {string} path
 * @param {Listener} listener
 * @param {AbortSignal} signal
 */
async function follow(path, listener, signal) {
  let cursor = "";
  let failures = 0;
  while (!signal.aborted) {
    let reason = "the stream broke off";
    const silent = new AbortController();
    let alarm = 0;
    const heard = () => {
      clearTimeout(alarm);
      alarm = window.setTimeout(() => silent.abort(), SILENT_MS);
    };
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "text/event-stream" };
      if (cursor) headers["Last-Event-ID"] = cursor;
      heard();
      const response = await request(path, {
        headers,
        signal: AbortSignal.any([signal, silent.signal]),
        cache: "no-store",
      });
      if (!response.body) return;
      listener.onState?.(true);
      for await (const event of events(response.body, heard)) {
        failures = 0;
        if (event.id) cursor = event.id;
        if (event.type === "points") listener.onPoints?.(JSON.parse(event.data));
        if (event.type === "ready") listener.onReady?.();
        if (event.type === "resync") listener.onResync?.(JSON.parse(event.data).run);
        if (event.type === "run") listener.onRun?.(parsed(event.data));
      }
    } catch (error) {
      if (signal.aborted) return;
      reason = error instanceof Error ? error.message : String(error);
      if (silent.signal.aborted) reason = "the stream fell silent";
      const status = /** @type {{status?: number}} */ (error).status ?? 0;
      if (status >= 400 && status < 500 && status !== 429) {
        listener.onState?.(false, reason);
        return; // asking again would be refused again
      }
    } finally {
      clearTimeout(alarm);
    }
    listener.onState?.(false, reason);
    const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? 0;
    failures += 1;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      signal.addEventListener("abort", () => (clearTimeout(timer), resolve(null)), { once: true });
    });
  }
}

/**
 * Server-sent events of a body.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body
 * @param {() => void} heard called when something came
 */
async function* events(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = { type: "message", id: "", data: "" };
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    text += value;
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const rawLine of lines) {
      const line = rawLine.replace(/\r$/, "");
      if (line === "") {
        if (event.data) yield { ...event, data: event.data.slice(0, -1) };
        event = { type: "message", id: event.id, data: "" };
      } else if (line.startsWith("event:")) event.type = line.slice(6).trim();
      else if (line.startsWith("id:")) event.id = line.slice(3).trim();
      else if (line.startsWith("data:")) event.data += `${line.slice(5).replace(/^ /, "")}\n`;
    }
  }
}
