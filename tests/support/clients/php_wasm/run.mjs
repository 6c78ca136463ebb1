// Runs a program in PHP that was compiled to WebAssembly: node run.mjs VERSION CLIENTS FILE

import { loadPHPRuntime, PHP } from "@php-wasm/universal";

const [version, clients, file] = process.argv.slice(2);
const { getPHPLoaderModule } = await import(`@php-wasm/node-${version}`);
const php = new PHP(await loadPHPRuntime(await getPHPLoaderModule()));
php.mkdir("/clients");
await php.mount("/clients", (_, FS, path) => {
  FS.mount(FS.filesystems.NODEFS, { root: clients }, path);
  return () => FS.unmount(path);
});
const done = await php.run({ code: `<?php echo PHP_VERSION, "\\n"; require '/clients/${file}';` });
process.stdout.write(done.text);
process.stderr.write(done.errors);
process.exit(done.exitCode);
