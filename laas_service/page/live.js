// SPDX-License-Identifier: Apache-2.0
// Keeps the page up to date: asks every few seconds whether the map has changed (304: no), and says
// how old the answer is. A service that gives no ETag is not asked again.
import { at } from "./helpers.js";
import { login } from "./sign_in.js";

export const live = (() => {
  const EVERY = 4000, UNSEEN = 60000, PATIENCE = 20000, LOST = 12000;
  let address = "", etag = null, take = () => {}, timer = 0, checked = 0, failure = "", shown = "";
  const box = () => at("live");

  // The map came from this address with this answer: go on asking there.
  function follow(from, answer, onChange) {
    address = from;
    etag = answer.headers.get("ETag");
    take = onChange;
    heard();
    if (etag) wait();
    else clearTimeout(timer);
  }
  function stop() {
    clearTimeout(timer);
    etag = null;
    say();
  }
  function heard() {
    checked = Date.now();
    failure = "";
    say();
  }
  function wait(milliseconds = document.hidden ? UNSEEN : EVERY) {
    clearTimeout(timer);
    timer = setTimeout(look, milliseconds);
  }
  async function look() {
    const asked = address;
    try {
      const answer = await login.ask(asked, {
        headers: { "If-None-Match": etag }, signal: AbortSignal.timeout(PATIENCE) });
      if (answer.status === 401) return stop();
      if (!answer.ok && answer.status !== 304) throw new Error(await login.refusal(answer));
      const changed = answer.ok ? await answer.json() : null;
      if (asked !== address || !etag) return; // another fabric was chosen meanwhile
      if (changed) {
        etag = answer.headers.get("ETag");
        take(changed);
      }
      heard();
    } catch (error) {
      failure = error.message || String(error);
      say();
    }
    if (etag) wait();
  }
  function say() {
    if (!etag) {
      box().textContent = "";
      return;
    }
    const seconds = Math.round((Date.now() - checked) / 1000);
    const lost = failure !== "" || Date.now() - checked > LOST && !document.hidden;
    const since = new Date(checked).toLocaleTimeString();
    const state = lost ? "lost" : "live";
    box().textContent = lost
      ? `No connection since ${since} (${seconds} s): ${failure || "no answer"}. What you see is of then.`
      : `Live, checked ${seconds} s ago.`;
    box().className = lost ? "bad" : "";
    if (state === shown) return;
    // a screen reader hears of a change alone, not of each second
    at("found").textContent = lost ? "The connection is lost."
      : shown === "lost" ? "The connection is back." : at("found").textContent;
    shown = state;
  }
  setInterval(() => etag && say(), 1000);
  document.addEventListener("visibilitychange", () => etag && !document.hidden && wait(0));
  window.addEventListener("online", () => etag && wait(0));
  const now = () => etag && wait(0); // something was done: look at once
  return { follow, now, stop };
})();
