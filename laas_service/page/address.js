// SPDX-License-Identifier: Apache-2.0
// The part of the address behind #: what the person looks at, so that a link shows it to another.

const FIELDS = ["tenant", "cell", "colour"];

// "#tenant=ID&cell=leaf-0-1-3&colour=load" as {tenant, cell, colour}; what is missing is "".
export function readAddress(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  return Object.fromEntries(FIELDS.map((name) => [name, given.get(name) || ""]));
}
export function writtenAddress(looks) {
  const made = new URLSearchParams(FIELDS.filter((name) => looks[name]).map((name) => [name, looks[name]]));
  return made.toString() && `#${made}`;
}
