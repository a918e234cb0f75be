"""Meanings of ONNX operators, one module a family; `registry.py` loads them all."""
