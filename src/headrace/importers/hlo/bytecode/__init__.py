"""MLIR bytecode: portable artifacts of StableHLO, read without MLIR."""
