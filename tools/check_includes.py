#!/usr/bin/env python3
"""Holds every #include against the layout of the libraries.

Checks that moestro_library calls depend only on lower tiers, that a library includes only what its
DEPS name, that no one includes another library's internal/ folder, and that heavy headers stay in
their homes. Prints one line per violation; exits 1 if there is any.

    check_includes.py [root of the tree]
"""

import re
import sys
from pathlib import Path

# A library may use only lower tiers (docs/architecture.md).
TIERS = {
    "core": 0,
    "model": 1, "cluster": 1, "schedule": 1, "kernels": 1, "data": 1,
    "plan": 2, "comm": 2, "checkpoint": 2,
    "cost": 3, "sim": 3, "observe": 3, "layers": 3,
    "planner": 4, "runtime": 4,
    "report": 5,
    "cli": 6,
}
# Lower tiers that a library must nevertheless not see.
FORBIDDEN = {
    "sim": {"cost"},
    "runtime": {"planner", "cost", "sim"},
}

# Headers of others that are slow to compile or hard to swap: (pattern of the include, its homes).
# A home is a pattern of file paths below the root.
HEAVY = [
    (r"torch/|ATen/core/Tensor\.h", r"moestro/(layers|runtime)/|tests/|bench/"),
    (r"torch/|ATen/(?!core/Tensor\.h)|c10/", r"moestro/(layers|runtime)/.*\.cpp$|tests/.*\.cpp$|bench/"),
    (r"(oneapi/)?dnnl", r"moestro/kernels/.*\.cpp$|tests/kernels/.*\.cpp$|bench/"),
    (r"CLI/", r"(moestro/cli|bench)/.*\.cpp$"),
    (r"toml\+\+/", r"moestro/core/.*\.cpp$"),
    (r"nlohmann/json\.hpp", r".*\.cpp$"),
    (r"fmt/(?!core\.h)", r".*\.cpp$"),
    (r"mpi\.h", r"moestro/comm/mpi_transport\.cpp$"),
    (r"(iostream|regex)$", r"bench/"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
LIBRARY = re.compile(r"moestro_library\(\s*(\w+)([^)]*)\)")
KEYWORDS = {"SOURCES", "DEPS", "EXTERNAL", "EXTERNAL_PUBLIC"}


def words_after(keyword, text):
    """The words of a CMake call that follow a keyword, up to the next keyword."""
    words, inside = [], False
    for word in text.split():
        if word in KEYWORDS:
            inside = word == keyword
        elif inside:
            words.append(word)
    return words


def declared_dependencies(root):
    """library -> the libraries named in any of its moestro_library calls (optional parts have two)."""
    dependencies = {}
    for file in sorted(root.glob("moestro/*/CMakeLists.txt")):
        text = re.sub(r"#.*", "", file.read_text())
        for name, body in LIBRARY.findall(text):
            dependencies.setdefault(name, set()).update(words_after("DEPS", body))
    return dependencies


def check_tiers(dependencies):
    for library, uses in sorted(dependencies.items()):
        if library not in TIERS:
            yield f"moestro/{library}: no tier is given for this library in tools/check_includes.py"
            continue
        for used in sorted(uses):
            if TIERS.get(used, 99) >= TIERS[library] or used in FORBIDDEN.get(library, set()):
                yield f"moestro/{library}: must not depend on {used} (tiers)"


def with_indirect(library, dependencies):
    """All libraries reachable from one: DEPS are public, so that their headers come along."""
    seen, waiting = set(), [library]
    while waiting:
        for used in dependencies.get(waiting.pop(), ()):
            if used not in seen:
                seen.add(used)
                waiting.append(used)
    return seen


def check_file(path, relative, dependencies):
    parts = relative.split("/")
    library = parts[1] if parts[0] == "moestro" and len(parts) > 2 else None
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        bracket, header = match.groups()
        place = f"{relative}:{text.count(chr(10), 0, match.start(2)) + 1}"
        for pattern, homes in HEAVY:
            if re.match(pattern, header) and not re.match(homes, relative):
                yield f"{place}: {header} may be included only in {homes}"
                break
        target = header.split("/")
        if target[0] != "moestro":
            if bracket == '"' and library:
                yield f'{place}: write the full path, "moestro/{library}/{header}"'
            continue
        used = target[1]
        if library is None or used == library:
            continue
        if used not in with_indirect(library, dependencies):
            yield f"{place}: {library} includes {header}, but its DEPS do not name {used}"
        if "internal" in target:
            yield f"{place}: {header} is internal to {used}"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    dependencies = declared_dependencies(root)
    problems = list(check_tiers(dependencies))
    for folder in ("moestro", "tests", "bench"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                problems += check_file(path, path.relative_to(root).as_posix(), dependencies)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
