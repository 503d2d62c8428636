#!/usr/bin/env python3
"""Holds the sources against the architecture.

    check_layers.py ROOT

Reads the table in ROOT/docs/layers.md and every C++ file under ROOT/include/tandem and ROOT/src,
and prints one line per violation: an include the table does not allow, a cycle of folders, a
conditional compilation, new and delete expressions, MPI or CBLAS outside the folder that wraps
them, a file of more than 800 lines. Exits 1 if there is any. Standard library only.
"""
import pathlib
import re
import sys

MAX_LINES = 800
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
BANNED = [  # pattern, folders where it is allowed, what to say
    # What the compiler says of the processor (__SSE4_2__, __CUDA_ARCH_FEAT_...) may choose an
    # instruction; nothing else.
    (re.compile(r"^\s*#\s*(ifdef|ifndef|if|elif)\b(?!(\s|defined\b|__\w+__|__CUDA_ARCH\w*|[()!]|&&|\|\|)+$)",
                re.M), set(), "conditional compilation; use a constexpr or another source file"),
    (re.compile(r"(?<!operator )\bnew\b(?!>)"), set(), "a new expression; use std::make_unique or a container"),
    (re.compile(r"\bMPI_\w+"), {"comm"}, "MPI outside src/comm"),
    (re.compile(r"\bcblas\w*"), {"ops"}, "CBLAS outside src/ops"),
]
DELETE = re.compile(r"\bdelete\b")

TOKENS = re.compile(
    r'R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)"'       # raw string
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''      # string, character
    r"|//[^\n]*|/\*.*?\*/", re.S)


def without_comments(text, keep_strings=False):
    """The text with comments, and strings unless kept, blanked out; lines keep their numbers."""
    def blank(match):
        token = match.group(0)
        if keep_strings and not token.startswith("/"):
            return token
        return re.sub(r"[^\n]", " ", token)
    # 1'000 holds a quote that opens nothing.
    return TOKENS.sub(blank, re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", text))


def read_table(path):
    """Folder -> set of folders it may include, from the Markdown table."""
    allowed = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4 or not cells[0].isdigit():
            continue
        folder, may = cells[1], cells[2]
        allowed[folder] = set(allowed) if may == "all of the above" else set(may.split())
    return allowed


def sources(root):
    """Yields (folder, path) of every C++ file."""
    for base in (root / "include" / "tandem", root / "src"):
        for path in sorted(base.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                parts = path.relative_to(base).parts
                yield (parts[0] if len(parts) > 1 else ""), path


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_includes(folder, path, root, allowed, used):
    text = without_comments(path.read_text(), keep_strings=True)
    for match in INCLUDE.finditer(text):
        name, place = match.group(1), f"{path.relative_to(root)}:{line_of(text, match.start(1))}"
        if not name.startswith("tandem/"):
            home = (root / "src" / folder).resolve()
            # A header of the folder, or the template that CMake makes it from.
            near = [base / (name + end) for base in (path.parent, home) for end in ("", ".in")]
            inside = [p for p in near if p.is_file() and home in p.resolve().parents]
            if not inside:
                yield f'{place}: "{name}" is no header of src/{folder}'
            continue
        target = name.split("/")[1]
        used.setdefault(folder, {}).setdefault(target, place)
        if target not in allowed:
            yield f"{place}: folder {target} is not in docs/layers.md"
        elif target != folder and target not in allowed.get(folder, set()):
            yield f"{place}: {folder} may not include {target} (docs/layers.md)"


def check_text(folder, path, root):
    text = path.read_text()
    name = path.relative_to(root)
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield f"{name}: {lines} lines, more than {MAX_LINES}; split it"
    code = without_comments(text)
    for pattern, homes, why in BANNED:
        if folder in homes:
            continue
        for match in pattern.finditer(code):
            yield f"{name}:{line_of(code, match.start())}: {why}"
    for match in DELETE.finditer(code):
        before = code[:match.start()].rstrip()
        if not before.endswith(("=", "operator")):  # "= delete" declares, operator delete is a function
            yield f"{name}:{line_of(code, match.start())}: a delete expression; let an owner do it"


def find_cycle(edges):
    """A list of folders that include each other in a ring, or []."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return []
        path.append(node)
        for target in sorted(edges.get(node, {})):
            ring = visit(target) if target != node else []
            if ring:
                return ring
        path.pop()
        done.add(node)
        return []

    for node in sorted(edges):
        ring = visit(node)
        if ring:
            return ring
    return []


def check(root):
    allowed = read_table(root / "docs" / "layers.md")
    violations, used, count = [], {}, 0
    if not allowed:
        violations.append("docs/layers.md: no table of folders found")
    for folder, path in sources(root):
        count += 1
        if folder not in allowed:
            violations.append(f"{path.relative_to(root)}: folder '{folder}' is not in docs/layers.md")
        violations += check_includes(folder, path, root, allowed, used)
        violations += check_text(folder, path, root)
    ring = find_cycle(used)
    if ring:
        places = "; ".join(used[a][b] for a, b in zip(ring, ring[1:]))
        violations.append(f"folders include each other: {' -> '.join(ring)} ({places})")
    if count == 0:
        violations.append(f"{root}: no C++ files found")
    return violations, count


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    violations, count = check(root)
    for violation in violations:
        print(violation)
    print(f"{count} files, {len(violations)} violation(s)")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
