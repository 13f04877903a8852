// SPDX-License-Identifier: Apache-2.0
// What needs a person, the most urgent first: since when, why, and what to do next.
import { moment } from "./helpers.js";

const STILL = 120000; // milliseconds after which a step that should take seconds counts as stuck

// Entries {level, what, since, why, next, tenant or fault} of a map, as of ``now`` (milliseconds).
export function needsAPerson(map, now) {
  const entries = [], names = (tenant) => tenant.name || tenant.id;
  map.tenants.forEach((tenant, number) => {
    const about = { tenant: number, what: names(tenant), since: tenant.updated_at, why: tenant.error || "" };
    const still = now - Date.parse(tenant.updated_at || "") > STILL;
    const id = tenant.name || tenant.id, moving = ["allocating", "releasing"].includes(tenant.state);
    if (tenant.state === "error") entries.push({ ...about, level: "error",
      next: `mend the cause, then: laas allocation retry ${id}` });
    else if (tenant.degraded) entries.push({ ...about, level: "degraded",
      why: tenant.error || "links or hosts of it have failed",
      next: `laas allocation repair ${id}, or replace-hosts ${id}` });
    else if (tenant.error) entries.push({ ...about, level: "stuck",
      next: `the service tries again; at once: laas allocation retry ${id}` });
    else if ((moving || tenant.changing) && still) entries.push({ ...about, level: "stuck",
      why: `${tenant.changing ? "its hosts or links change" : tenant.state} without a new step`,
      next: `laas allocation show ${id} names the step; see the worker's log` });
  });
  for (const fault of map.faults || []) {
    if (fault.state === "failed") entries.push({ level: "failed", fault,
      what: `${fault.kind} ${fault.name}`, since: fault.since,
      why: fault.reason || fault.evidence || `said by ${fault.source || "nobody"}`,
      next: `mend it, then: laas ${fault.kind} repair ${fault.name}` });
  }
  for (const entry of map.queue || []) {
    entries.push({ level: "waiting", tenant: map.tenants.findIndex((tenant) => tenant.id === entry.id),
      what: entry.name || entry.id, since: null, why: entry.detail || "about to be admitted",
      next: entry.expected_start ? `expected to start ${moment(entry.expected_start)}`
        : "release or move what is in the way: ask for its size under Would it fit?" });
  }
  const order = ["error", "stuck", "degraded", "failed", "waiting"];
  return entries.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}
