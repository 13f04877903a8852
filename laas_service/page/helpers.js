// SPDX-License-Identifier: Apache-2.0
// Elements, packed numbers, words and colours that all parts of the page use.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "click") made.addEventListener("click", value);
    else if (value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
export function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
export function bytes(text) {
  const plain = atob(text), made = new Uint8Array(plain.length);
  for (let i = 0; i < plain.length; i++) made[i] = plain.charCodeAt(i);
  return made;
}
export function words(text) {
  const raw = bytes(text), made = new Uint16Array(raw.length / 2);
  for (let i = 0; i < made.length; i++) made[i] = raw[2 * i] | (raw[2 * i + 1] << 8);
  return made;
}
export const at = (id) => document.getElementById(id);
export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const moment = (text) => (text ? new Date(text).toLocaleString() : "-");
export const counted = (number, one, many) => `${number} ${number === 1 ? one : many}`;

export function rgb(colour) {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  return hex ? [1, 2, 3].map((i) => parseInt(hex[i], 16)) : [128, 128, 128];
}
export function hsl(hue, saturation, lightness) {
  const s = saturation / 100, l = lightness / 100, a = s * Math.min(l, 1 - l);
  return [0, 8, 4].map((n) => {
    const k = (n + hue / 30) % 12;
    return Math.round(255 * (l - a * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  });
}
export const css = (colour) => `rgb(${colour[0]},${colour[1]},${colour[2]})`;
export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
export const promisedText = (one) => `${figure(one.promised)} of ${figure(one.bandwidth)} Gb/s`;
export const measuredText = (one) => (one.measured === null ? "not" : `${figure(one.measured)} Gb/s`);
export const figure = (number) => String(Number(number.toPrecision(4)));
export const portName = (end, port) => (port ? `${end.guid}/${port} (${end.name}/${port})` : end.guid);
export const label = (tenant) => tenant.name || tenant.id;
export const MOST_SPOKEN = 12;
export function spoken(points) {
  // the last changes in words: the alternative of the chart
  const told = points.slice(-MOST_SPOKEN).map(([time, used]) => `${moment(time)} ${used}`);
  const most = Math.max(...points.map((p) => p[1]));
  return `at most ${most}; ${points.length > MOST_SPOKEN ? "last " : ""}${told.join(", ")}`;
}
export function stateText(tenant) {
  const crossed = tenant.crossed_by
    ? `, crossed by ${counted(tenant.crossed_by, "pair", "pairs")} of others` : "";
  return (tenant.state || "-") + crossed;
}
