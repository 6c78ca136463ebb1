// How does split-sms cut these texts? Reads a JSON array of texts, writes a JSON array of results.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The package lies in the folder that this is run in, not beside this file.
const { split } = createRequire(`${process.cwd()}/`)("split-sms");

const texts = JSON.parse(readFileSync(0, "utf8"));
const results = texts.map((text) => {
  const { characterSet, bytes, parts } = split(text);
  return { characterSet, bytes, parts: parts.map((part) => part.content) };
});
process.stdout.write(JSON.stringify(results));
