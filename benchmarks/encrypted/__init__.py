"""Smaller networks on encrypted inputs and in zero-knowledge proofs, in the real engines."""
