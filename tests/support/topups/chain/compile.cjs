// Reads Solidity from standard input and writes the code of each contract, and of each of its functions the selector.
const solc = require(require.resolve("solc", { paths: [process.cwd()] }));
const input = {
  language: "Solidity",
  sources: { "contracts.sol": { content: require("node:fs").readFileSync(0, "utf8") } },
  settings: {
    evmVersion: "paris",
    outputSelection: { "*": { "*": ["evm.bytecode.object", "evm.methodIdentifiers"] } },
  },
};
const output = JSON.parse(solc.compile(JSON.stringify(input)));
if (output.errors?.length) {
  console.error(output.errors.map((error) => error.formattedMessage).join("\n"));
  process.exit(1);
}
const contracts = Object.entries(output.contracts["contracts.sol"]).map(([name, { evm }]) => [
  name,
  { code: evm.bytecode.object, selectors: evm.methodIdentifiers },
]);
console.log(JSON.stringify(Object.fromEntries(contracts)));
