// Does the npm package `standardwebhooks` accept what we sent? Standard input is a JSON list of
// {secret, headers, body}; standard output is a JSON list of true, or what it says against each.

import { createRequire } from "node:module";

// The package lies in the folder that this is run in, not beside this file.
const { Webhook } = createRequire(`${process.cwd()}/`)("standardwebhooks");

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);

const verdicts = JSON.parse(Buffer.concat(chunks)).map(({ secret, headers, body }) => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch (error) {
    return String(error);
  }
});
process.stdout.write(JSON.stringify(verdicts));
