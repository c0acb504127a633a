/** Logging in with a token. */
import { useSignal } from "@preact/signals";
import { Copy, useTitle } from "../components/bits.js";
import { Problem } from "../components/problem.js";
import { loginNeeded, send, session, viewerOf } from "../lib/api.js";
import { html } from "../lib/html.js";
import { navigate, url } from "../lib/router.js";

export default function Login() {
  useTitle("Log in");
  const token = useSignal("");
  const failed = useSignal("");
  const busy = useSignal(false);
  if (session.value && !session.value.auth) {
    return html`<div class="page narrow"><h1>No login is needed</h1>
      <p>This server listens on its own machine alone and asks for no token. <a href="/">All runs</a></p>
      </div>`;
  }
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    busy.value = true;
    try {
      session.value = viewerOf(await send("/session", { token: token.value.trim() }));
      loginNeeded.value = false;
      navigate(next(), { replace: true });
    } catch (error) {
      failed.value = /** @type {Error} */ (error).message;
    } finally {
      busy.value = false;
    }
  };
  return html`
    <div class="page narrow">
      <h1>Log in</h1>
      <p>This server asks for a token. Your browser then stays logged in for a week, or until the token is
        revoked.</p>
      <form class="login" onSubmit=${submit}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" placeholder="hlv_…"
          required value=${token.value}
          onInput=${(/** @type {InputEvent & {currentTarget: HTMLInputElement}} */ event) =>
            (token.value = event.currentTarget.value)} />
        <${Problem} text=${failed.value} />
        <button class="primary" type="submit" disabled=${busy.value}>Log in</button>
      </form>
      <p class="muted">No token yet? Whoever runs this server makes
        one: <${Copy} text="halving tokens create NAME" /></p>
    </div>
  `;
}

/** Where the login was asked for; only a place of this page. */
function next() {
  const address = url.value.searchParams.get("next") ?? "/";
  return new URL(address, window.location.origin).origin === window.location.origin && address.startsWith("/")
    ? address
    : "/";
}
