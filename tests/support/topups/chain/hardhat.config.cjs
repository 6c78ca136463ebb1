// The chain that the tests run: a block for every transaction, under the number of BNB Smart Chain.
module.exports = { networks: { hardhat: { chainId: 56, loggingEnabled: false } } };
