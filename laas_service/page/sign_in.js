// SPDX-License-Identifier: Apache-2.0
// Signing in with Keystone. The token lies in a cookie that no script can read; the page keeps the
// session's secret, without which the service does not read the cookie.
import { at } from "./helpers.js";

export const login = (() => {
  const KEY = "laas-session", HEADER = "X-LaaS-Session", LONGEST_TIMER = 2 ** 31 - 1;
  let needed = false, entered = () => {}, left = () => {}, timer = 0;

  function session() {
    try {
      return JSON.parse(localStorage.getItem(KEY));
    } catch {
      return null;
    }
  }
  function remember(one) {
    if (one) localStorage.setItem(KEY, JSON.stringify(one));
    else localStorage.removeItem(KEY);
  }

  // An address of the service, asked with the session if there is one.
  async function ask(address, { method = "GET", body, headers = {}, signal } = {}) {
    const known = needed && session();
    const answer = await fetch(address, {
      method, signal, cache: "no-store", credentials: "same-origin", body: body && JSON.stringify(body),
      headers: { ...headers, ...(known ? { [HEADER]: known.secret } : {}),
        ...(body ? { "Content-Type": "application/json" } : {}) },
    });
    if (answer.status === 401 && known) shut("Your session has ended: sign in again.");
    return answer;
  }
  async function refusal(answer) {
    const told = await answer.json().catch(() => ({}));
    return told.detail || `the service answered ${answer.status}`;
  }

  function shut(text) {
    remember(null);
    clearTimeout(timer);
    left();
    document.documentElement.dataset.signedIn = "no";
    document.documentElement.dataset.ready = "yes";
    at("refused").textContent = text;
    way();
    if (text) at("way").focus();
  }
  async function open(one) {
    document.documentElement.dataset.signedIn = "yes";
    at("who").textContent = `${one.user}, project ${one.project} (${one.roles.join(", ")})`;
    timer = setTimeout(() => shut("Your session has ended: sign in again."),
      Math.min(LONGEST_TIMER, Date.parse(one.expires_at) - Date.now()));
    await entered();
  }
  function way() {
    for (const one of at("sign-in").querySelectorAll("fieldset")) {
      one.hidden = one.dataset.way !== at("way").value;
      one.disabled = one.hidden;
    }
  }
  async function signIn() {
    const body = Object.fromEntries([...new FormData(at("sign-in"))].filter(([, text]) => text));
    at("refused").textContent = "";
    const answer = await ask("v1/session", { method: "POST", body });
    if (!answer.ok) {
      at("refused").textContent = await refusal(answer);
      return;
    }
    const one = await answer.json();
    remember(one);
    for (const field of at("sign-in").querySelectorAll("input[type=password]")) field.value = "";
    await open(one);
  }
  async function signOut() {
    const answer = await ask("v1/session", { method: "DELETE" });
    if (!answer.ok && answer.status !== 401) {
      at("found").textContent = await refusal(answer);
      return;
    }
    remember(null);
    location.reload(); // nothing of the session stays in the page
  }

  // Where there are logins: sign in, or go on with the session of this browser.
  function start(onEntry, onLeaving) {
    needed = true;
    entered = onEntry;
    left = onLeaving;
    at("way").addEventListener("change", way);
    at("sign-in").addEventListener("submit", (event) => {
      event.preventDefault();
      signIn().catch((error) => { at("refused").textContent = `No answer: ${error.message}`; });
    });
    at("sign-out").addEventListener("click", () => {
      signOut().catch((error) => { at("found").textContent = `No answer: ${error.message}`; });
    });
    window.addEventListener("storage", (event) => {
      if (event.key === KEY && !event.newValue) location.reload(); // signed out in another tab
    });
    const known = session();
    if (known && Date.parse(known.expires_at) > Date.now()) open(known);
    else shut("");
  }
  return { ask, refusal, start };
})();
