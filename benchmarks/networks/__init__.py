"""The networks of `benchmarks/models.py`, each twice: in torch and, equal, in jax."""
