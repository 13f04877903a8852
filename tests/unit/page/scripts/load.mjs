// SPDX-License-Identifier: Apache-2.0
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const PAGE = fileURLToPath(new URL("../../../../laas_service/page", import.meta.url));

// The names that scripts of the page define, as the browser defines them one after the other.
export function scripts(...names) {
  const text = names.map((name) => readFileSync(`${PAGE}/${name}`, "utf8")).join("\n");
  const defined = [...text.matchAll(/^(?:function|const) (\w+)/gm)].map((found) => found[1]);
  return new Function(`${text}\nreturn { ${defined.join(", ")} };`)();
}
