"""JAX functions: exported to StableHLO by `jax.export`, symbolic dimensions kept.

Arrays that a function closes over are constants of the export, and become parameters as any
large constant does. Needs the extra `headrace[jax]`; loads on first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from headrace.base.errors import error
from headrace.base.symbols import Expr, as_expr, parse_expr
from headrace.importers.options import ExportedModel


def from_jax(function: Any, arguments: Sequence[Any], source: str) -> ExportedModel:
    """A JAX function, as StableHLO for the table.

    Args:
        function: to be traced, jitted already (what it donates stays donated), or an
            `Exported` of `jax.export`.
        arguments: arrays or `jax.ShapeDtypeStruct`, nested as the function takes them;
            sizes may be symbolic (`jax.export.symbolic_shape`). None for an `Exported`.
        source: names it in messages.

    Raises:
        HeadraceError HR1003: jax is missing; HR1009: JAX cannot export the function;
            HR1010: it was exported for several platforms, or with effects.
    """
    try:
        import jax
        from jax import export
    except ImportError as missing:
        raise error(
            "HR1003",
            f"reading JAX functions needs {missing.name}, which is not installed",
            at=source,
            helps="pip install 'headrace[jax]'",
        ) from missing
    names: list[str] = []
    if isinstance(function, export.Exported):
        if arguments:
            fact = "an exported function has its arguments already"
            raise error("HR1009", fact, at=source, helps="leave the arguments out")
        exported = function
    else:
        names = _parameter_names(function)
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        try:
            exported = export.export(jitted, platforms=["cpu"])(*arguments)
        except Exception as refused:
            raise error(
                "HR1009",
                "JAX cannot export this function",
                at=source,
                notes=str(refused).strip().splitlines()[:4] or type(refused).__name__,
            ) from refused
    return _exported(exported, names, source)


def _parameter_names(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _exported(exported: Any, names: list[str], source: str) -> ExportedModel:
    if len(exported.platforms) != 1 or exported.ordered_effects or exported.nr_devices != 1:
        raise error(
            "HR1010",
            f"the function is exported for {', '.join(exported.platforms)} and "
            f"{exported.nr_devices} devices, or it has effects",
            at=source,
            helps="export it for one platform and one device, without callbacks",
        )
    inputs = _input_names(exported.in_tree, names)
    kept = list(exported.module_kept_var_idx)
    shapes = {n: _sizes(exported.in_avals[k].shape) for n, k in enumerate(kept)}
    return ExportedModel(
        str(exported.fun_name),
        source,
        exported.mlir_module_serialized,
        {},
        tuple(inputs[k] for k in kept),
        tuple(_output_names(exported.out_tree)),
        shapes=shapes,
    )


def _sizes(shape: Sequence[Any]) -> tuple[Expr, ...]:
    """Sizes of JAX as ours: both print sums of products of names."""
    return tuple(as_expr(s) if isinstance(s, int) else parse_expr(str(s)) for s in shape)


def _paths(tree: Any) -> list[Any]:
    """Where each leaf of a tree stands."""
    import jax

    numbered = jax.tree_util.tree_unflatten(tree, list(range(tree.num_leaves)))
    leaves, _ = jax.tree_util.tree_flatten_with_path(numbered)
    return [path for path, _ in leaves]


def _text(path: Sequence[Any]) -> str:
    import jax

    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def _input_names(tree: Any, names: list[str]) -> list[str]:
    """`x`, or `p.weight` inside of an argument: by the names of the function's parameters."""
    found: list[str] = []
    for path in _paths(tree):
        place, inner = path[0].idx, path[1:]  # of (positional, by name)
        number = inner[0] if place == 0 else None
        if number is None:
            found.append(_text(inner))
            continue
        index = number.idx
        first = names[index] if index < len(names) else f"arg{index}"
        found.append(".".join((first, _text(inner[1:]))) if inner[1:] else first)
    return found


def _output_names(tree: Any) -> list[str]:
    """Keys of a dictionary; numbers otherwise."""
    found: list[str] = []
    for path in _paths(tree):
        text = _text(path)
        found.append(text if text and not text[0].isdigit() else f"result{text or 0}")
    return found
