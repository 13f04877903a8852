// SPDX-License-Identifier: Apache-2.0
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const PAGE = fileURLToPath(new URL("../../../../laas_service/page", import.meta.url));

// The modules of the page as they are; Node takes them for modules where a package says so.
const copies = mkdtempSync(join(tmpdir(), "laas-page-"));
cpSync(PAGE, copies, { recursive: true });
writeFileSync(join(copies, "package.json"), '{"type": "module"}');
process.on("exit", () => rmSync(copies, { recursive: true }));

export const load = (name) => import(pathToFileURL(join(copies, name)));
