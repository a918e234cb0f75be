"""The meaning of branches, loops, calls, fills, and of memory nothing has written."""

from __future__ import annotations

import numpy as np
from stream_texts import parsed

from headrace.stream import interp

IO = ", ".join(
    f'%{name}: !stream.resource<external> {{stream.io = "{io}", hr.name = "{name}", '
    f'hr.type = tensor<4xi8>, stream.size = #hr.exprs<["4"]>}}'
    for name, io in (("x", "input"), ("y", "output"))
)
T = "!stream.resource<transient>"
E = "!stream.resource<external>"


def run(body: str, x: list[int], more: str = "") -> list[int]:
    text = f"builtin.module {{\nfunc.func @main({IO}) {{\n{body}\nfunc.return\n}}\n{more}\n}}"
    return interp.run(parsed(text), {"x": np.array(x, np.int8)})["y"].tolist()


def test_unwritten_memory_shows() -> None:
    body = f"""%t = stream.resource.alloc : {T}{{64}}
    stream.cmd.copy %t[0], %y[0], 2 : {T} -> {E}
    stream.cmd.copy %x[2], %y[2], 2 : {E} -> {E}"""
    assert run(body, [1, 2, 3, 4]) == [-1, -1, 3, 4]


def test_fill_repeats_its_pattern() -> None:
    assert run(f"stream.cmd.fill %y[0 for 4] 513 : i16, {E}", [0] * 4) == [1, 2, 1, 2]


def test_if_reads_its_condition() -> None:
    body = f"""stream.cmd.if %x : {E} {{
      stream.cmd.fill %y[0 for 4] 7 : i8, {E}
    }} else {{
      stream.cmd.copy %x[0], %y[0], 4 : {E} -> {E}
    }}"""
    assert run(body, [1, 2, 3, 4]) == [7, 7, 7, 7]
    assert run(body, [0, 2, 3, 4]) == [0, 2, 3, 4]


def test_loop_runs_while_its_condition_holds() -> None:
    # Shifts x left by one byte into y until the first byte is 0.
    body = f"""%t = stream.resource.alloc : {T}{{4}}
    stream.cmd.loop {{
      stream.cmd.copy %x[0], %y[0], 4 : {E} -> {E}
    }} while %y : {E} {{
      stream.cmd.copy %y[1], %t[0], 3 : {E} -> {T}
      stream.cmd.fill %t[3 for 1] 9 : i8, {T}
      stream.cmd.copy %t[0], %y[0], 4 : {T} -> {E}
    }}"""
    assert run(body, [1, 2, 0, 4]) == [0, 4, 9, 9]


def test_call_works_on_the_same_resources() -> None:
    more = f"""func.func private @twice(%a: {E}, %b: {E}) {{
      stream.cmd.copy %a[0], %b[2], 2 : {E} -> {E}
      func.return
    }}"""
    body = f"""stream.cmd.fill %y[0 for 4] 0 : i8, {E}
    stream.cmd.call @twice(%x, %y : {E}, {E})"""
    assert run(body, [5, 6, 7, 8], more) == [0, 0, 5, 6]
