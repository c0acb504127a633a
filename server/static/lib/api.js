/**
 * Asking the server: its errors as one clear sentence, and answers that are only fetched again when they are
 * new.
 */
import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { here } from "./base.js";
import { sentence, time } from "./format.js";
import { parsed } from "./json.js";

const API = here("/api/v1");
const RETRY_SECONDS = 5;
const MAX_RETRY_SECONDS = 60;
const AWAY = "the server does not answer: is halving serve still running?";

/**
 * @typedef {{actor: string, scopes: string[], projects: string[] | null, dagster_url: string | null, auth:
 *   boolean, csrf: string | null}} Session
 */

/** Who looks at the page; null until it is known, and where the server wants a login first. */
export const session = signal(/** @type {Session | null} */ (null));

/** Whether the server wants a login before it shows anything. */
export const loginNeeded = signal(false);

/** An error that the server explained, or that kept it from answering (status 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} detail
   * @param {{column?: number | undefined, retry?: number | undefined}} [more]
   */
  constructor(status, detail, { column, retry } = {}) {
    super(detail);
    this.name = "ApiError";
    this.status = status;
    /** Of a filter: where it is wrong, from 1. */
    this.column = column;
    /** Seconds after which to try again. */
    this.retry = retry;
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/**
 * One request; the answer as it comes, which is below 400.
 * @param {string} path below /api/v1
 * @param {RequestInit} [options]
 * @throws {ApiError}
 */
export async function request(path, options = {}) {
  const asker = session.peek();
  let response;
  try {
    response =
      (await earlyAnswer(path)) ?? (await fetch(API + path, { credentials: "same-origin", ...options }));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, AWAY);
  }
  if (response.ok || response.status === 304) return response;
  const error = await problem(response);
  // What was asked before a login says nothing of it.
  if (error.status === 401 && asker === session.peek()) loginNeeded.value = true;
  throw error;
}

/**
 * What an answer says.
 * @param {Response} response
 * @returns {Promise<any>}
 * @throws {ApiError} it broke off, because the server or the connection ended
 */
export async function jsonOf(response) {
  try {
    return await (early?.bodies.get(response) ?? response.text().then(parsed));
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, AWAY);
  }
}

/**
 * What `early.js` and `compare/first-curves.js` have asked before this module was there; each answer is
 * handed out once.
 * @typedef {object} Early
 * @property {Map<string, Promise<Response | null>>} answers by path; null where there was none
 * @property {WeakMap<Response, Promise<any>>} bodies those that were read already
 * @property {{question: any, answer: Promise<Response | null>}[]} curves what Compare has asked, which alone
 *   knows these questions
 * @property {boolean} taken whether Compare asks for curves itself from now on
 */
export const early = /** @type {Early | undefined} */ (/** @type {any} */ (window).early);

// What was asked before a login is no answer after it.
loginNeeded.subscribe((needed) => {
  if (!needed || !early) return;
  early.answers.clear();
  early.curves.length = 0;
});

/** @param {string} path */
function earlyAnswer(path) {
  const answer = early?.answers.get(path);
  early?.answers.delete(path);
  return answer;
}

/**
 * @param {Response} response
 * @returns {Promise<ApiError>}
 */
async function problem(response) {
  const retry = Number(response.headers.get("Retry-After")) || undefined;
  /** @type {any} */
  let body = null;
  try {
    body = await response.json();
  } catch {
    // Not ours: a proxy's page, for example.
  }
  const detail =
    typeof body?.detail === "string"
      ? body.detail
      : `the server answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, detail, { column: body?.column, retry });
}

/**
 * Read something.
 * @param {string} path
 * @param {{signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function get(path, options = {}) {
  return jsonOf(await request(path, { ...options, headers: { Accept: "application/json" } }));
}

/**
 * Change something.
 * @param {string} path
 * @param {unknown} [body]
 * @param {{method?: "POST" | "PUT" | "DELETE", key?: string}} [options] key: the server does once what is sent with
 *   it again; see `sender`
 * @returns {Promise<any>}
 */
export async function send(path, body, { method = "POST", key = newKey() } = {}) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", "Idempotency-Key": key };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (session.value?.csrf) headers["X-CSRF-Token"] = session.value.csrf;
  const response = await request(path, {
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return response.status === 204 ? null : jsonOf(response);
}

/** @typedef {(path: string, body?: unknown) => Promise<any>} Send */

/**
 * A `send` for one decision of a person: where an answer was lost and the same is sent again, the server does
 * not do it again.
 * @returns {Send}
 */
export function sender() {
  /** @type {Map<string, string>} */
  const keys = new Map();
  return (path, body) => {
    const question = JSON.stringify([path, body]);
    const key = keys.get(question) ?? newKey();
    keys.set(question, key);
    return send(path, body, { key });
  };
}

// Only https and this machine have randomUUID.
const newKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

/**
 * Who looks at the page, as the server says. Where Dagster's UI is said to be at a path, that is one of the
 * host, not below our own.
 * @param {Session} answer
 * @returns {Session}
 */
export const viewerOf = (answer) =>
  answer.dagster_url?.startsWith("/")
    ? { ...answer, dagster_url: window.location.origin + answer.dagster_url }
    : answer;

/** Ask who looks at the page. */
export async function loadSession() {
  session.value = viewerOf(await get("/session"));
  loginNeeded.value = false;
}

/** @param {string} scope */
export const may = (scope) => session.value?.scopes.includes(scope) ?? false;

/**
 * Something on the server that is looked at again and again, and fetched again only when it has changed
 * (ETag). What was known stays while the server is away.
 */
export class Watched {
  /**
   * @param {string} path
   * @param {{every?: number | ((data: any) => number)}} [options] every: milliseconds between looks, or what
   *   gives them; 0 looks no more
   */
  constructor(path, { every = 2000 } = {}) {
    this.path = path;
    this.every = every;
    /** @type {import("@preact/signals").Signal<any>} */
    this.data = signal(undefined);
    /** Why the last look failed. */
    this.error = signal(/** @type {ApiError | null} */ (null));
    /** When the server last said that `data` is so. */
    this.lastRead = signal(/** @type {Date | null} */ (null));
    this.etag = "";
    this.timer = 0;
    this.failures = 0;
    this.closed = false;
    /** @type {AbortController | null} */
    this.asking = null;
    this.onVisible = () => {
      if (!document.hidden) this.look();
    };
    document.addEventListener("visibilitychange", this.onVisible);
    this.look();
  }

  /** Look now, instead of later. */
  async look() {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    let wait = 0;
    try {
      /** @type {Record<string, string>} */
      const headers = { Accept: "application/json" };
      if (this.etag) headers["If-None-Match"] = this.etag;
      const response = await request(this.path, { headers, signal: asking.signal, cache: "no-store" });
      const body = response.status === 304 ? undefined : await jsonOf(response);
      if (asking.signal.aborted) return;
      if (body !== undefined) {
        this.etag = response.headers.get("ETag") ?? "";
        this.data.value = body;
      }
      this.lastRead.value = new Date();
      this.error.value = null;
      this.failures = 0;
      wait = typeof this.every === "number" ? this.every : this.every(this.data.peek());
    } catch (error) {
      if (asking.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.error.value = error;
      wait = error.passing ? 1000 * (error.retry ?? pauseAfter(error.status, this.failures)) : 0;
      this.failures += 1;
    }
    if (wait && !document.hidden && !this.closed)
      this.timer = window.setTimeout(() => void this.look(), wait);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.asking?.abort();
    document.removeEventListener("visibilitychange", this.onVisible);
  }
}

/**
 * Seconds until a failed look is repeated: a server that is away is back at any moment, one that fails may go
 * on failing.
 * @param {number} status
 * @param {number} before how many looks have failed one after the other
 */
export const pauseAfter = (status, before) =>
  status ? Math.min(RETRY_SECONDS * 2 ** before, MAX_RETRY_SECONDS) : RETRY_SECONDS;

/**
 * Watch a path while a component is shown.
 * @param {string} path
 * @param {{every?: number | ((data: any) => number)}} [options]
 */
export function useWatched(path, options) {
  const watched = useMemo(() => new Watched(path, options), [path]);
  useEffect(() => () => watched.close(), [watched]);
  return watched;
}

/**
 * What a page says when the last look failed; "" when all is well.
 * @param {Watched} watched
 */
export function trouble(watched) {
  const error = watched.error.value;
  if (!error) return "";
  if (!error.passing) return error.message;
  const state = watched.lastRead.value
    ? `Showing what was known at ${time(watched.lastRead.value.toISOString())}, retrying.`
    : "Retrying.";
  return `${sentence(error.message)} ${state}`;
}
