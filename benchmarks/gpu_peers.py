"""What others reach with the decoder of `decoder.py`: one process a peer, one table.

    python benchmarks/gpu.py peers --folder DIR [--layers N]

Peers: torch eager, `torch.compile` (reduce-overhead, max-autotune), torch with layers brought by
hand (pinned memory, a copy stream, two slots of a layer each), `accelerate.cpu_offload`,
`jax.jit`, and Headrace beside them. All read the weights of the same
file; `difference` is that of the logits to torch's eager ones over their largest value. A budget is the part of the layers that stays: 100 % or what
the peer can do with less.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from decoder import TOKENS, Shape, ids_of

STEPS = 7
PEERS: dict[str, tuple[str, ...]] = {
    "torch eager": ("max",),
    "torch.compile reduce-overhead": ("max",),
    "torch.compile max-autotune": ("max",),
    "torch by hand": ("50%", "min"),
    "accelerate.cpu_offload": ("min",),
    "jax.jit": ("max",),
    "headrace": ("max", "50%", "min"),
}
MOST_SECONDS = 150
"""Of one peer: what it has printed by then counts."""
LEAST_SECONDS = 30
"""With less left a peer is not begun."""


def weights_of(folder: Path) -> dict[str, Any]:
    """Each weight as it stands in the file, in bf16, named as in `decoder.py`."""
    import ml_dtypes
    import onnx

    model = onnx.load(folder / "decoder.onnx", load_external_data=False)
    found: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        place = {e.key: e.value for e in tensor.external_data}
        if place:
            found[tensor.name] = np.memmap(
                folder / place["location"],
                ml_dtypes.bfloat16,
                "r",
                int(place["offset"]),
                tuple(tensor.dims),
            )
    return found


def angles(shape: Shape, tokens: int) -> Any:
    powers = 10000.0 ** (-np.arange(0, shape.head, 2) / shape.head)
    return np.arange(tokens)[:, None] * np.concatenate([powers, powers])[None, :]


_ATTENTION, _MLP = "qkvo", ("gate", "up", "down")
NAMES = (*(f"attention.{part}" for part in _ATTENTION), *(f"mlp.{part}" for part in _MLP))


# -- torch ------------------------------------------------------------------------------


def _tensor(values: Any, device: str = "cuda") -> Any:
    import torch

    return torch.from_numpy(np.array(values).view(np.int16)).view(torch.bfloat16).to(device)


def _times(weight: Any, x: Any) -> Any:
    return x @ weight


def _norm(x: Any) -> Any:
    wide = x.float()
    return (wide * (wide.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype)


def _layer(x: Any, w: Any, cosine: Any, sine: Any, shape: Shape) -> Any:
    """One layer; `w` are its products in the order of `NAMES`."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention, silu

    h = _norm(x)
    q, k, v = (w[n](h).view(1, -1, shape.heads, shape.head).transpose(1, 2) for n in range(3))

    def rotated(t: Any) -> Any:
        first, second = t.chunk(2, -1)
        return t * cosine + torch.cat([-second, first], -1) * sine

    mixed = scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
    x = x + w[3](mixed.transpose(1, 2).reshape(1, -1, shape.hidden))
    h = _norm(x)
    return x + w[6](silu(w[4](h)) * w[5](h))


def _torch_model(shape: Shape, weights: dict[str, Any], device: str) -> Any:
    import torch

    class Product(torch.nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            values = _tensor(weights[name], device)
            self.weight = torch.nn.Parameter(values, requires_grad=False)

        def forward(self, x: Any) -> Any:
            return x @ self.weight

    class Layer(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            names = (f"layers.{number}.{name}.weight" for name in NAMES)
            self.w = torch.nn.ModuleList(Product(name) for name in names)

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
            return _layer(x, self.w, cosine, sine, shape)

    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table = torch.nn.Embedding.from_pretrained(_tensor(weights["embedding"], device))
            self.embedding = table
            self.layers = torch.nn.ModuleList(Layer(n) for n in range(shape.layers))
            self.head = Product("head")

        def forward(self, ids: Any, cosine: Any, sine: Any) -> Any:
            x = self.embedding(ids)
            for layer in self.layers:
                x = layer(x, cosine, sine)
            return self.head(_norm(x)[:, -1:]).float()

    return Decoder().eval()


def _by_hand(shape: Shape, weights: dict[str, Any], budget: str) -> Callable[..., Any]:
    """Layers that do not stay come through two slots on a stream of their own."""
    import torch

    stays = {n for n in range(shape.layers) if budget == "50%" and n % 2 == 0}
    sizes = [weights[f"layers.0.{name}.weight"].shape for name in NAMES]
    ends = np.cumsum([0, *(rows * columns for rows, columns in sizes)])
    copies, main = torch.cuda.Stream(), torch.cuda.current_stream()
    slots = [torch.empty(ends[-1], dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    free = [torch.cuda.Event() for _ in slots]
    held: list[Any] = []
    for n in range(shape.layers):
        flat = np.concatenate(
            [np.asarray(weights[f"layers.{n}.{name}.weight"]).ravel() for name in NAMES]
        )
        held.append(_tensor(flat) if n in stays else _tensor(flat, "cpu").pin_memory())
    table, head = _tensor(weights["embedding"]), _tensor(weights["head"])

    def run(ids: Any, cosine: Any, sine: Any) -> Any:
        x = table[ids]
        used = 0
        for n in range(shape.layers):
            layer = held[n]
            if n not in stays:
                slot = used % 2
                with torch.cuda.stream(copies):
                    copies.wait_event(free[slot])
                    slots[slot].copy_(layer, non_blocking=True)
                    main.wait_event(copies.record_event())
                layer = slots[slot]
            parts = [layer[ends[i] : ends[i + 1]].view(*size) for i, size in enumerate(sizes)]
            products = [partial(_times, part) for part in parts]
            x = _layer(x, products, cosine, sine, shape)
            if n not in stays:
                free[used % 2].record(main)
                used += 1
        return (_norm(x)[:, -1:] @ head).float()

    for event in free:
        event.record(main)
    return run


def _torch_steps(peer: str, folder: Path, shape: Shape) -> Iterator[dict[str, Any]]:
    import torch

    torch.set_grad_enabled(False)
    weights = weights_of(folder)
    for budget in PEERS[peer]:
        if peer == "torch by hand":
            run = _by_hand(shape, weights, budget)
        elif peer == "accelerate.cpu_offload":
            from accelerate import cpu_offload

            run = cpu_offload(_torch_model(shape, weights, "cpu"), "cuda")
        else:
            run = _torch_model(shape, weights, "cuda")
        if peer.startswith("torch.compile"):
            run = torch.compile(run, mode=peer.split()[1])
        for tokens in TOKENS:
            ids = torch.from_numpy(ids_of(shape, tokens)).cuda()
            turned = torch.from_numpy(angles(shape, tokens)).cuda()
            cosine, sine = turned.cos().bfloat16(), turned.sin().bfloat16()

            def step() -> Any:
                return run(ids, cosine, sine).cpu().numpy()  # noqa: B023

            yield {"budget": budget, "tokens": tokens, **timed(step)}


# -- jax --------------------------------------------------------------------------------


def _jax_steps(folder: Path, shape: Shape) -> Iterator[dict[str, Any]]:
    import jax
    import jax.numpy as jnp

    def norm(x: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype)

    def layer(x: Any, w: Any, cosine: Any, sine: Any) -> Any:
        h = norm(x)
        q, k, v = ((h @ w[n]).reshape(1, -1, shape.heads, shape.head) for n in range(3))

        def rotated(t: Any) -> Any:
            first, second = jnp.split(t, 2, -1)
            other = jnp.concatenate([-second, first], -1)
            return t * cosine[:, None] + other * sine[:, None]

        mixed = jax.nn.dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + mixed.reshape(1, -1, shape.hidden) @ w[3]
        h = norm(x)
        return x + (jax.nn.silu(h @ w[4]) * (h @ w[5])) @ w[6]

    @jax.jit
    def run(w: Any, ids: Any, cosine: Any, sine: Any) -> Any:
        x = w["embedding"][ids]
        for parts in w["layers"]:
            x = layer(x, parts, cosine, sine)
        return (norm(x)[:, -1:] @ w["head"]).astype(jnp.float32)

    weights = weights_of(folder)
    held: dict[str, Any] = {n: jnp.asarray(np.array(weights[n])) for n in ("embedding", "head")}
    held["layers"] = [
        [jnp.asarray(np.array(weights[f"layers.{n}.{name}.weight"])) for name in NAMES]
        for n in range(shape.layers)
    ]
    for tokens in TOKENS:
        turned = angles(shape, tokens)
        given = [jnp.asarray(f(turned), jnp.bfloat16) for f in (np.cos, np.sin)]
        ids = ids_of(shape, tokens)

        def step() -> Any:
            return np.asarray(run(held, ids, *given))  # noqa: B023

        yield {"budget": "max", "tokens": tokens, **timed(step)}


# -- both -------------------------------------------------------------------------------


def timed(step: Callable[[], Any]) -> dict[str, Any]:
    """Median seconds of whole calls, and the logits."""
    begin = time.perf_counter()
    logits = step()
    first = time.perf_counter() - begin
    step()
    times: list[float] = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return {
        "step_s": statistics.median(times),
        "first_s": first,
        "logits": [float(v) for v in logits.ravel()],
    }


def _headrace_steps(folder: Path, shape: Shape) -> Iterator[dict[str, Any]]:
    import headrace

    with headrace.load(folder / "decoder.hrx", "cuda", weight_budget="max") as module:
        for budget in PEERS["headrace"]:
            module.weight_budget = budget
            for tokens in TOKENS:
                ids = ids_of(shape, tokens)

                def step() -> Any:
                    return module(ids)[0]  # noqa: B023

                yield {"budget": budget, "tokens": tokens, **timed(step)}


def run_peer(peer: str, folder: Path, shape: Shape) -> None:
    """One JSON line a row; stands in a process of its own."""
    own = {"jax.jit": _jax_steps, "headrace": _headrace_steps}
    rows = own[peer](folder, shape) if peer in own else _torch_steps(peer, folder, shape)
    for row in rows:
        print(json.dumps(row), flush=True)


def peers(folder: Path, shape: Shape, end: float) -> dict[str, Any]:
    """The table; `folder` holds `decoder.onnx` with its weights, and `decoder.hrx`.

    A peer that was run stands in `peers.json` there and is not run again.

    Args:
        end: of `time.monotonic`, by which it is over.

    Returns:
        the rows; `left` peers there was no time for.
    """
    path = folder / "peers.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    left = 0
    for peer in PEERS:
        remaining = end - time.monotonic()
        if peer not in found and remaining < LEAST_SECONDS:
            left += 1
        elif peer not in found:
            rows, whole = _rows(peer, folder, shape, min(MOST_SECONDS, remaining))
            left += not whole
            if whole:
                found[peer] = rows
                path.write_text(json.dumps(found))
    return {"rows": _table(found), "left": left}


def _table(found: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    print(
        "| peer | budget | tokens | step | first call | difference |\n|---|---|---|---|---|---|"
    )
    wanted: dict[int, Any] = {}
    for peer in PEERS:
        for row in found.get(peer, ()):
            logits = np.array(row["logits"])
            wanted.setdefault(row["tokens"], logits)
            first = wanted[row["tokens"]]
            off = np.abs(logits - first).max() / np.abs(first).max()
            print(
                f"| {peer} | {row['budget']} | {row['tokens']} | {1e3 * row['step_s']:.2f} ms | "
                f"{row['first_s']:.1f} s | {off:.0e} |",
                flush=True,
            )
            rows.append({"peer": peer, **{k: row[k] for k in ("budget", "tokens", "step_s")}})
    return rows


def _rows(
    peer: str, folder: Path, shape: Shape, seconds: float
) -> tuple[list[dict[str, Any]], bool]:
    """What a peer printed, and whether it is all it ever will: it was not cut short."""
    whole = True
    command = [sys.executable, __file__, peer, str(folder), str(shape.layers)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        text, problem = done.stdout, done.stderr.strip().splitlines()[-1:]
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
        problem = [f"stopped after {seconds:.0f} s"]
        whole = seconds >= MOST_SECONDS
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if len(rows) < len(PEERS[peer]) * len(TOKENS):
        print(f"{peer}: {' '.join(problem)}", flush=True)
    return rows, whole


if __name__ == "__main__":
    run_peer(sys.argv[1], Path(sys.argv[2]), Shape(layers=int(sys.argv[3])))
