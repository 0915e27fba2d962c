"""Change product code in small ways and count how many changes its tests notice.

    python tests/mutants/mutants.py build/mutants.jsonl [MODULE ...] [--each 15] [--seed 0]

Each mutant changes one place of a module in a copy of the repository and runs the tests of that module.
"killed" means that a test failed. OUT gets a line per mutant; a second run skips those already listed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import tomllib

ROOT = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).with_name("modules.toml")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Imported once, because they take longer than most tests.
LIBRARIES = ("pytest_timeout", "hypothesis", "rich.progress", "scipy.optimize", "scipy.sparse.csgraph")
LIBRARIES += ("scipy.sparse.linalg", "scipy.spatial", "torch", "torch._dynamo", "triton")
#: Annotations do nothing at run time, and texts of errors are not behaviour.
IGNORED = {"annotation", "returns", "decorator_list"}


class Mutant(NamedTuple):
    """A changed module: where, what stood there, what stands there now, and the whole source."""

    line: int
    before: str
    after: str
    source: str


def _places(node: ast.AST) -> Iterator[ast.AST]:
    # Nodes that may change: no annotations, errors, formatted strings or code for type checkers.
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if (
                not isinstance(child, ast.AST)
                or name in IGNORED
                or isinstance(child, ast.Raise | ast.JoinedStr)
            ):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child
            yield from _places(child)


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    # A node and what replaces it.
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            yield node, ast.Compare(node.left, [COMPARISONS[type(op)]()], node.comparators)
        case ast.BinOp() if type(node.op) in OPERATORS:
            yield node, ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in OPERATORS:
            yield node, ast.AugAssign(node.target, OPERATORS[type(node.op)](), node.value)
        case ast.BoolOp():
            yield node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node, node.operand
        case ast.Constant(value=bool()):
            yield node, ast.Constant(not node.value)
        case ast.Constant(value=int(whole)):
            yield node, ast.Constant(whole + 1)
        case ast.Constant(value=float(real)):
            yield node, ast.Constant(2 * real + 1)
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield node, ast.Call(ast.Name(CALLS[name]), node.args, node.keywords)
        case ast.Return(value=ast.expr() as returned) if ast.unparse(returned) != "None":
            yield node, ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.Break() | ast.Continue():
            yield node, ast.Pass()
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, ast.Compare | ast.UnaryOp):
                yield node.test, ast.UnaryOp(ast.Not(), node.test)


def mutants_of(source: str) -> list[Mutant]:
    """Return every mutant of a module's source, in the order of its lines."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole, found = b"".join(lines), []
    for place in _places(ast.parse(source)):
        for old, new in _changes(place):
            assert old.end_lineno is not None
            assert old.end_col_offset is not None
            begin = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            after = ast.unparse(ast.fix_missing_locations(new))
            text = f"({after})" if isinstance(new, ast.expr) else after
            changed = (whole[:begin] + text.encode() + whole[end:]).decode()
            found.append(Mutant(old.lineno, ast.unparse(old), after, changed))
    return sorted(found, key=lambda mutant: mutant[:3])


def _become_tests(copy: Path, tests: list[str]) -> NoReturn:
    os.setsid()
    os.chdir(copy)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    printed = os.open(copy.with_suffix(".txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ |= {"PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    import pytest

    options = ["-x", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "_hypothesis_pytestplugin"]
    options += ["--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = int(pytest.main([*options, *tests]))
    sys.stdout.flush()
    os._exit(code)


def _run_tests(copy: Path, tests: list[str], limit_s: float) -> str:
    # In a fork of this process, which has imported the large libraries.
    child = os.fork()
    if child == 0:
        try:
            _become_tests(copy, tests)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    begun = time.monotonic()
    while time.monotonic() - begun < limit_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed"


def examine(copy: Path, module: str, tests: list[str], each: int, seed: int, done: set[str]) -> Iterator[Any]:
    """Yield a record per sampled mutant of a module that is not done yet.

    Raises:
        SystemExit: the tests fail without any change.
    """
    file = copy / module
    source = file.read_text()
    mutants = mutants_of(source)
    chosen = random.Random(f"{seed} {module}").sample(mutants, min(each, len(mutants)))
    records = [{"module": module, "line": m.line, "before": m.before, "after": m.after} for m in chosen]
    left = [(r, m) for r, m in zip(records, chosen, strict=True) if json.dumps(r) not in done]
    if not left:
        return
    begun = time.monotonic()
    if _run_tests(copy, tests, 600) != "killed":
        limit_s = 30 + 5 * (time.monotonic() - begun)
    else:
        print(copy.with_suffix(".txt").read_text()[-2000:])
        raise SystemExit(f"{module}: its tests fail without a change")
    for record, mutant in left:
        _write(file, mutant.source)
        yield record | {"outcome": _run_tests(copy, tests, limit_s)}
    _write(file, source)


def _write(file: Path, source: str) -> None:
    file.write_text(source)
    # Python compares times in seconds and sizes, which another mutant may share.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def main() -> None:
    """Write a line per mutant and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--each", type=int, default=15, help="mutants per module (15)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    options = parser.parse_args()
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    known = [json.loads(line) for line in lines]
    done = {json.dumps({key: record[key] for key in record if key != "outcome"}) for record in known}
    tests = tomllib.loads(MODULES.read_text())
    with tempfile.TemporaryDirectory() as folder, options.out.open("a") as out:
        copy = Path(folder) / "copy"
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        sys.path[0] = str(copy)
        # First the package that the others build on, which can then be imported once for them.
        for module in sorted(options.modules or tests, key=lambda name: not name.startswith("sparse_core")):
            if not module.startswith("sparse_core"):
                importlib.import_module("sparse_core.conv.convolution.vendor")
            for record in examine(copy, module, tests[module], options.each, options.seed, done):
                known.append(record)
                print(json.dumps(record), file=out, flush=True)
    for module in tests:
        outcomes = [record["outcome"] for record in known if record["module"] == module]
        print(f"{module}: {outcomes.count('killed')} of {len(outcomes)} killed")


if __name__ == "__main__":
    main()
